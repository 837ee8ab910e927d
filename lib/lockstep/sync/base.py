"""How replicas agree: the type behind every strategy, and the plan of who trains on what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer

from lockstep.data.sampling import global_batch, share_of, steps_per_epoch
from lockstep.groups import Group
from lockstep.replica import Replica

OptimiserFactory = Callable[[Iterable[Tensor]], Optimizer]


@dataclass(frozen=True)
class Share:
    """A micro-batch of one worker."""

    step: int
    epoch: int
    sample_ids: np.ndarray  # int64 [samples], may be empty
    weights: np.ndarray  # float32 [samples]; over all workers of a step they sum to 1
    last: bool = True  # of this worker's micro-batches in this step


@dataclass
class StepCost:
    """What agreeing cost one rank in one step."""

    wait_seconds: float = 0.0
    exchange_seconds: float = 0.0
    update_seconds: float = 0.0
    bytes_sent: float = 0.0


@dataclass(frozen=True)
class Plan:
    """Which samples a step trains on: a function of (seed, step, global batch), never of the worker count.

    `micro_batch_size` splits a worker's share of a step (0: one micro-batch).
    """

    samples: int
    global_batch_size: int
    steps: int
    seed: int = 0
    micro_batch_size: int = 0

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.samples, self.global_batch_size)

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def shares(self, step: int, rank: int, workers: int) -> list[Share]:
        """The micro-batches of `rank` in `step`. An uneven last batch is split as evenly as can be."""
        epoch = self.epoch_of(step)
        ids = global_batch(self.seed, epoch, step % self.steps_per_epoch, self.samples, self.global_batch_size)
        own = share_of(ids, rank, workers)
        size = self.micro_batch_size or max(len(own), 1)
        pieces = [own[i : i + size] for i in range(0, max(len(own), 1), size)]
        weight = np.float32(1.0 / len(ids))
        return [
            Share(step, epoch, piece, np.full(len(piece), weight, np.float32), last=i == len(pieces) - 1)
            for i, piece in enumerate(pieces)
        ]


class Sync(ABC):
    """Owns the optimiser and its state, and decides what to train on next and how replicas agree.

    One training step, as `lockstep.loop` drives it:

        next() -> Share ... backward(share, on_ready=part_ready) ... after the last micro-batch: step()
    """

    def __init__(self, plan: Plan, optimiser: OptimiserFactory) -> None:
        self.plan, self.make_optimiser = plan, optimiser
        self._position = 0  # the step whose shares are handed out next
        self._waiting: list[Share] = []

    @abstractmethod
    def attach(self, replica: Replica, group: Group) -> None:
        """Same start everywhere (rank 0's parameters), memory, optimiser. Collective."""

    def next(self) -> Share | None:
        """The next micro-batch of this rank; None when the plan has ended."""
        share = self.preview()
        if share is not None:
            self._waiting.pop(0)
        return share

    def preview(self) -> Share | None:
        """What `next` will return, as far as that is known: a hint for the loader."""
        if not self._waiting and self._position < self.plan.steps:
            self._waiting = self.plan.shares(self._position, self.group.rank, self.group.size)
            self._position += 1
        return self._waiting[0] if self._waiting else None

    def part_ready(self, part: int) -> None:  # noqa: B027 - a sync that does not overlap has nothing to do
        """Part `part` of this replica's gradient stands, for the last micro-batch of the step."""

    def give_up(self) -> bool:
        """Asked between micro-batches: shall this rank leave the rest of the step?"""
        return False

    @abstractmethod
    def step(self) -> StepCost:
        """Wait for the others, exchange, update. Collective."""

    def serve(self) -> None:  # noqa: B027 - only policies with servers serve
        """The loop of a rank without a replica."""

    @abstractmethod
    def optimiser_state(self) -> Any:
        """The optimiser's state of all ranks, on every rank. Collective."""

    @abstractmethod
    def load_optimiser_state(self, state: Any) -> None:
        """Raises ValueError if `state` was saved by another number of ranks that each hold a slice."""

    def state_dict(self) -> dict[str, Any]:
        """Optimiser state and position, the same on every rank. Collective; call it between steps."""
        step = self._position - (1 if self._waiting else 0)
        return {"step": step, "optimiser": self.optimiser_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position, self._waiting = int(state["step"]), []
        self.load_optimiser_state(state["optimiser"])

    def close(self) -> None:  # noqa: B027
        """Let go of what `attach` took."""

    replica: Replica
    group: Group
