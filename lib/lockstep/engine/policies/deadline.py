"""Our own policy: a deadline travels with the parameters, and nothing that was computed is thrown away.

    update          0                     1                     2
    worker 0  |-mb-|-mb-|-mb-|   |-mb-|-mb-|-mb-|   |-mb-|       stops before a micro-batch that would end too late
    worker 1  |--mb--|--mb--|    |--mb--|--mb--|    |--mb--|
    worker 2  |-mb-|~~~~~~~~~~~~~~delay~~~~~~|-mb-|              late: joins update 2, with its samples' weight
                             ^ deadline          ^

The deadline is the one for which forecast progress per second is largest. With b samples by the deadline, of a noise
scale of B samples (`noise_scale`), an update makes b / (b + B) of the progress of one with all samples. Staleness is
bounded: whoever would be too stale for the next update is recalled, and its samples go back to the pool.

Between two known ends: with `deadline=infinite` it is wait_for_all, with `deadline=none`, where every micro-batch is an
update of its own and staleness has no bound, it is asynchronous; `replayed_deadline` chooses where between. A "task" of
MapReduce is the micro-batches of one worker from one parameters on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lockstep.engine.policies.base import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    Left,
    Needs,
    Policy,
    Ranges,
    Setting,
    Updated,
    Use,
    Work,
)
from lockstep.engine.policies.deadlines import (
    SLACK,
    DeadlineClock,
    DeadlineOptions,
    ShortestMicroBatch,
    best_deadline,
    parse_deadline,
)
from lockstep.engine.policies.forecasting import forecaster
from lockstep.engine.policies.given import Tasks
from lockstep.engine.policies.noise_scale import NoiseScale
from lockstep.engine.policies.places import cut_ranges
from lockstep.engine.policies.pool import Pool
from lockstep.engine.policies.rounds import even

ROUNDING = 1 - 1e-6
"""So that micro-batches that fill a deadline exactly do so whatever the last bits of their sum are."""


class Deadline(Policy):
    """See the module. Until a deadline is chosen, in the first update, it waits for all, at most twice the median."""

    does = "workers compute until a deadline that makes the most progress per second; late work joins the next update"
    label = "deadline"
    Options = DeadlineOptions
    needs = Needs(partial=True, recall=True, square_norm=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.pool, self.tasks = Pool(setting), Tasks(setting.workers)
        self.forecast = forecaster(self.options.forecast, setting)
        self.noise = NoiseScale(self.options.noise, setting.global_batch)
        self.clock, self._shortest = DeadlineClock(), ShortestMicroBatch()
        self.version = 0
        self.deadline = parse_deadline(self.options.deadline)  # of this round; None: none yet
        self._told = self.deadline  # by the options
        self._chosen = self.deadline is None  # anew in every update
        self._here: dict[tuple[int, int], tuple[Contribution, Ranges]] = {}  # by worker and task, with its places
        self._free = set(range(setting.training))
        self._waited: set[int] = set()  # who is expected in this round
        self._since: dict[int, tuple[int, float]] = {}  # of those under way, version and time of release
        self._micro_seconds = np.full((setting.workers, 2), np.nan)  # of a micro-batch: forecast, and its quantile

    @property
    def micro_batch(self) -> int:
        """Samples of one; a whole share where the setting has none."""
        setting = self.setting
        return setting.micro_batch or max(setting.global_batch // setting.training, 1)

    @property
    def survives_loss(self) -> int:
        """Before the first update, which needs more than half of the workers, fewer than half."""
        if self.deadline == math.inf:
            return 0
        return (self.setting.training - 1) // (2 if self.deadline is None else 1)

    @property
    def patience(self) -> float | None:
        """Nobody is waited for longer than so many times the median; None: until the deadline."""
        return 2.0 if self.deadline is None else None

    def heard(self, worker: int, task: int, seconds: float, system: Any = None) -> None:
        """A task took so long per sample, or at least so long."""
        self.forecast.observe(worker, task, seconds, system)

    def choose(self, now: float, samples: int) -> None:
        """An update of so many samples is about to be made: a policy may have another deadline for the next ones."""

    # --- the events ----------------------------------------------------------------------------------------------

    def begin(self, now: float) -> Decision:
        return Decision(release=self._open(now))

    def on(self, event: Event, now: float) -> Decision:
        if isinstance(event, Arrived):
            return self._arrived(event.contribution, now)
        if isinstance(event, Updated):
            self.noise.updated(event.samples, event.square_norm)
        return self._left(event.worker, now) if isinstance(event, Left) else NOTHING

    def _arrived(self, one: Contribution, now: float) -> Decision:
        work = self.tasks.finish(one)
        self.pool.give_back(work.ranges, one.samples)
        _, released = self._since.pop(one.worker)
        self._free.add(one.worker)
        self._waited.discard(one.worker)
        if not one.samples:
            return self._again(one, now)
        self._here[one.worker, one.task] = (one, cut_ranges(work.ranges, 0, one.samples))
        if one.ended > one.began:
            self.clock.arrived(now - released - (one.ended - one.began))
        if not self._waited or self.clock.is_over(now):  # all who are expected are here, or it is too late to wait
            return self._close(now)
        if self.patience is not None:
            self.clock.limit_by_median(now, len(self._here), self.setting.training, self.patience)
            return NOTHING
        return self._more(one, now)

    def _more(self, one: Contribution, now: float) -> Decision:
        """Work for the rest of the round, if a micro-batch fits in, were it as long as the last ones were."""
        left = self.clock.left_seconds(now)
        if self.deadline == math.inf or left <= 0:
            return NOTHING
        seconds = np.fmax(self._micro_seconds[one.worker], (one.ended - one.began) / one.samples * self.micro_batch)
        if seconds[1] > left:
            return NOTHING
        self._micro_seconds[one.worker] = seconds
        self._waited.add(one.worker)
        self._free.discard(one.worker)
        return Decision(release=(self._give(one.worker, now, left),))

    def _again(self, one: Contribution, now: float) -> Decision:
        """It has computed nothing: one micro-batch, for this update or the next."""
        self._free.discard(one.worker)
        self._waited.add(one.worker)
        return Decision(drop=((one.worker, one.task),), release=(self._give(one.worker, now, None),))

    def _left(self, worker: int, now: float) -> Decision:
        self._free.discard(worker)
        self._waited.discard(worker)
        if worker in self._since:
            del self._since[worker]
            self.pool.give_back(self.tasks.recall(worker).ranges)
        return self._close(now) if self._here and not self._waited else NOTHING

    def wake_at(self) -> float | None:
        return self.clock.limit if self._here else None

    def woke(self, now: float) -> Decision:
        return self._close(now) if self._here else NOTHING

    # --- a round -------------------------------------------------------------------------------------------------

    def _close(self, now: float) -> Decision:
        arrived = [one for one, _ in self._here.values()]
        for one in arrived:  # not before: a checkpoint gives out anew what waits for an update
            if one.ended > one.began:
                self.heard(one.worker, one.task, (one.ended - one.began) / one.samples, one.system)
        here = sorted(arrived)
        total = sum(one.samples for one in here)
        uses = tuple(Use(one.worker, one.task, one.samples / total) for one in here)
        self.noise.contributions([one.samples for one in here], [one.square_norm for one in here])
        if self._told:
            seen = [(one.worker, one.samples, one.ended - one.began) for one in here]
            self._shortest.seen(seen, self.micro_batch, self._told)
        self.version += 1
        self.clock.closed(now, self.deadline)
        self._here = {}
        self.choose(now, total)
        recalled = () if self.deadline == 0 else self._recall_stale(now)
        return Decision(apply=uses, recall=recalled, release=self._open(now))

    def _recall_stale(self, now: float) -> tuple[int, ...]:
        """Those who would be too stale for the next update. They took at least as long as this for what was planned."""
        oldest = self.version - (0 if self.deadline == math.inf else self.options.bound)
        stale = tuple(sorted(worker for worker, (version, _) in self._since.items() if version < oldest))
        predicted = self._predicted()[:, 0] if stale else np.empty(0)
        for worker in stale:
            _, released = self._since.pop(worker)
            work = self.tasks.recall(worker)
            self.pool.give_back(work.ranges)
            planned = self.planned(worker, work.deadline_seconds, work.samples)
            longer = np.fmax((now - released) / planned, predicted[worker])
            self.heard(worker, self.tasks.given[worker] - 1, float(longer))
        self._free.update(stale)
        return stale

    def _open(self, now: float) -> tuple[tuple[int, Work], ...]:
        if self.deadline is None or 0 < self.deadline < math.inf:
            self._micro_seconds = self.micro_batch * self._predicted()
        if self._chosen and np.isfinite(self._micro_seconds).all():
            self.deadline = self._best()
        finite = self.deadline is not None and 0 < self.deadline < math.inf
        self.clock.opened(now, self.deadline if finite else None)
        free, self._free = sorted(self._free), set()
        if not finite and self.deadline != 0:
            released = self._give_even(free, now)
        else:
            released = tuple(self._give(worker, now, self.deadline or None) for worker in free)
        self._waited = self._expected([worker for worker, _ in released])
        return released

    def _expected(self, released: list[int]) -> set[int]:
        """Who is waited for: those whose first micro-batch ends in time, or, if there are none, all who compute.

        The deadline is the forecast end of some micro-batch: without slack half of equal workers would be late."""
        if self.deadline == 0:
            return set()
        late = self._micro_seconds[:, 0] > (math.inf if self.deadline is None else self.deadline * (1 + SLACK))
        return {worker for worker in released if not late[worker]} or set(self._since)

    def _best(self) -> float:
        micro, most = self._micro_seconds[: self.setting.training, 0], self.options.most * self.setting.global_batch
        overhead, bound = self.clock.overhead_seconds, self.options.bound
        return best_deadline(micro, self.micro_batch, self.noise.assumed, overhead, bound, most)

    def _predicted(self) -> Any:
        """Seconds per sample, [workers, 2]: the forecast, and its quantile."""
        return np.asarray(self.forecast.predict((0.5, self.options.quantile)))

    def _give_even(self, workers: list[int], now: float) -> tuple[tuple[int, Work], ...]:
        """The shares of wait_for_all."""
        sizes = even(self.pool.batch_size(), len(workers)).tolist() if workers else []
        self._free.update(worker for worker, size in zip(workers, sizes, strict=True) if not size)
        micro = self.setting.micro_batch
        return tuple(
            self._release(worker, Work(self.pool.take(size), size, min(micro or size, size)), now)
            for worker, size in zip(workers, sizes, strict=True)
            if size
        )

    def _give(self, worker: int, now: float, seconds: float | None) -> tuple[int, Work]:
        """As many micro-batches as may be done in `seconds`; one where there is no deadline."""
        micro, each = self.micro_batch, float(self._micro_seconds[worker, 1])
        if seconds is None:
            return self._release(worker, Work(self.pool.take(micro), micro, micro), now)
        if math.isfinite(each):
            samples = micro * (int(1.5 * seconds / each) + 1)
        else:
            samples = micro * max(int(self.options.most * self.setting.global_batch / self.setting.training / micro), 1)
            each = 0.0
        return self._release(worker, Work(self.pool.take(samples), samples, micro, seconds, ROUNDING * each), now)

    def _release(self, worker: int, work: Work, now: float) -> tuple[int, Work]:
        self._since[worker] = (self.version, now)
        return self.tasks.give(worker, work)

    def planned(self, worker: int, seconds: float | None, samples: int) -> int:
        """Samples that a worker was expected to contribute."""
        each = self._micro_seconds[worker, 0]
        if seconds is None or not each > 0:
            return samples
        return min(self.micro_batch * max(int(seconds / each), 1), samples)

    # --- the record ----------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, float]:
        known = {"deadline_seconds": self.deadline, "noise_scale_samples": self.noise.samples}
        return {name: value for name, value in known.items() if value is not None}

    def state(self) -> dict[str, Any]:
        """Whoever computes, or waits with a contribution, starts anew."""
        places = [work.ranges for work in self.tasks.under_way if work is not None]
        places += [ranges for _, ranges in self._here.values()]
        return {
            "version": self.version,
            "deadline": self.deadline,
            "pool": self.pool.state(places),
            "tasks": self.tasks.state([worker for worker, _ in self._here]),
            "forecast": self.forecast.state(),
            "noise": self.noise.state(),
            "clock": self.clock.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.version, self.deadline = int(state["version"]), state["deadline"]
        self.pool.load(state["pool"])
        self.tasks.load(state["tasks"])
        self.forecast.load(state["forecast"])
        self.noise.load(state["noise"])
        self.clock.load(state["clock"])
