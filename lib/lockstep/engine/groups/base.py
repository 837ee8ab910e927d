"""The field's communicator, as one small type that threads, processes, MPI and Spark can all provide.

A concrete group brings `_send` and `_receive`; the collectives here work over them. A group that has
something faster (gloo, MPI, memory that everybody sees) overrides the collective.
"""

from __future__ import annotations

import io
import itertools
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ANY = -1
_WORTH_A_GROUP_BYTES = 1 << 16  # smaller sums are faster by a few messages


class GroupError(RuntimeError):
    """Ranks could not work together; the message says which and why."""


class GroupAborted(GroupError):
    """Another rank failed; the message carries its reason. This is never the first cause of a failure."""


class GroupTimeout(GroupError):
    """A message did not come before its deadline."""


class Group(ABC):
    """`size` ranks that work together, seen from rank `rank`. Tensors are on the CPU unless stated."""

    rank: int
    size: int
    sums_with_torch = False  # whether `torch_group()` is faster for large sums

    @property
    def node(self) -> Group:
        """The ranks that share this rank's memory. On one machine: the whole group."""
        return self

    @property
    def leaders(self) -> Group | None:
        """The first rank of every node, seen from such a rank; None on all others, or where there is one node."""
        return None

    @abstractmethod
    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        """Hand `tensor` over; it may be changed afterwards. Does not wait for the receiver."""

    @abstractmethod
    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        """(source, tensor) of the oldest message. Raises GroupTimeout, GroupAborted."""

    @abstractmethod
    def share(self, length: int) -> list[Tensor]:
        """One zeroed float32 buffer of `length` per rank of this node, visible to all of them. Collective."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Make every rank's present and next call here raise GroupAborted."""

    @abstractmethod
    def torch_group(self) -> Any:
        """A torch.distributed process group of the same ranks. Raises GroupError where there can be none."""

    def enter(self, phase: str) -> None:  # noqa: B027 - a group without a board has nothing to note
        """Write on the board what this rank is doing (see `groups.board.PHASES`)."""

    def at_step(self, step: int) -> None:  # noqa: B027
        """Write on the board which step this rank is in."""

    def barrier(self) -> None:
        """Return when all ranks have called it: log2(size) rounds.

        round k: rank r tells r + 2^k and waits for r - 2^k (dissemination barrier)
        """
        token = torch.empty(0)
        for k in itertools.takewhile(lambda k: 1 << k < self.size, itertools.count()):
            self.send(token, (self.rank + (1 << k)) % self.size, f"barrier {k}")
            self.receive((self.rank - (1 << k)) % self.size, f"barrier {k}")

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        """Fill `tensor` in place with that of `source`."""
        if self.rank == source:
            for other in self._others():
                self.send(tensor, other, "broadcast")
        else:
            tensor.copy_(self.receive(source, "broadcast")[1])

    def allgather(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's tensor, by rank; shapes may differ."""
        for other in self._others():
            self.send(tensor, other, "allgather")
        return [tensor if r == self.rank else self.receive(r, "allgather")[1] for r in range(self.size)]

    def allreduce(self, tensor: Tensor) -> None:
        """Sum over ranks, in place, the same bits everywhere (rank 0 adds in rank order)."""
        if self.rank == 0:
            for other in self._others():
                tensor += self.receive(other, "reduce")[1]
        else:
            self.send(tensor, 0, "reduce")
        self.broadcast(tensor)

    def prepare_sums(self) -> None:  # noqa: B027 - most groups need nothing
        """Prepare fast sums over these ranks. Collective over the group that this one is a part of."""

    def split(self, color: int) -> Group:
        """The group of the ranks that gave the same color, in rank order. Collective."""
        colors = torch.cat(self.allgather(torch.tensor([color])))
        return SubGroup(self, [r for r in range(self.size) if int(colors[r]) == color], f"color {color}")

    def _others(self) -> Sequence[int]:
        return [r for r in range(self.size) if r != self.rank]


def first_ranks(group: Group, count: int) -> Group | None:
    """The first `count` ranks of a group, as a group; None for a rank that is not among them."""
    if group.rank >= count:
        return None
    return group if count == group.size else SubGroup(group, list(range(count)), f"the first {count}")


class SubGroup(Group):
    """Some ranks of a larger group, which carries their messages under a tag of their own."""

    def __init__(self, whole: Group, ranks: list[int], name: str) -> None:
        self.whole, self.ranks, self.name = whole, ranks, name
        self.rank, self.size = ranks.index(whole.rank), len(ranks)
        self._torch: Any = None
        self._prepared = False

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        self.whole.send(tensor, self.ranks[destination], f"{self.name}/{tag}")

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        origin = source if source == ANY else self.ranks[source]
        sender, tensor = self.whole.receive(origin, f"{self.name}/{tag}", deadline_seconds)
        return self.ranks.index(sender), tensor

    def share(self, length: int) -> list[Tensor]:
        if not isinstance(self.whole, CanShare):
            raise GroupError(f"group {self.name!r} of {type(self.whole).__name__} can't share memory: no common node")
        return self.whole.share_among(self, length)

    def allreduce(self, tensor: Tensor) -> None:
        if self._prepared and self.size > 1 and tensor.nbytes >= _WORTH_A_GROUP_BYTES:
            torch.distributed.all_reduce(tensor, group=self.torch_group())
        else:
            super().allreduce(tensor)

    def prepare_sums(self) -> None:
        if self.whole.sums_with_torch:
            self.whole.torch_group()  # collective, so it must not be made while some ranks are serving
            self._prepared = True

    def torch_group(self) -> Any:
        """Made at the first call, which is collective over the whole group."""
        if self._torch is None:
            self.whole.torch_group()
            self._torch = torch.distributed.new_group(self.ranks, use_local_synchronization=True)
        return self._torch

    def abort(self, reason: str) -> None:
        self.whole.abort(reason)

    def enter(self, phase: str) -> None:
        self.whole.enter(phase)

    def at_step(self, step: int) -> None:
        self.whole.at_step(step)


class CanShare(ABC):
    """A group whose ranks can see common memory."""

    @abstractmethod
    def share_among(self, group: Group, length: int) -> list[Tensor]:
        """`Group.share` for `group`, whose ranks are some or all of this one's."""


def allgather_object(group: Group, value: Any) -> list[Any]:
    """Every rank's picklable value, by rank. For small values: counts, scores, a slice of the optimizer's state."""
    stream = io.BytesIO()
    pickle.dump(value, stream)
    gathered = group.allgather(torch.from_numpy(np.frombuffer(stream.getvalue(), dtype=np.uint8).copy()))
    return [pickle.loads(part.numpy().tobytes()) for part in gathered]
