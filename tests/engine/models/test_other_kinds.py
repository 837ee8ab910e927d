"""Models of other kinds than the papers': what they are made of, that they learn, and that they need no data folder."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from lockstep.engine.data.drawn import DrawnSamples, ModelInput
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import ImageData
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.models.mixer import mlp_mixer
from lockstep.engine.models.resnet import resnet10
from lockstep.engine.models.text import VOCABULARY, text_lstm, text_transformer
from lockstep.engine.training.loop import run_job
from lockstep.engine.usecases import DRAWN_USE_CASES, USE_CASES, find_images, use_case

every_case = pytest.mark.parametrize("name", DRAWN_USE_CASES)


@pytest.mark.parametrize(
    ("build", "parameters"),
    [(resnet10, 4_903_242), (mlp_mixer, 3_311_498), (text_lstm, 2_599_946), (text_transformer, 5_738_506)],
)
def test_they_have_the_parameters_that_they_say(build: object, parameters: int) -> None:
    assert callable(build)
    with torch.device("meta"):
        assert sum(each.numel() for each in build(10).parameters()) == parameters
    assert f"{parameters:,} parameters" in str(build.__doc__)
    with pytest.raises(ValueError, match="at least 2 classes"):
        build(1)


@every_case
def test_a_gradient_reaches_every_parameter(name: str) -> None:
    case = use_case(name)
    data = case.open("train", None)
    model = case.model()
    output = model(torch.from_numpy(data.load(np.arange(3), 0, 0)))
    assert output.shape == (3, 10)
    case.loss(output, torch.from_numpy(data.labels[:3])).sum().backward()
    lacking = [part for part, each in model.named_parameters() if each.grad is None or not each.grad.abs().sum() > 0]
    # The keys' bias of an attention shifts all scores of a word alike, which changes nothing.
    assert not lacking


@every_case
def test_it_needs_no_folder_and_is_no_papers(name: str) -> None:
    assert name not in USE_CASES
    source = find_images(use_case(name), data_dir="/nowhere")
    assert (source.kind, source.train_images, source.skipped) == ("synthetic", 256, ())


def test_it_trains_as_any_other_use_case() -> None:
    job = Job.of("sequential", use_case="TextLSTM", per_worker_batch_size=2, input="memory", steps=2, warmup_steps=0)
    trace = run_job(job.with_(images=256), ThreadGroup.of(1)[0])
    assert [step["images"] for step in trace.steps] == [2, 2]
    assert all(np.isfinite(step["train_loss"]) and step["compute_seconds"] > 0 for step in trace.steps)


def test_a_name_that_does_not_exist_lists_all_that_do() -> None:
    with pytest.raises(JobError, match=r"SimpleBig.*TextLSTM"):
        use_case("GPT")


def test_drawn_samples_are_the_same_everywhere_and_travel_as_numbers() -> None:
    data = DrawnSamples((ModelInput("int64", (5,)),), kinds=3, vocabulary=VOCABULARY, samples=7)
    assert isinstance(data, ImageData)
    words = data.load(np.array([6, 0]), epoch=0, seed=1)
    travelled = pickle.loads(pickle.dumps(data))
    assert len(pickle.dumps(data)) < 500
    np.testing.assert_array_equal(travelled.load(np.array([6, 0]), epoch=3, seed=2), words)
    assert words.dtype == np.float32 and words.shape == (2, 1, 1, 5)
    assert (words == words.astype(int)).all() and words.min() >= 0 and words.max() < VOCABULARY
    assert data.classes == ("0", "1", "2") and data.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert abs(float(DrawnSamples((ModelInput("float32", (3, 8, 8)),)).load(np.arange(128), 0, 0).mean())) < 0.05
    with pytest.raises(DataError, match="sample id 7"):
        data.load(np.array([7]), 0, 0)
