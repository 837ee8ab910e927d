"""What a server of policies and its workers tell each other, beside parameters and gradients, as float64 tensors.

    worker -> server   NOTE: kind, task, version, samples, began, ended, compute, delay, loss, square norm, state
    server -> worker   ORDER: kind, task, version, seconds of the run, then the work; the parameters follow
    server -> worker   RECALL: task

Whole numbers up to 2^53 pass through float64 unchanged. Seconds are those since the server began.

**The end.** The last order tells a worker how often it was recalled, and the last note of every worker is END. So all
that was sent is received, and nothing waits in a mailbox for the next run of the same team.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.engine.policies import Contribution, Work

# Tags.
NOTE, GRADIENT, ORDER, PARAMETERS, RECALL, STATE, START = (
    "policy note", "policy gradient", "policy order", "policy parameters", "policy recall", "policy state",
    "policy start",
)  # fmt: skip
# Kinds of a note and of an order.
CONTRIBUTES, GAVE_UP, PROGRESS, READY, ASK, LOAD, END = range(7)
WORK, STOP = range(2)


@dataclass(frozen=True)
class Note:
    """From a worker. `compute_seconds` and `delay_seconds` of the task so far; `system`: what its node shows of its
    state then, in the order of `Delays.readings`."""

    kind: int
    task: int = 0
    version: int = 0
    samples: int = 0
    began: float = 0.0
    ended: float = 0.0
    compute_seconds: float = 0.0
    delay_seconds: float = 0.0
    loss: float = math.nan
    square_norm: float = math.nan
    system: tuple[float, ...] = ()

    def tensor(self) -> Tensor:
        *numbers, system = vars(self).values()
        return torch.tensor([*numbers, *system], dtype=torch.float64)

    @classmethod
    def of(cls, message: Tensor) -> Note:
        kind, task, version, samples, began, ended, compute, delay, loss, norm, *system = message.tolist()
        return cls(
            int(kind), int(task), int(version), int(samples), began, ended, compute, delay, loss, norm, tuple(system)
        )

    def contribution(self, worker: int, readings: Sequence[str] = ()) -> Contribution:
        """`readings`: the names of `system`."""
        return Contribution(
            worker, self.task, self.version, self.samples, self.began, self.ended, self.loss, self.square_norm,
            dict(zip(readings, self.system, strict=True)) or None,
        )  # fmt: skip


@dataclass(frozen=True)
class Order:
    """From the server. Without work, training is over, and `task` is how many recalls the worker was sent."""

    version: int
    now: float
    task: int = 0
    work: Work | None = None

    def tensor(self) -> Tensor:
        head = [STOP if self.work is None else WORK, self.task, self.version, self.now]
        return torch.tensor(head + ([] if self.work is None else _numbers(self.work)), dtype=torch.float64)

    @classmethod
    def of(cls, message: Tensor) -> Order:
        kind, task, version, now, *rest = message.tolist()
        return cls(int(version), now, int(task), _work(rest) if kind == WORK else None)


def _numbers(work: Work) -> list[float]:
    """samples, micro_batch, deadline (NaN: none), micro_batch_seconds, ranges, parts; each list after its length."""
    deadline = math.nan if work.deadline_seconds is None else work.deadline_seconds
    numbers = [work.samples, work.micro_batch, deadline, work.micro_batch_seconds]
    for pairs in (work.ranges, work.parts):
        numbers += [len(pairs), *(number for pair in pairs for number in pair)]
    return numbers


def _work(numbers: list[float]) -> Work:
    samples, micro_batch, deadline, micro_batch_seconds, *rest = numbers
    count = int(rest[0])
    ranges = tuple((int(rest[1 + 2 * place]), int(rest[2 + 2 * place])) for place in range(count))
    rest = rest[1 + 2 * count :]
    parts = tuple((int(rest[1 + 2 * place]), rest[2 + 2 * place]) for place in range(int(rest[0])))
    until = None if math.isnan(deadline) else deadline
    return Work(ranges, int(samples), int(micro_batch), until, micro_batch_seconds, parts)
