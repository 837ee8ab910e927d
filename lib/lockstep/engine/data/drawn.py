"""Samples that are drawn at random and hold nothing to learn: for models of which only a step's time is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.sources import Ids, Images, prepare

_POOL_BYTES, _MOST_POOLED = 16 << 20, 256


@dataclass(frozen=True)
class ModelInput:
    """One input of a model, of one sample."""

    dtype: str  # float32 | int64
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


@dataclass(frozen=True)
class DrawnSamples:
    """An `ImageData` of `samples` random samples with labels of `kinds` classes in turn: normally distributed numbers,
    and of int64 inputs whole numbers below `vocabulary`, as float32.

    It travels to workers as these few numbers: each process draws a few samples, from `seed`, when it first loads
    some, and repeats them, so that loading costs what copying them costs. One image keeps its shape; any other input is
    a row of numbers [1, 1, numbers], all inputs one behind the other, which the model's wrapper takes apart again.
    """

    inputs: tuple[ModelInput, ...]
    kinds: int = 10
    vocabulary: int = 0
    samples: int = 256
    seed: int = 0
    source: str = "synthetic"

    def lasting(self, count: int) -> DrawnSamples:
        """The same samples for a set of another size."""
        return replace(self, samples=count)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(kind) for kind in range(self.kinds))

    @property
    def labels(self) -> NDArray[np.int64]:
        return _labels(self.kinds, self.samples)

    @property
    def shape(self) -> tuple[int, int, int]:
        if len(self.inputs) == 1 and self.inputs[0].is_image:
            channels, height, width = self.inputs[0].shape
            return (channels, height, width)
        return (1, 1, sum(each.numbers for each in self.inputs))

    def __len__(self) -> int:
        return self.samples

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`; `epoch` and `seed` change nothing. Raises DataError for an id that does not exist."""
        ids, out = prepare(ids, self.samples, self.shape, out)
        pool = _pool(self.inputs, self.vocabulary, self.seed, self.shape)
        return np.take(pool, ids % len(pool), axis=0, out=out, mode="clip")


@lru_cache(maxsize=2)
def _labels(kinds: int, samples: int) -> NDArray[np.int64]:
    return np.arange(samples, dtype=np.int64) % kinds


@lru_cache(maxsize=8)
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
