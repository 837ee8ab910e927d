"""The state of the system as numbers of comparable size, whatever their units."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.forecasts.kept import Kept

Array = NDArray[np.float64]
FEATURES_PER_NUMBER = 3
"""Of each number of the system's state."""
SHARP = 10
"""The third feature tells how near 0 a number is so many times as sharply as the second."""


class SystemFeatures(Kept):
    """Makes three features of each number v, from what all workers have shown of it so far:

    - (v - mean) / standard deviation;
    - exp(-|v| / usual change) and exp(-10 |v| / usual change), with the mean absolute change from task to task: 1 where
      nothing is left. Credits or free memory that run out change nothing until they are gone, so a forecast must know
      how many tasks off that is, and a linear one can't tell it from v itself.

    A number that is unknown has features 0.
    """

    kept: ClassVar[tuple[str, ...]] = ("_count", "_mean", "_squares", "_last", "_changes", "_change")

    def __init__(self, workers: int, numbers: int) -> None:
        self._count, self._mean, self._squares = (np.zeros(numbers) for _ in range(3))
        self._last = np.full((workers, numbers), np.nan)
        self._changes, self._change = np.zeros(numbers), np.zeros(numbers)  # how many there were, and their sum

    def take(self, who: NDArray[np.intp], values: Array) -> Array:
        """[k, 3 numbers]: what `values`, [k, numbers] of the workers `who`, amount to, themselves included."""
        if not values.shape[1]:
            return values
        self._count_in(values)
        change = np.abs(values - self._last[who])
        self._changes += np.isfinite(change).sum(axis=0)
        self._change += np.nansum(change, axis=0)
        self._last[who] = np.where(np.isnan(values), self._last[who], values)
        spread = np.sqrt(self._squares / np.maximum(self._count, 1))
        step = self._change / np.maximum(self._changes, 1)
        tasks_left = np.abs(values) / np.where(step > 0, step, 1)
        scores = (values - self._mean) / np.where(spread > 0, spread, 1)
        features = np.concatenate([scores, np.exp(-tasks_left), np.exp(-SHARP * tasks_left)], axis=1)
        return np.nan_to_num(features, nan=0.0)

    def _count_in(self, values: Array) -> None:
        """Chan's update of mean and sum of squared deviations by a group of values."""
        known = ~np.isnan(values)
        new = known.sum(axis=0)
        total = self._count + new
        mean = np.where(known, values, 0).sum(axis=0) / np.maximum(new, 1)
        off = np.where(known, values - mean, 0)
        apart = np.where(new > 0, mean - self._mean, 0)
        self._squares += (off * off).sum(axis=0) + apart * apart * self._count * new / np.maximum(total, 1)
        self._mean += apart * new / np.maximum(total, 1)
        self._count = total.astype(np.float64)
