"""Forecasters that know each worker's own past alone, and the one that knows the future."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lockstep.engine.forecasts.base import Array, Forecast, Seen
from lockstep.engine.forecasts.history import RecentSeconds
from lockstep.engine.option_text import NoOptions
from lockstep.engine.options import JobError, option

Truth = Callable[[int, int], float]
"""(worker, task) -> the seconds per sample that this task will take."""


@dataclass(frozen=True)
class WindowOptions:
    """How far a forecaster looks back."""

    window: int = option(20, "the last tasks of a worker that are looked at", least=1)


@dataclass(frozen=True)
class SmoothingOptions:
    """How fast the past fades."""

    alpha: float = option(0.3, "weight of the latest task; 1 is the last value", above=0, most=1)


class LastValue(Forecast):
    """The next task takes what the last one took: FlexRR's and LB-BSP's forecast, and the one that others must beat."""

    does = "the worker's last value"
    options_kind = NoOptions
    kept: ClassVar[tuple[str, ...]] = ("_last",)

    def __init__(self, workers: int, options: NoOptions, seed: int) -> None:
        super().__init__(workers, options, seed)
        self._last = np.full(workers, np.nan)

    def learn(self, seen: Seen) -> None:
        """Keeps it."""
        self._last[seen.who] = seen.seconds

    def centre(self) -> Array:
        """The last value itself, to the bit."""
        return self._last


class _Window(Forecast):
    """A number that describes each worker's last tasks."""

    options_kind = WindowOptions
    kept: ClassVar[tuple[str, ...]] = ("_history",)

    def __init__(self, workers: int, options: WindowOptions, seed: int) -> None:
        super().__init__(workers, options, seed)
        self._history = RecentSeconds(workers, options.window)

    def learn(self, seen: Seen) -> None:
        """Keeps the window."""
        self._history.add(seen.who, seen.seconds)


class RunningMean(_Window):
    """The arithmetic mean of the worker's last `window` tasks."""

    does = "the mean of the worker's last values"

    def centre(self) -> Array:
        """Summed anew each time: a sum that is kept up to date would drift."""
        count = np.minimum(self._history.count, self.options.window)
        total = np.nansum(self._history.values, axis=1)
        return np.divide(total, count, out=np.full(self.workers, np.nan), where=count > 0)


class RunningMedian(_Window):
    """The median of the worker's last `window` tasks: the best there is against pauses that nobody can see coming."""

    does = "the median of the worker's last values"

    def centre(self) -> Array:
        """Of an even number the mean of the two in the middle."""
        return self._history.medians()


class Smoothing(Forecast):
    """Exponential smoothing: level <- level + alpha (seen - level); the first value is the first level."""

    does = "an exponentially weighted mean of the worker's values"
    options_kind = SmoothingOptions
    kept: ClassVar[tuple[str, ...]] = ("_level",)

    def __init__(self, workers: int, options: SmoothingOptions, seed: int) -> None:
        super().__init__(workers, options, seed)
        self._level = np.full(workers, np.nan)

    def learn(self, seen: Seen) -> None:
        """Moves the level."""
        before = self._level[seen.who]
        moved = before + self.options.alpha * (seen.seconds - before)
        self._level[seen.who] = np.where(np.isnan(before), seen.seconds, moved)

    def centre(self) -> Array:
        """The level."""
        return self._level


class Oracle(Forecast):
    """Knows the future, by asking `truth` for each worker's next task: the most that forecasts could give a policy."""

    does = "the truth, from the simulated delays: the bound of what forecasts can give"
    options_kind = NoOptions
    kept: ClassVar[tuple[str, ...]] = ("_next",)

    def __init__(self, workers: int, options: NoOptions, seed: int, truth: Truth | None = None) -> None:
        """Raises JobError without `truth`."""
        super().__init__(workers, options, seed)
        if truth is None:
            raise JobError(
                "the forecast 'oracle' needs truth(worker, task) -> seconds per sample, which nobody gave: "
                "take another forecaster"
            )
        self._truth = truth
        self._next = np.zeros(workers, np.int64)

    def learn(self, seen: Seen) -> None:
        """Goes on to the next task."""
        self._next[seen.who] = seen.tasks + 1

    def centre(self) -> Array:
        """Known before anything was seen."""
        return np.array([self._truth(worker, task) for worker, task in enumerate(self._next.tolist())], np.float64)

