"""Uniform numbers that are functions of (seed, stream, row, counter): asked for one by one or together, the same bits.

    word    = fold(fold(stream_key(seed, 0, stream), row), counter)        # lockstep.engine.mixing
    uniform = ((word >> 12) + 1/2) * 2**-52                                # 52 bits, in the open interval (0, 1)

A row is a worker or a rack; a counter is a task, or a place on the clock. Whatever needs more than + - * / is computed
by one function on contiguous arrays of numpy, whether one number is asked for or ten thousand: numpy's logarithm treats
each element alike, however many there are, but Python's may end otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.mixing import GOLDEN, mix64, stream_key

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

BLOCK = 128
"""Counters whose numbers are made at once where one is asked for: a simulation asks for task after task."""

# Streams: what a draw is for. Those of images are below (lockstep.engine.data.keyed).
STREAM_PAUSE = 1_000_000
STREAM_PLACE = 1_000_001
STREAM_START = 1_000_002
STREAM_CLOCK = 1_000_003


def row_keys(seed: int, stream: int, rows: int) -> Words:
    """The key of each of `rows` rows: uint64 [rows]. Raises ValueError for a negative seed."""
    return _fold(np.uint64(stream_key(seed, 0, stream)), np.arange(rows, dtype=np.uint64))


def uniforms(keys: Words, counters: ArrayLike) -> Floats:
    """Numbers in (0, 1) of keys and counters, which are broadcast against each other."""
    words = _fold(keys, np.asarray(counters).astype(np.uint64))
    words >>= np.uint64(12)
    numbers = words.astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-52
    return numbers


def _fold(keys: Words | np.uint64, values: Words) -> Words:
    with np.errstate(over="ignore"):  # words wrap around; numpy would warn of it for a single one
        return mix64(keys + np.uint64(GOLDEN) * (values + np.uint64(1)))


class Draws:
    """A number for each (row, task): `of(uniform)`, where `of` takes and gives an array.

    Memory: a block of `BLOCK` numbers for each row that was asked for alone, and nothing for those asked for together.
    """

    def __init__(self, seed: int, stream: int, rows: int, of: Callable[[Floats], Floats]) -> None:
        self._keys = row_keys(seed, stream, rows)
        self._of = of
        self._blocks: dict[int, tuple[int, memoryview]] = {}  # row -> its last block's first task, its numbers

    def one(self, row: int, task: int) -> float:
        """The number of one row and task. Raises ValueError for a row that does not exist and a negative task."""
        block = self._blocks.get(row)
        if block is None or not 0 <= (place := task - block[0]) < BLOCK:
            block = self._make(row, task)
            place = task - block[0]
        return block[1][place]

    def many(self, rows: NDArray[np.int64], tasks: NDArray[np.int64]) -> Floats:
        """The numbers of rows and tasks, which exist and are broadcast against each other; bit for bit as `one`."""
        return self._of(uniforms(self._keys[rows], tasks))

    def _make(self, row: int, task: int) -> tuple[int, memoryview]:
        if not 0 <= row < len(self._keys) or task < 0:
            raise ValueError(f"worker {row}, task {task} has no delay; there are workers 0 … {len(self._keys) - 1}")
        first = task - task % BLOCK
        numbers = self._of(uniforms(self._keys[row], np.arange(first, first + BLOCK, dtype=np.uint64)))
        self._blocks[row] = block = (first, numbers.data)
        return block
