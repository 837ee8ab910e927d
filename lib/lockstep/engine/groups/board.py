"""The board: what every rank is doing right now, in memory that all ranks and the launcher share.

A rank that was stopped or killed can't say where it was; its line on the board still does.

    rank 0 | phase | step | changes |      four int64 per rank, written by that rank alone
    rank 1 | phase | step | changes |
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

PHASES = ("start", "idle", "input", "compute", "wait", "exchange", "update", "evaluate", "checkpoint")


def anonymous_file(length_bytes: int) -> int:
    """A file descriptor of zeroed memory without a name: nothing is left behind, even by kill -9."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("lockstep")
    else:  # not Linux
        handle, path = tempfile.mkstemp(prefix="lockstep-")
        os.unlink(path)
    os.ftruncate(handle, max(length_bytes, 1))
    return handle


class Board:
    """The board of one team of `size` ranks, on the memory behind file descriptor `handle`."""

    def __init__(self, handle: int, size: int) -> None:
        self.handle = handle
        self._map = mmap.mmap(handle, size * 32)
        self._cells = np.frombuffer(self._map, dtype=np.int64).reshape(size, 4)

    @classmethod
    def create(cls, size: int) -> Board:
        return cls(anonymous_file(size * 32), size)

    def enter(self, rank: int, phase: str) -> None:
        """Rank `rank` is now in `phase`."""
        self._cells[rank, 0] = PHASES.index(phase)
        self._cells[rank, 2] += 1

    def at_step(self, rank: int, step: int) -> None:
        self._cells[rank, 1] = step

    def phase(self, rank: int) -> str:
        return PHASES[int(self._cells[rank, 0])]

    def step(self, rank: int) -> int:
        return int(self._cells[rank, 1])

    def changes(self) -> tuple[int, ...]:
        """A counter per rank that grows with every phase it enters; equal values mean that no rank made progress."""
        return tuple(int(count) for count in self._cells[:, 2])

    def where(self, rank: int) -> str:
        """'step 3, phase exchange'."""
        return f"step {self.step(rank)}, phase {self.phase(rank)}"

    def close(self) -> None:
        """Close the file descriptor; the memory goes with its last mapping."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
