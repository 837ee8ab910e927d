"""Policies that decide round by round: everybody gets work, the round closes, one update is made, the next begins.

    round begins         arrivals                      closes: enough have come, or the limit has
      |--- worker 0 ------x
      |--- worker 1 ----------x                          update of 0, 1 (and what stands in for 2)
      |--- worker 2 ------------------- ... recalled     its samples go back to the pool

A policy of this kind answers a few questions about a round: how much each worker gets, whose contributions are enough,
after which time nobody waits any longer, and with which weights. Event by event, for a server, the answers are asked
one arrival at a time; a simulation that knows when everybody will arrive asks them once per round, for all workers
together.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.policies.base import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    GradientStandIn,
    Left,
    Policy,
    Ranges,
    Setting,
    Use,
    Work,
)
from lockstep.engine.policies.given import Tasks
from lockstep.engine.policies.pool import Pool

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class Closed(NamedTuple):
    """A round that is over. Arrays are [workers]."""

    arrivals: Floats  # seconds from the beginning of the round; NaN for who did not arrive
    seconds: Floats  # from the beginning to the end of the worker's task, on its own clock; NaN likewise
    samples: Whole  # that it contributed
    given: Whole  # that it had been given; 0: no work
    tasks: Whole  # the number of its latest task
    lasted: float  # seconds of the round, on the server's clock
    losses: Floats | None = None  # None where nobody computes gradients
    system: Mapping[str, Floats] | None = None  # numbers of the workers' state, NaN where unknown


class RoundPolicy(Policy, ABC):
    """The questions have answers here: even shares, wait for all of them, no limit, every sample weighs the same."""

    everyone: ClassVar[bool] = False  # who gets no sample comes along all the same

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.pool, self.tasks = Pool(setting), Tasks(setting.workers)
        self.round = -1
        self._here: dict[int, Contribution] = {}  # by worker, in the order of arrival
        self._order: list[int] = []
        self._since: list[float] = []  # seconds after the round began
        self._began = 0.0
        self._limit: float | None = None  # when the round closes, on the clock
        self._given: dict[int, Work] = {}  # the works of this round
        self._gone: set[int] = set()
        self._missed = np.zeros(setting.workers, np.bool_)  # who did not come when it was last given work

    # --- the questions -------------------------------------------------------------------------------------------

    @property
    def eligible(self) -> int:
        """The first so many workers may be given work."""
        return self.setting.training

    @property
    def alive(self) -> int:
        """Workers that train and have not left."""
        return self.setting.training - sum(worker < self.setting.training for worker in self._gone)

    def sizes(self, samples: int, present: Whole) -> Whole:
        """Samples of each of the `present` workers, int64 [present], which sum to `samples`; 0: none this time.
        A policy whose workers stop before they have done all of it may give out more. Where a short batch has fewer
        samples than workers, those get one who came last time: the others may never come."""
        if samples >= len(present):
            return even(samples, len(present))
        sizes = np.zeros(len(present), np.int64)
        sizes[np.argsort(self._missed[present], kind="stable")[:samples]] = 1
        return sizes

    def deadline_seconds(self) -> float | None:
        """After so long workers begin no further micro-batch; None: they compute all that they were given."""
        return None

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        """How many of these workers, in the order in which they arrived, are enough, where `expected` can come; None:
        not even all of them."""
        return expected if len(order) >= expected else None

    def enough_of(self, k: int, expected: int) -> int:
        """How many of `expected` workers are enough where k of all are: in a short batch, which has no sample for some,
        as many may be missing as ever."""
        return min(k, expected) if expected >= self.alive else max(1, expected - max(self.alive - k, 0))

    def limit_after(self, expected: int) -> int | None:
        """Arrivals of `expected` workers that must be known before `limit_seconds` can be asked, at least 1; None: no
        limit."""
        del expected
        return None

    def limit_seconds(self, arrivals: Floats, expected: int) -> float:
        """The round closes so many seconds after it began, given the first `limit_after` arrivals of `expected` workers
        in seconds since then."""
        raise TypeError(f"{type(self).__name__} has a limit_after, so its file must define limit_seconds, too")

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """The factor of each worker's mean gradient."""
        total = sum(samples)
        return [own / total if total else 0.0 for own in samples]

    def stand_ins(self, missing: Sequence[int]) -> tuple[GradientStandIn, ...]:
        """What replaces the gradients of these workers, which were given work and are not here."""
        del missing
        return ()

    def closed(self, over: Closed) -> None:
        """A round is over; the next one has not begun. Raises JobError for what only shows while workers train."""

    def note_missing(self, workers: Whole, missing: NDArray[np.bool_]) -> None:
        """Whether each of these workers, which were given work in the round that is over, has not come."""
        self._missed[workers] = missing

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
        self.unused(work, contribution.samples)
        self._here[contribution.worker] = contribution
        self._order.append(contribution.worker)
        self._since.append(now - self._began)
        return self._close(now) if self._enough() else self._wait()

    def _wait(self) -> Decision:
        expected = len(self._working)
        after = self.limit_after(expected) if self._limit is None else None
        if after is not None and 1 <= after <= len(self._since):
            self._limit = self._began + self.limit_seconds(np.array(self._since[:after]), expected)
        return NOTHING

    def _left(self, worker: int, now: float) -> Decision:
        self._gone.add(worker)
        if worker not in self._working or worker in self._here:
            return NOTHING  # what it has contributed counts
        self._working.discard(worker)
        if not self.tasks.is_free(worker):
            self.unused(self.tasks.recall(worker), 0)
        if not self._working:
            return NOTHING  # nobody is left
        if self._here and self._enough():
            return self._close(now)
        return self._wait() if self._here else NOTHING

    def _enough(self) -> bool:
        return self.closes_at(self._order, len(self._working)) is not None

    def wake_at(self) -> float | None:
        return self._limit

    def woke(self, now: float) -> Decision:
        return self._close(now)

    def unused(self, work: Work, samples: int) -> None:
        """Of `work` only the first `samples` were computed for the update."""
        self.pool.give_back(work.ranges, samples)

    def _close(self, now: float) -> Decision:
        here = sorted(self._here.values())  # summed in rank order, whoever came first
        late = [worker for worker in sorted(self._working) if worker not in self._here]
        weights = self.weights([one.worker for one in here], [one.samples for one in here])
        uses = tuple(Use(one.worker, one.task, weight) for one, weight in zip(here, weights, strict=True))
        stand_ins = self.stand_ins(late)
        for worker in late:
            self.unused(self.tasks.recall(worker), 0)
        given = np.array([worker for worker, work in self._given.items() if work.samples], np.int64)
        self.note_missing(given, np.array([worker not in self._here for worker in given.tolist()], np.bool_))
        self.closed(self._over(now))
        return Decision(apply=uses, stand_in=stand_ins, recall=tuple(late), release=self._open(now))

    def _over(self, now: float) -> Closed:
        arrivals, seconds, losses = np.full((3, self.workers), np.nan)
        samples, given = np.zeros((2, self.workers), np.int64)
        for one, since in zip(self._here.values(), self._since, strict=True):
            arrivals[one.worker], seconds[one.worker] = since, one.ended - one.began
            samples[one.worker], losses[one.worker] = one.samples, one.loss
        for worker, work in self._given.items():
            given[worker] = work.samples
        tasks = np.array(self.tasks.given) - 1
        system = _system(self._here.values(), self.workers)
        computed = None if np.isnan(losses).all() else losses
        return Closed(arrivals, seconds, samples, given, tasks, now - self._began, computed, system)

    def _open(self, now: float) -> tuple[tuple[int, Work], ...]:
        self.round += 1
        self._began, self._since, self._here, self._order, self._limit = now, [], {}, [], None
        self._given = dict(self.works())
        self._working = set(self._given)
        return tuple(self.tasks.give(worker, work) for worker, work in self._given.items())

    def works(self) -> list[tuple[int, Work]]:
        """What each worker does in the round that opens. Whoever would get no sample gets no work, unless
        everyone comes along."""
        present = [worker for worker in range(self.eligible) if worker not in self._gone]
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
        """The round under way is given out anew."""
        started = 1 if self._given else 0
        places = self.places() if started else []
        tasks, missed = self.tasks.state(list(self._here)), self._missed.tolist()
        return {"round": self.round - started, "pool": self.pool.state(places), "tasks": tasks, "missed": missed}

    def places(self) -> list[Ranges]:
        """Of the round under way."""
        return [work.ranges for work in self._given.values()]

    def load(self, state: dict[str, Any]) -> None:
        self.round = int(state["round"])
        self.pool.load(state["pool"])
        self.tasks.load(state["tasks"])
        self._missed = np.array(state["missed"], np.bool_)


def even(samples: int, workers: int) -> Whole:
    """Shares whose sizes differ by at most one, larger ones first: int64 [workers]."""
    size, larger = divmod(samples, workers)
    return size + (np.arange(workers) < larger).astype(np.int64)


def _system(here: Collection[Contribution], workers: int) -> dict[str, Floats] | None:
    names = {name for one in here for name in one.system or ()}
    if not names:
        return None
    found = {name: np.full(workers, np.nan) for name in sorted(names)}
    for one in here:
        for name, value in (one.system or {}).items():
            found[name][one.worker] = value
    return found
