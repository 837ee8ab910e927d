"""An update of every single contribution, as it comes.

    worker 0  |--v0--|--v1--|----v3----|         staleness 0, 0, 1 ...
    worker 1  |-----v0------|---v2---|           its first one: 1, for version 1 was made meanwhile

A "task" of MapReduce is one worker's share of a global batch. Each contribution is an update of its own, so its samples
have weight 1 / samples of the update: n workers make n updates in the time of one synchronous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    Left,
    Policy,
    Setting,
    Use,
    Work,
)
from lockstep.engine.policies.given import Tasks
from lockstep.engine.policies.pool import Pool


@dataclass(frozen=True)
class AsynchronousOptions:
    samples: int = option(0, "of a task; 0: an even share of the global batch", least=0)


class Asynchronous(Policy):
    """Dean et al. 2012, "Large scale distributed deep networks" (reference 1 of DPro-SM), Downpour SGD with an exchange
    every step; Dutta et al. 2018, "Slow and stale gradients can win the race"."""

    does = "a server makes an update of every contribution as it comes"
    label = "asynchronous"
    updates_by_one = True
    Options = AsynchronousOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.pool, self.tasks = Pool(setting), Tasks(setting.workers)
        self.version = 0

    def check_setting(self) -> None:
        wanted = self.size
        if wanted > self.setting.samples:
            raise JobError(f"samples={wanted} of a task are more than the {self.setting.samples} images; give fewer")

    @property
    def size(self) -> int:
        """Samples of a task, but for what does not divide."""
        return int(self.options.samples) or self.setting.global_batch // self.setting.training

    def size_of(self, worker: int) -> int:
        """Samples of a task of `worker`: those of its share of a full batch."""
        if self.options.samples:
            return int(self.options.samples)
        size, larger = divmod(self.setting.global_batch, self.setting.training)
        return max(size + (worker < larger), 1)

    @property
    def survives_loss(self) -> int:
        return self.setting.training - 1

    def begin(self, now: float) -> Decision:
        del now
        return Decision(release=tuple(self._give(worker) for worker in range(self.setting.training)))

    def on(self, event: Event, now: float) -> Decision:
        del now
        if isinstance(event, Arrived):
            return self._arrived(event.contribution)
        if isinstance(event, Left) and not self.tasks.is_free(event.worker):
            self.pool.give_back(self.tasks.recall(event.worker).ranges)
        return self._left(event.worker) if isinstance(event, Left) else NOTHING

    def _arrived(self, contribution: Contribution) -> Decision:
        work = self.tasks.finish(contribution)
        self.pool.give_back(work.ranges, contribution.samples)
        released = self.next_of(contribution.worker)
        if not contribution.samples:
            return Decision(drop=((contribution.worker, contribution.task),), release=released)
        weight = self.weight(self.version - contribution.version)
        self.version += 1
        return Decision(apply=(Use(contribution.worker, contribution.task, weight),), release=released)

    def weight(self, staleness: int) -> float:
        """Of a contribution's mean gradient, made `staleness` updates ago."""
        del staleness
        return 1.0

    def next_of(self, worker: int) -> tuple[tuple[int, Work], ...]:
        """Who is released now that `worker` has contributed."""
        return (self._give(worker),)

    def _left(self, worker: int) -> Decision:
        """`worker` won't come back."""
        del worker
        return NOTHING

    def _give(self, worker: int) -> tuple[int, Work]:
        samples = self.size_of(worker)
        micro_batch = min(self.setting.micro_batch or samples, samples)
        return self.tasks.give(worker, Work(self.pool.take(samples), samples, micro_batch))

    def state(self) -> dict[str, Any]:
        places = [work.ranges for work in self.tasks.under_way if work is not None]
        return {"version": self.version, "pool": self.pool.state(places), "tasks": self.tasks.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.version = int(state["version"])
        self.pool.load(state["pool"])
        self.tasks.load(state["tasks"])


class StalenessAware(Asynchronous):
    """Zhang et al. 2016, "Staleness-aware async-SGD for distributed deep learning": a gradient that is tau updates old
    counts 1 / tau. Here 1 / (tau + 1), so that fresh ones count whole."""

    does = "as asynchronous, but a contribution counts the less the staler it is"
    label = "asynchronous, staleness-aware"

    def weight(self, staleness: int) -> float:
        return 1 / (staleness + 1)


@dataclass(frozen=True)
class SspOptions(AsynchronousOptions):
    bound: int = option(3, "tasks that a worker may be ahead of the slowest one", least=0)


class Ssp(Asynchronous):
    """Stale synchronous parallel. Cipar et al. 2013, "Solving the straggler problem with bounded staleness" (reference
    25 of DPro-SM); Ho et al. 2013: a worker's clock counts its tasks. It begins task c only when every worker has done
    its task c - bound - 1, and that is in the parameters. With bound 0 nobody begins a task before all have done the
    last."""

    does = "as asynchronous, but no worker is more than some tasks ahead of the slowest"
    label = "stale synchronous parallel"
    Options = SspOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._clock = dict.fromkeys(range(setting.training), 0)  # tasks done, of those who have not left
        self._blocked: set[int] = set()

    @property
    def survives_loss(self) -> int:
        """Nobody overtakes a worker that never comes by more than the bound."""
        return 0

    def begin(self, now: float) -> Decision:
        del now
        self._blocked = set(self._clock)
        return Decision(release=self._unblocked())

    def next_of(self, worker: int) -> tuple[tuple[int, Work], ...]:
        self._clock[worker] += 1
        self._blocked.add(worker)
        return self._unblocked()

    def _unblocked(self) -> tuple[tuple[int, Work], ...]:
        most = min(self._clock.values()) + self.options.bound if self._clock else 0
        free = sorted(worker for worker in self._blocked if self._clock[worker] <= most)
        self._blocked.difference_update(free)
        return tuple(self._give(worker) for worker in free)

    def _left(self, worker: int) -> Decision:
        self._clock.pop(worker, None)
        self._blocked.discard(worker)
        return Decision(release=self._unblocked())

    def state(self) -> dict[str, Any]:
        return super().state() | {"clock": [[worker, clock] for worker, clock in self._clock.items()]}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._clock = {int(worker): int(clock) for worker, clock in state["clock"]}
