"""The interface of transports, which carry sums between ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from lockstep.engine.groups import Group


class Transport(ABC):
    """Sums tensors over the ranks of a group. One thread at a time may use it, and all ranks make the same calls."""

    def buffer(self, like: Tensor) -> Tensor:
        """Zeroed memory, shaped like `like`, whose pieces `allreduce` may be given. Collective; called once."""
        return torch.zeros_like(like)

    @abstractmethod
    def allreduce(self, piece: Tensor) -> float:
        """Sum `piece`, a contiguous part of the buffer, over all ranks, in place; returns the bytes this rank sent.

        All ranks get the same bits. Bytes are those of the numbers alone, as each protocol moves them; what
        the system adds is counted on the link (`groups.links`). Raises GroupAborted when another rank gives up.
        """

    def close(self) -> None:  # noqa: B027 - a group's own messages need nothing
        """Release connections and memory; the buffer must not be used afterwards."""


class Messages(Transport):
    """The group's own all-reduce."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def allreduce(self, piece: Tensor) -> float:
        self.group.allreduce(piece)
        # A ring all-reduce sends 2 (n-1)/n of the buffer from every rank.
        return 2 * (self.group.size - 1) / self.group.size * piece.numel() * piece.element_size()


def add_in_rank_order(own: Tensor, others: list[Tensor], rank: int) -> None:
    """own [n] = x0 + x1 + ... of all ranks; `others` has those of the other ranks, by rank, and is used up.

    So a sum has the same bits on every rank, however a gradient is cut into pieces.
    """
    before, after = others[:rank], others[rank:]
    for other in before[1:]:
        before[0] += other
    for other in [*before[:1], *after]:
        own += other
