"""Forecasts of how long every worker's next task takes, in seconds per sample.

    observe(worker, task, seconds per sample)  ->  waiting  ->  absorbed, all that wait at once   ->  predict
                                                                  1. errors of the forecasts that stood
                                                                  2. learning

*DPro-SM* 5.3 forecasts "completion times of individual workers' assignments" from "their previous completion times and
the condition of the distributed system". A forecaster reads no clock and sends nothing, so the same object serves a
server of real ranks and a simulation.

**What makes single and vectorised observations equal, bit for bit:** an observation only waits until a forecast is
asked for or the same worker is seen again. Then all that wait are absorbed together, in the order of workers, by
one vectorised piece of code. So the order in which workers arrive between two forecasts has no influence either.

**Gaps.** A worker's tasks are numbered. Across a gap, a task that nobody saw or, of a trace, that nobody recorded
(`begins_anew`), nothing is forecast: what follows it is known from then on, but is no error of the forecaster and no
example to learn from.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.forecasts.errors import RecentErrors
from lockstep.engine.forecasts.kept import Kept
from lockstep.engine.forecasts.readings import Readings

Array = NDArray[np.float64]
NEVER = -2
"""The number of the last task of a worker that was not seen yet; no task follows it."""


def _never(task: int) -> bool:
    del task
    return False


@dataclass(frozen=True)
class Seen:
    """What is absorbed at once: some workers, one observation each, in the order of workers."""

    who: NDArray[np.intp]  # [k] workers
    tasks: NDArray[np.int64]  # [k]
    seconds: Array  # [k] per sample
    follows: NDArray[np.bool_]  # [k] whether the worker's task before this one was seen too
    readings: Array  # [k, numbers of the system's state], NaN where unknown; the names are Readings.names

    def following(self) -> Seen:
        """Those that follow a task that was seen."""
        if self.follows.all():
            return self
        return Seen(*(getattr(self, field.name)[self.follows] for field in dataclasses.fields(self)))


class Forecast(Kept, ABC):
    """Forecasts for `workers` workers. `seed` decides all that is random in it, which for most is nothing.

    A kind of forecaster implements `learn` and `centre`.
    """

    kept: ClassVar[tuple[str, ...]] = ("_task", "_waiting", "_follows", "_readings", "_errors")
    options_kind: ClassVar[type[Any]]
    """A frozen dataclass of `lockstep.engine.options.option`."""
    does: ClassVar[str]
    """What it forecasts, in a few words."""

    def __init__(self, workers: int, options: Any, seed: int) -> None:
        """Raises ValueError for workers < 1 or a negative seed."""
        for name, value, least in (("workers", workers, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least {least}")
        self.workers, self.options, self.seed = workers, options, seed
        self._task = np.full(workers, NEVER, np.int64)
        self._waiting = np.full(workers, np.nan)
        self._follows = np.zeros(workers, bool)
        self._readings = Readings(workers)
        self._errors = RecentErrors(workers)
        self.begins_anew: Callable[[int], bool] = _never  # task -> is there a gap before it?
        self._standing: Array | None = None  # what `centre` said last, until something is learned

    # What callers use ------------------------------------------------------------------------------------------------

    def observe(
        self, worker: int, task: int, seconds_per_sample: float, system: Mapping[str, float] | None = None
    ) -> None:
        """Worker `worker` has finished its task `task`; its mean was `seconds_per_sample`.

        `system`: numbers of its state as the task ended, such as load, free memory or credits. The first observation
        of all names them.

        Raises ValueError for a worker that does not exist, a task that is not above this worker's last one, seconds
        that are not a finite number above 0, and numbers of the system's state that are infinite or have a new name.
        """
        if not 0 <= worker < self.workers:
            raise ValueError(f"worker {worker} does not exist: there are {self.workers}, numbered from 0")
        if not (math.isfinite(seconds_per_sample) and seconds_per_sample > 0):
            raise ValueError(_bad_seconds(worker, task, seconds_per_sample))
        self._check_task(worker, task)
        self._readings.check(system)
        if not math.isnan(self._waiting[worker]):
            self._absorb()
        self._readings.put(worker, system)
        self._waiting[worker] = seconds_per_sample
        self._follows[worker] = task == self._task[worker] + 1 and not self.begins_anew(task)
        self._task[worker] = task

    def observe_round(
        self, seconds_per_sample: ArrayLike, task: int | NDArray[np.int64],
        system: Mapping[str, ArrayLike] | None = None,
    ) -> None:  # fmt: skip
        """A task of each worker at once: [workers] seconds per sample, NaN for a worker that was not seen.

        `task`: its number, the same for all or by worker [workers]. `system`: by name an array [workers]. All that
        follows is bit for bit as after single calls in worker order.
        Raises ValueError as `observe` does, and for a wrong number of workers.
        """
        seconds = np.array(seconds_per_sample, np.float64)
        if seconds.shape != (self.workers,):
            raise ValueError(f"a round of {self.workers} workers has that many seconds, not the shape {seconds.shape}")
        if np.shape(task) not in ((), (self.workers,)):
            raise ValueError(f"a round of {self.workers} workers has one task or that many, not {np.shape(task)}")
        seen, tasks = ~np.isnan(seconds), np.broadcast_to(task, (self.workers,))
        if (bad := np.flatnonzero(seen & ~(np.isfinite(seconds) & (seconds > 0)))).size:
            raise ValueError(_bad_seconds(int(bad[0]), int(tasks[bad[0]]), float(seconds[bad[0]])))
        if (bad := np.flatnonzero(seen & ((tasks < 0) | (tasks <= self._task)))).size:
            self._check_task(int(bad[0]), int(tasks[bad[0]]))
        readings = self._readings.checked_round(system, seen)
        # Who waits already would make a single call absorb first, with all workers before it in the round.
        again = np.flatnonzero(seen & ~np.isnan(self._waiting))
        first = int(again[0]) if again.size else self.workers
        self._put_round(np.flatnonzero(seen[:first]), seconds, tasks, readings)
        if again.size:
            self._absorb()
            self._put_round(first + np.flatnonzero(seen[first:]), seconds, tasks, readings)

    def predict(self, quantiles: Sequence[float] = (0.5,)) -> Array:
        """[workers, quantiles]: seconds per sample of each worker's next task.

        0.5 is the forecast itself. The others come from its recent errors (`RecentErrors`); they lie on their side of
        the forecast, and are the forecast itself until errors are known. A worker that was not seen gets the mean of
        the others; before anything was seen of anybody all are NaN.
        Raises ValueError for a quantile that is not between 0 and 1.
        """
        self._absorb()
        centre = self.standing().copy()
        unseen = np.isnan(centre)
        if unseen.any() and not unseen.all():
            centre[unseen] = centre[~unseen].mean()
        return centre[:, None] * self._errors.factors(quantiles)

    def idle(self, budget_seconds: float) -> None:
        """The server waits and has so many seconds of one core to spare. Most forecasters need none."""
        del budget_seconds

    def load(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned, bit for bit.

        Raises ValueError for a state of another kind of forecaster or of another number of workers.
        """
        self._standing = None
        super().load(state)

    # What a kind of forecaster implements -----------------------------------------------------------------------------

    @abstractmethod
    def learn(self, seen: Seen) -> None:
        """Takes what was seen into account."""

    @abstractmethod
    def centre(self) -> Array:
        """[workers]: seconds per sample of each worker's next task; NaN for workers that were not seen."""

    def standing(self) -> Array:
        """What `centre` says, until something is learned."""
        if self._standing is None:
            self._standing = self.centre()
        return self._standing

    def take(self, seen: Seen) -> None:
        """Learns; what stood falls."""
        self._standing = None
        self.learn(seen)

    # How it works -----------------------------------------------------------------------------------------------------

    def _check_task(self, worker: int, task: int) -> None:
        last = int(self._task[worker])
        if task < 0 or task <= last:
            said = f"its last one was {last}" if last >= 0 else "the first one is 0"
            raise ValueError(f"worker {worker} can't have finished task {task} now: {said}, and tasks only go up")

    def _put_round(self, who: NDArray[np.intp], seconds: Array, tasks: NDArray[np.int64], readings: Array) -> None:
        own = tasks[who]
        gaps = [task for task in np.unique(own).tolist() if self.begins_anew(task)]
        self._waiting[who] = seconds[who]
        self._follows[who] = (self._task[who] == own - 1) & ~np.isin(own, gaps)
        self._task[who] = own
        self._readings.put_round(who, readings)

    def _absorb(self) -> None:
        """Scores the forecasts that stood against all that waits, then learns from it."""
        who = np.flatnonzero(~np.isnan(self._waiting))
        if not who.size:
            return
        seen = Seen(who, self._task[who], self._waiting[who], self._follows[who], self._readings.take(who))
        self._waiting[who] = np.nan
        known = seen.following()
        if known.who.size:
            self._errors.add(known.who, np.log(known.seconds / self.standing()[known.who]))
        self.take(seen)


def _bad_seconds(worker: int, task: int, seconds: float) -> str:
    return (
        f"worker {worker}, task {task}: {seconds!r} seconds per sample are not possible; give a finite number above 0"
    )
