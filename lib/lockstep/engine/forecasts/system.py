"""The state of the system as numbers of comparable size, whatever their units."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.forecasts.kept import Kept

Array = NDArray[np.float64]
FEATURES_PER_NUMBER = 3
"""Of each number of the system's state."""


class SystemFeatures(Kept):
    """Makes three features of each number v, from what all workers have shown of it so far:

    - (v - mean) / standard deviation;
    - exp(-(v - lowest) / usual change) and exp(-(highest - v) / usual change), with the mean absolute change from task
      to task: 1 at the end of the range, 1/e where it is one usual step away. Credits that run out change nothing until
      they are gone, so a forecast needs to know how many steps off that is.

    A number that is unknown has features 0.
    """

    kept: ClassVar[tuple[str, ...]] = (
        "_count", "_mean", "_squares", "_lowest", "_highest", "_last", "_changes", "_change"
    )  # fmt: skip

    def __init__(self, workers: int, numbers: int) -> None:
        self._count, self._mean, self._squares = (np.zeros(numbers) for _ in range(3))
        self._lowest, self._highest = np.full(numbers, np.inf), np.full(numbers, -np.inf)
        self._last = np.full((workers, numbers), np.nan)
        self._changes, self._change = np.zeros(numbers), np.zeros(numbers)

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
        features = np.concatenate(
            [
                (values - self._mean) / np.where(spread > 0, spread, 1),
                np.exp(-(values - self._lowest) / np.where(step > 0, step, 1)),
                np.exp(-(self._highest - values) / np.where(step > 0, step, 1)),
            ],
            axis=1,
        )
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
        self._lowest = np.minimum(self._lowest, np.where(known, values, np.inf).min(axis=0))
        self._highest = np.maximum(self._highest, np.where(known, values, -np.inf).max(axis=0))
