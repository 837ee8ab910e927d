"""Samples that are drawn at random and hold nothing to learn: for models of which only a step's time is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.sources import Ids, Images, prepare


@dataclass(frozen=True)
class DrawnSamples:
    """`samples` random inputs of `shape` (channels, height, width) with labels of so many classes, as `ImageData`.

    Numbers are normal; with a `vocabulary` whole numbers below it, as float32. It travels to workers as these few
    numbers: each draws the same samples, from seed 0, when it first loads some.
    """

    shape: tuple[int, int, int]
    kinds: int = 10
    vocabulary: int = 0
    samples: int = 256
    source: str = "synthetic"

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(kind) for kind in range(self.kinds))

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.arange(self.samples, dtype=np.int64) % self.kinds

    def __len__(self) -> int:
        return self.samples

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`; `epoch` and `seed` change nothing. Raises DataError for an id that does not exist."""
        ids, out = prepare(ids, len(self), self.shape, out)
        np.copyto(out, _inputs(self)[ids])
        return out


@lru_cache(maxsize=8)
def _inputs(data: DrawnSamples) -> Images:
    """[samples, channels, height, width]"""
    random, size = np.random.default_rng(0), (data.samples, *data.shape)
    if data.vocabulary:
        return random.integers(data.vocabulary, size=size).astype(np.float32)
    return random.standard_normal(size, dtype=np.float32)
