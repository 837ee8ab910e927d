"""What a model takes, in words that fit on a command line.

    3,224,224                        one image, float32
    int64:512                        512 whole numbers below the vocabulary's size
    ["3,64,64", "int64:16"]          two inputs, in the order of the model's `forward`
"""

from __future__ import annotations

import json

from lockstep.advisor.calibration import CalibrationError
from lockstep.engine.data.drawn import ModelInput

TYPES = ("float32", "int64")
LARGEST_VOCABULARY = 1 << 24
"""Whole numbers travel as float32, which holds them exactly up to here."""


def parse_inputs(text: str) -> tuple[ModelInput, ...]:
    """The inputs that `text` names. Raises CalibrationError, which shows what is possible."""
    words: object = [text]
    if text.lstrip().startswith("["):
        try:
            words = json.loads(text)
        except json.JSONDecodeError as error:
            raise _unreadable(text, f"it is no JSON list ({error})") from None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _unreadable(text, "a list must hold the inputs as texts, at least one")
    return tuple(_parse_input(word, text) for word in words)


def inputs_text(inputs: tuple[ModelInput, ...]) -> str:
    """The canonical text, from which `parse_inputs` makes the same inputs."""
    return str(inputs[0]) if len(inputs) == 1 else json.dumps([str(each) for each in inputs])


def _parse_input(word: str, text: str) -> ModelInput:
    kind, colon, sizes = word.rpartition(":")
    kind = kind.strip() if colon else "float32"
    if kind not in TYPES:
        raise _unreadable(text, f"type {kind!r} does not exist; there are: {', '.join(TYPES)}")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        raise _unreadable(text, f"{sizes.strip()!r} are no whole numbers") from None
    if min(shape) < 1:
        raise _unreadable(text, f"{min(shape)} is no size")
    return ModelInput(kind, shape)


def _unreadable(text: str, why: str) -> CalibrationError:
    return CalibrationError(
        f"--input {text!r} can't be read: {why}; give the shape of one sample, such as 3,224,224 or int64:512, and "
        'several inputs as a list: \'["3,64,64", "int64:16"]\''
    )
