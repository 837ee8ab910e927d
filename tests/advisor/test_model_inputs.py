"""What a model takes, as text, and random samples of it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.inputs import inputs_text, parse_inputs
from lockstep.engine.data.drawn import DrawnSamples, ModelInput
from lockstep.engine.data.sources import ImageData


@pytest.mark.parametrize(
    ("text", "inputs", "canonical"),
    [
        ("3,224,224", [("float32", (3, 224, 224))], "3,224,224"),
        (" float32: 784", [("float32", (784,))], "784"),
        ("int64:512", [("int64", (512,))], "int64:512"),
        ('["3,8,8","int64:5"]', [("float32", (3, 8, 8)), ("int64", (5,))], '["3,8,8", "int64:5"]'),
    ],
)
def test_a_text_is_read_and_written(text: str, inputs: list[tuple[str, tuple[int, ...]]], canonical: str) -> None:
    found = parse_inputs(text)
    assert [(each.dtype, each.shape) for each in found] == inputs
    assert inputs_text(found) == canonical and parse_inputs(canonical) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3x224", "'3x224' are no whole numbers"),
        ("3,0,4", "0 is no size"),
        ("uint8:3", "type 'uint8' does not exist; there are: float32, int64"),
        ("[3, 4]", "a list must hold the inputs as texts"),
        ("[]", "at least one"),
        ('["3"', "no JSON list"),
    ],
)
def test_another_text_is_refused_with_an_example(text: str, why: str) -> None:
    with pytest.raises(CalibrationError, match="such as 3,224,224 or int64:512") as refused:
        parse_inputs(text)
    assert why in str(refused.value)


def test_random_samples_are_image_data() -> None:
    data = DrawnSamples(parse_inputs("3,7,6"), kinds=4, samples=40, seed=1)
    images = data.load(np.array([0, 39, 0]), 0, 0)
    assert isinstance(data, ImageData) and images.shape == (3, 3, 7, 6) and images.dtype == np.float32
    assert np.array_equal(images[0], images[2]) and not np.array_equal(images[0], images[1])
    assert abs(float(data.load(np.arange(40), 0, 0).std()) - 1) < 0.05
    assert len(data) == 40 and set(data.labels) == set(range(4))
    assert len(data.lasting(7).labels) == 7
    assert len(pickle.dumps(data)) < 1000, "what was drawn stays in its process"


def test_several_inputs_stand_in_one_row() -> None:
    data = DrawnSamples((ModelInput("float32", (2, 3)), ModelInput("int64", (5,))), 2, vocabulary=9, samples=30)
    rows = data.load(np.arange(30), 0, 0)
    assert rows.shape == (30, 1, 1, 11)
    words = rows[..., 6:]
    assert np.array_equal(words, words.round()) and words.min() >= 0 and 4 < words.max() <= 8
