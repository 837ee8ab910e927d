"""Records what one rank of a pipeline does in a step, and when: its passes, and its waiting for messages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules as torch_schedules


@dataclass(frozen=True)
class TimedAction:
    """One action; seconds of `time.perf_counter`, one clock for all processes of a machine."""

    stage: int
    micro_batch: int
    action: str  # one of lockstep.engine.pipelines.order.KINDS | receive | send | exchange | update
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass
class Recorder:
    """The actions of the present step, in order.

    torch's schedules post their messages, and wait for them, through two functions of their module, which do not know
    the micro-batch. While `listening`, these two record how long this rank was blocked; the stage has announced before
    which micro-batch each message belongs to.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    actions: list[TimedAction] = field(default_factory=list)
    _asked: dict[int, tuple[int, int, str]] = field(default_factory=dict)  # by the id of the tensor that is to be moved
    _posted: list[tuple[list[Any], tuple[int, int, str]]] = field(default_factory=list)

    def clear(self) -> None:
        self.actions, self._asked, self._posted = [], {}, []

    @contextlib.contextmanager
    def timing(self, stage: int, micro_batch: int, action: str) -> Iterator[None]:
        began = self.now()
        yield
        self.actions.append(TimedAction(stage, micro_batch, action, began, self.now()))

    def now(self) -> float:
        """The time in seconds, after a GPU has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def asks(self, stage: int, micro_batch: int, action: str, operations: Iterable[dist.P2POp]) -> None:
        """Announces that these messages belong to this micro-batch."""
        for operation in operations:
            self._asked[id(operation.tensor)] = (stage, micro_batch, action)

    def seconds(self, *actions: str) -> float:
        return sum(each.seconds for each in self.actions if each.action in actions)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Record this process's waits. Pipelines have a process per rank, so all of them are this rank's."""
        post, wait = torch_schedules._batch_p2p, torch_schedules._wait_batch_p2p

        def posting(operations: list[dist.P2POp], desc: str | None = None) -> list[dist.Work]:
            works = post(operations, desc)
            if operations:
                # Where a send and a receive go together, the receive is what is waited for.
                first = next((each for each in operations if each.op is dist.irecv), operations[0])
                self._posted.append((works, self._asked.get(id(first.tensor), (-1, -1, "receive"))))
            return works

        def waiting(works: list[dist.Work]) -> None:
            posted = next((what for found, what in self._posted if found is works), None)
            if posted is None:
                return wait(works)
            with self.timing(*posted):
                wait(works)
            self._posted = [pair for pair in self._posted if pair[0] is not works]

        setattr(torch_schedules, "_batch_p2p", posting)  # noqa: B010 - mypy: functions are no variables
        setattr(torch_schedules, "_wait_batch_p2p", waiting)  # noqa: B010
        try:
            yield
        finally:
            setattr(torch_schedules, "_batch_p2p", post)  # noqa: B010
            setattr(torch_schedules, "_wait_batch_p2p", wait)  # noqa: B010
