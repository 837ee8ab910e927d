"""Sums by one-sided MPI: gradients are in windows, which other ranks read without the owner's participation.

    all gradients are complete          barrier
    rank r   gets its slice of all others' windows, block by block, and adds up in rank order
    all sums are complete               barrier
    rank r   gets the sums of every other slice from their owners, into place
    all have read                       barrier: the buffer may change again

The barriers are needed because, as Single-to-Multi (section 3.3.2) says of RDMA, the owner is not notified. Ranks use
gets and not puts: a get is complete when its numbers have arrived, whereas a put ends with a flush, which spins.
Between hosts without RDMA hardware, MPI itself answers the gets while the target is in one of the waits here.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lockstep.engine.groups import Group, GroupError
from lockstep.engine.groups.library import MPI
from lockstep.engine.groups.mpi import MpiGroup, unlink_library_files
from lockstep.engine.groups.windows import Window
from lockstep.engine.sync.base import cut
from lockstep.engine.sync.transports.base import Transport, add_in_rank_order

_BLOCK = 1 << 16  # float32 numbers in one get, so few that they are added while they are in the cache
_DEPTH = 4  # blocks under way at once; with more, a rank's requests wait behind what it sends itself
_LOOKS = 16  # between two sleeps: MPI over TCP moves a few packets with each


class OneSided(Transport):
    """`buffer` is the window: what `allreduce` is given must be a part of it. `close` unmaps it."""

    def __init__(self, group: Group) -> None:
        if not isinstance(group, MpiGroup):
            raise GroupError(
                f"transport='rma' is one-sided MPI, which a {type(group).__name__} has not; give launcher='mpiexec' or "
                "'engines', or transport='sockets'"
            )
        self.group = group
        self._window: _GradientWindow | None = None

    def buffer(self, like: Tensor) -> Tensor:
        if like.dtype != torch.float32 or like.device.type != "cpu":
            raise GroupError(f"transport='rma' sums float32 on the CPU, not {like.dtype} on {like.device}")
        self._window = _GradientWindow(self.group, like.numel())
        return self._window.tensor.view(like.shape)

    def allreduce(self, piece: Tensor) -> float:
        window, rank = self._window, self.group.rank
        if window is None or not window.holds(piece):
            raise GroupError("transport='rma' can only sum what stands in the buffer it gave")
        start = piece.storage_offset() - window.tensor.storage_offset()
        parts = [slice(start + part.start, start + part.stop) for part in cut(piece.numel(), self.group.size)]
        window.meet()
        window.add_up(parts[rank])
        window.meet()
        window.fetch(parts)
        window.meet()
        # By now all other ranks have read their slices, and this rank's sums, from here.
        own = parts[rank].stop - parts[rank].start
        return 4.0 * (piece.numel() - own + (self.group.size - 1) * own)

    def close(self) -> None:
        """Collective, except on a rank that fails: then the others do not take part, and its process ends."""
        if self._window is not None and sys.exception() is None:
            self._window.close()
        self._window = None


_Get = tuple[list[MPI.Request], Callable[[], None]]
"""Requests under way, and what to do when they are complete."""


class _GradientWindow(Window):
    """A window that is read in many small gets under way at once, and never written from outside."""

    def __init__(self, group: MpiGroup, length: int) -> None:
        super().__init__(group, length)
        unlink_library_files()
        self._others = [rank for rank in range(group.size) if rank != group.rank]
        self._free = list(torch.empty(_DEPTH, len(self._others), _BLOCK))

    def holds(self, piece: Tensor) -> bool:
        same = piece.untyped_storage().data_ptr() == self.tensor.untyped_storage().data_ptr()
        return same and piece.is_contiguous()

    def meet(self) -> None:
        """Makes what each rank has written to its own window visible to all others. Collective."""
        self._window.Sync()
        self._finish(iter([([self._group.comm.Ibarrier()], _nothing)]), 0)
        self._window.Sync()

    def add_up(self, own: slice) -> None:
        """Make this rank's slice the sum over all ranks."""
        self._finish(self._blocks_to_add(own), len(self._others) * (own.stop - own.start))

    def fetch(self, parts: list[slice]) -> None:
        """Read the other slices, by rank, from their owners."""
        self._finish(self._blocks_to_take(parts), sum(parts[rank].stop - parts[rank].start for rank in self._others))

    def _finish(self, gets: Iterator[_Get], numbers: int) -> None:
        """Wait for all `gets`, as many bytes going out as come in."""
        self._group.finish(_Gets(gets), 2 * 4 * numbers)

    def _blocks_to_add(self, own: slice) -> Iterator[_Get]:
        for place in _blocks(own):
            scratch = self._free.pop()
            rows = list(scratch[:, : place.stop - place.start])
            requests = [self._begin(row, rank, place) for row, rank in zip(rows, self._others, strict=True)]
            yield requests, functools.partial(self._add, place, rows, scratch)

    def _add(self, place: slice, addends: list[Tensor], scratch: Tensor) -> None:
        add_in_rank_order(self.tensor[place], addends, self._group.rank)
        self._free.append(scratch)  # taken again next, while it is in the cache

    def _blocks_to_take(self, parts: list[slice]) -> Iterator[_Get]:
        for blocks in itertools.zip_longest(*(_blocks(parts[rank]) for rank in self._others)):
            for rank, place in zip(self._others, blocks, strict=True):
                if place is not None:
                    yield [self._begin(self.tensor[place], rank, place)], _nothing

    def _begin(self, into: Tensor, target: int, place: slice) -> MPI.Request:
        """Start to read that part of `target`'s window."""
        return self._window.Rget([into.numpy(), MPI.FLOAT], target, (place.start, into.numel(), MPI.FLOAT))


class _Gets:
    """Gets that are begun one after the other, `_DEPTH` of them under way at once, waited for as one request."""

    def __init__(self, gets: Iterator[_Get]) -> None:
        self._gets, self._all_begun = gets, False
        self._under_way: deque[_Get] = deque()

    def Test(self) -> bool:
        """Like `Test` of an MPI request: whether everything is complete. Polls several times and starts more gets."""
        return any(self._look() for _ in range(_LOOKS))

    def _look(self) -> bool:
        while True:
            while self._under_way and MPI.Request.Testall(self._under_way[0][0]):
                self._under_way.popleft()[1]()
            if self._all_begun or len(self._under_way) == _DEPTH:
                return self._all_begun and not self._under_way
            get = next(self._gets, None)
            if get is None:
                self._all_begun = True
            else:
                self._under_way.append(get)


def _blocks(whole: slice) -> Iterator[slice]:
    for start in range(whole.start, whole.stop, _BLOCK):
        yield slice(start, min(start + _BLOCK, whole.stop))


def _nothing() -> None:
    """What remains to do for a get whose numbers arrive in place: nothing."""
