"""What a model takes, in words that fit on a command line, and random samples of it.

    3,224,224                        one image, float32
    int64:512                        512 whole numbers below the vocabulary's size
    ["3,64,64", "int64:16"]          two inputs, in the order of the model's `forward`
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lockstep.advisor.calibration import CalibrationError
from lockstep.engine.data.sources import Ids, Images, prepare

TYPES = ("float32", "int64")
LARGEST_VOCABULARY = 1 << 24
"""Whole numbers travel as float32, which holds them exactly up to here."""
_POOL_BYTES, _MOST_POOLED = 16 << 20, 256


@dataclass(frozen=True)
class ModelInput:
    """One input of a model, of one sample."""

    dtype: str  # of TYPES
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return self.dtype == "float32" and len(self.shape) == 3

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return sizes if self.dtype == "float32" else f"{self.dtype}:{sizes}"


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


@dataclass(frozen=True)
class RandomSamples:
    """An `ImageData` of random samples: normally distributed numbers, whole numbers below `vocabulary`, any label.

    A few samples are drawn once per process and then repeated, so that loading costs what copying them costs. One
    image keeps its shape; any other input is a row of numbers [1, 1, numbers], all inputs one behind the other, which
    the model's wrapper takes apart again.
    """

    inputs: tuple[ModelInput, ...]
    labelled: int  # labels are 0 to labelled - 1
    vocabulary: int = 0
    count: int = 1 << 16
    seed: int = 0
    source: str = "own"

    def lasting(self, count: int) -> RandomSamples:
        """The same samples for a set of another size."""
        return replace(self, count=count)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(label) for label in range(self.labelled))

    @property
    def labels(self) -> NDArray[np.int64]:
        return _labels(self.labelled, self.count, self.seed)

    @property
    def shape(self) -> tuple[int, int, int]:
        if len(self.inputs) == 1 and self.inputs[0].is_image:
            channels, height, width = self.inputs[0].shape
            return (channels, height, width)
        return (1, 1, sum(each.numbers for each in self.inputs))

    def __len__(self) -> int:
        return self.count

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`; `epoch` and `seed` change nothing."""
        ids, out = prepare(ids, self.count, self.shape, out)
        pool = _pool(self.inputs, self.vocabulary, self.seed, self.shape)
        return np.take(pool, ids % len(pool), axis=0, out=out, mode="clip")


@functools.lru_cache(maxsize=2)
def _labels(classes: int, count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(classes, size=count, dtype=np.int64)


@functools.lru_cache(maxsize=2)
def _pool(inputs: tuple[ModelInput, ...], vocabulary: int, seed: int, shape: tuple[int, int, int]) -> Images:
    """Some samples, float32 [samples, *shape]. Kept outside of the data, so that it does not travel to workers."""
    count = max(2, min(_MOST_POOLED, _POOL_BYTES // (4 * math.prod(shape))))
    dice = np.random.default_rng(seed)
    parts = [
        dice.standard_normal((count, each.numbers), np.float32)
        if each.dtype == "float32"
        else dice.integers(max(vocabulary, 2), size=(count, each.numbers)).astype(np.float32)
        for each in inputs
    ]
    return np.concatenate(parts, axis=1).reshape(count, *shape)
