"""Ranks that are threads of one process: a message is a copy in the other's mailbox."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.engine.groups.base import ANY, CanShare, Group, GroupError, SubGroup
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.mailbox import Mailbox


class ThreadGroup(Group, CanShare):
    """One rank of `size` threads. Make all of them with `ThreadGroup.of`."""

    def __init__(self, rank: int, boxes: list[Mailbox], board: Board | None, common: dict[str, Any]) -> None:
        self.rank, self.size = rank, len(boxes)
        self._boxes, self._board, self._common = boxes, board, common

    @classmethod
    def of(cls, size: int, board: Board | None = None) -> list[ThreadGroup]:
        boxes = [Mailbox() for _ in range(size)]
        common: dict[str, Any] = {}
        return [cls(rank, boxes, board, common) for rank in range(size)]

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        self._boxes[destination].deliver(self.rank, tag, tensor.detach().clone())

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        return self._boxes[self.rank].take(source, tag, deadline_seconds)

    def allreduce(self, tensor: Tensor) -> None:
        """Each thread sums its own slice of everybody's tensor: no copy but the result's."""
        parts: list[Tensor] = self._publish(tensor)
        start, stop = tensor.numel() * self.rank // self.size, tensor.numel() * (self.rank + 1) // self.size
        own = parts[0].flatten()[start:stop].clone()
        for other in parts[1:]:
            own += other.flatten()[start:stop]
        self.barrier()  # every rank has read the addends
        for other in parts:
            other.view(-1)[start:stop] = own
        self.barrier()

    def _publish(self, value: Any, group: Group | None = None) -> list[Any]:
        """The `value` of every rank of `group` (default: all), by reference. Collective."""
        group = group or self
        name = group.name if isinstance(group, SubGroup) else "all"
        self._common[f"{name} {group.rank}"] = value
        group.barrier()
        values = [self._common[f"{name} {rank}"] for rank in range(group.size)]
        group.barrier()  # every rank has read before any of them publishes again
        del self._common[f"{name} {group.rank}"]  # otherwise an idle team would keep it until the next call
        return values

    def share(self, length: int) -> list[Tensor]:
        return self.share_among(self, length)

    def share_among(self, group: Group, length: int) -> list[Tensor]:
        return self._publish(torch.zeros(length), group)

    def abort(self, reason: str) -> None:
        for box in self._boxes:
            box.abort(reason)

    def torch_group(self) -> Any:
        raise GroupError("torch.distributed needs a process per rank; use launcher='processes' for this strategy")

    def enter(self, phase: str) -> None:
        if self._board is not None:
            self._board.enter(self.rank, phase)

    def at_step(self, step: int) -> None:
        if self._board is not None:
            self._board.at_step(self.rank, step)
