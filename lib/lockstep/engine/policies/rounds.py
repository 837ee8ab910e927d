"""Policies that decide round by round: everybody gets work, the round closes, one update is made, the next begins.

    round begins         arrivals                      closes: enough have come, or the limit has
      |--- worker 0 ------x
      |--- worker 1 ----------x                          update of 0, 1 (and what stands in for 2)
      |--- worker 2 ------------------- ... recalled     its samples go back to the pool

A policy of this kind answers a few questions about a round: how much each worker gets, whose contributions are enough,
after which time nobody waits any longer, and with which weights. Event by event, for a server, the answers are asked one
arrival at a time; a simulation that knows when everybody will arrive asks them once per round, for all workers together.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.policies.base import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    Left,
    Needs,
    Policy,
    Setting,
    StandIn,
    Tasks,
    Use,
    Work,
)
from lockstep.engine.policies.pool import Pool

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class RoundPolicy(Policy, ABC):
    """The questions have answers here: even shares, wait for all of them, no limit, every sample weighs the same."""

    needs = Needs(round_by_round=True)
    everyone: ClassVar[bool] = False  # who gets no sample comes along all the same

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.pool, self.tasks = Pool(setting), Tasks(setting.workers)
        self.round = -1
        self._here: dict[int, Contribution] = {}  # by worker, in the order of arrival
        self._order: list[int] = []
        self._since: list[float] = []  # seconds after the round began
        self._began = 0.0
        self._gone: set[int] = set()

    # --- the questions -------------------------------------------------------------------------------------------

    def sizes(self, samples: int, present: Whole) -> Whole:
        """Samples of each of the `present` workers, int64 [present], which sum to `samples`."""
        size, larger = divmod(samples, len(present))
        return size + (np.arange(len(present)) < larger).astype(np.int64)

    def deadline_seconds(self) -> float | None:
        """After so long workers begin no further micro-batch; None: they compute all that they were given."""
        return None

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        """How many of these workers, in the order in which they arrived, are enough, where `expected` can come; None:
        not even all of them."""
        return expected if len(order) >= expected else None

    def limit_after(self) -> int | None:
        """Arrivals that must be known before `limit_seconds` can be asked, at least 1; None: there is no limit."""
        return None

    def limit_seconds(self, arrivals: Floats) -> float:
        """The round closes so many seconds after it began, given its first `limit_after` arrivals in seconds since
        then."""
        raise NotImplementedError(f"{type(self).__name__} has a limit_after and no limit_seconds")

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """The factor of each worker's mean gradient."""
        total = sum(samples)
        return [own / total if total else 0.0 for own in samples]

    def stand_ins(self, missing: Sequence[int]) -> tuple[StandIn, ...]:
        """What replaces the gradients of these workers."""
        del missing
        return ()

    def closed(self, seconds: Floats, samples: Whole) -> None:
        """A round is over. Seconds from its beginning to each worker's arrival, NaN for who did not arrive, and the
        samples that it contributed, both [workers]."""

    # --- the events ----------------------------------------------------------------------------------------------

    def begin(self, now: float) -> Decision:
        return Decision(release=self._open(now))

    def on(self, event: Event, now: float) -> Decision:
        if isinstance(event, Arrived):
            return self._arrived(event.contribution, now)
        if isinstance(event, Left):
            return self._left(event.worker, now)
        return NOTHING

    def _arrived(self, contribution: Contribution, now: float) -> Decision:
        work = self.tasks.finish(contribution)
        self.pool.give_back(work.ranges, contribution.samples)
        self._here[contribution.worker] = contribution
        self._order.append(contribution.worker)
        self._since.append(now - self._began)
        return self._close(now) if self._enough() else NOTHING

    def _left(self, worker: int, now: float) -> Decision:
        self._gone.add(worker)
        if worker not in self._working:
            return NOTHING
        self._working.discard(worker)
        if not self.tasks.is_free(worker):
            self.pool.give_back(self.tasks.recall(worker).ranges)
        return self._close(now) if self._here and self._enough() else NOTHING

    def _enough(self) -> bool:
        return self.closes_at(self._order, len(self._working)) is not None

    def wake_at(self) -> float | None:
        after = self.limit_after()
        if after is None or not 1 <= after <= len(self._since):
            return None
        return self._began + self.limit_seconds(np.array(self._since[:after]))

    def woke(self, now: float) -> Decision:
        return self._close(now)

    def _close(self, now: float) -> Decision:
        self._learn()
        here = sorted(self._here.values())  # summed in rank order, whoever came first
        late = [worker for worker in sorted(self._working) if worker not in self._here]
        weights = self.weights([one.worker for one in here], [one.samples for one in here])
        uses = tuple(Use(one.worker, one.task, weight) for one, weight in zip(here, weights, strict=True))
        for worker in late:
            self.pool.give_back(self.tasks.recall(worker).ranges)
        return Decision(apply=uses, stand_in=self.stand_ins(late), recall=tuple(late), release=self._open(now))

    def _learn(self) -> None:
        seconds, samples = np.full(self.workers, np.nan), np.zeros(self.workers, np.int64)
        for one, since in zip(self._here.values(), self._since, strict=True):
            seconds[one.worker], samples[one.worker] = since, one.samples
        self.closed(seconds, samples)

    def _open(self, now: float) -> tuple[tuple[int, Work], ...]:
        self.round += 1
        self._began, self._since, self._here, self._order = now, [], {}, []
        works = self.works()
        self._working = {worker for worker, _ in works}
        return tuple(self.tasks.give(worker, work) for worker, work in works)

    def works(self) -> list[tuple[int, Work]]:
        """What each worker does in the round that opens. Whoever would get no sample gets no work, unless
        everyone comes along."""
        present = [worker for worker in range(self.setting.training) if worker not in self._gone]
        sizes = self.sizes(self.pool.batch_size(), np.array(present)).tolist()
        deadline = self.deadline_seconds()
        return [
            (worker, Work(self.pool.take(samples), samples, self.micro_batch(samples), deadline))
            for worker, samples in zip(present, sizes, strict=True)
            if samples or self.everyone
        ]

    def micro_batch(self, samples: int) -> int:
        """Samples that a worker with so many computes at once."""
        return min(self.setting.micro_batch or samples, samples)

    def state(self) -> dict[str, Any]:
        return {"round": self.round, "pool": self.pool.state(), "tasks": self.tasks.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.round = int(state["round"])
        self.pool.load(state["pool"])
        self.tasks.load(state["tasks"])
