"""Randomness that belongs to a sample, not to a generator.

What is drawn for a sample depends on (seed, epoch, stream, sample id, position) alone: not on the order of work, on
the number of workers or on which thread asks. So every strategy sees the same augmentation.

The rule, on unsigned 64-bit integers that wrap around:

    fold(key, value) = mix64(key + GOLDEN * (value + 1))           # lockstep.engine.mixing
    word             = fold(fold(fold(fold(fold(0, seed), epoch), stream), sample id), position)
    uniform          = (word >> 40) * 2**-24                       # 24 bits: exact in float32, in [0, 1)

`stream_key` folds the first three, which are the same for a whole batch. An implementation in a framework that has
only *signed* 64-bit integers gets the same bits: addition, multiplication, xor and conversion wrap alike, and a
logical shift right by s is `(x >> s) & ((1 << (64 - s)) - 1)`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.mixing import GOLDEN, mix64, stream_key

UNIFORM_SHIFT = 40
UNIFORM_SCALE = 2.0**-24

# Streams: what a draw is for. Dropout of the k-th dropout layer is stream STREAM_DROPOUT + k.
STREAM_FLIP = 0
STREAM_SHIFT = 1
STREAM_AFFINE = 2
STREAM_DROPOUT = 1_000


def keyed_words(key: int, sample_ids: ArrayLike, length: int, first: int = 0) -> NDArray[np.uint64]:
    """The 64-bit words of samples [n] at positions first … first + length - 1: uint64 [n, length]."""
    ids = np.asarray(sample_ids, dtype=np.int64).astype(np.uint64)
    golden = np.uint64(GOLDEN)
    of_sample = mix64(np.uint64(key) + golden * (ids + np.uint64(1)))
    positions = golden * np.arange(first + 1, first + length + 1, dtype=np.uint64)
    return mix64(of_sample[:, None] + positions[None, :])


def keyed_uniform(
    seed: int, epoch: int, sample_ids: ArrayLike, stream: int, length: int | None = None, first: int = 0
) -> NDArray[np.float32]:
    """Uniform numbers in [0, 1), float32: one per sample id [n], or [n, length] of them.

    Number [i, j] depends on (seed, epoch, stream, sample_ids[i], first + j) alone; without `length`, j is 0.
    Raises ValueError for a negative seed, epoch, stream or length.
    """
    if length is not None and length < 0:
        raise ValueError(f"length={length!r} draws per sample is not possible; give at least 0")
    words = keyed_words(stream_key(seed, epoch, stream), sample_ids, 1 if length is None else length, first)
    uniform = (words >> np.uint64(UNIFORM_SHIFT)).astype(np.float32)
    uniform *= np.float32(UNIFORM_SCALE)
    return uniform[:, 0] if length is None else uniform
