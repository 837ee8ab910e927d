"""The last observations of every worker."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.forecasts.kept import Kept

Array = NDArray[np.float64]


class RecentSeconds(Kept):
    """A ring of the last `length` values of each worker; [workers, length], NaN where there were not as many."""

    kept: ClassVar[tuple[str, ...]] = ("values", "count")

    def __init__(self, workers: int, length: int) -> None:
        self.length = length
        self.values = np.full((workers, length), np.nan)
        self.count = np.zeros(workers, np.int64)

    def add(self, who: NDArray[np.intp], values: Array) -> None:
        """One value each of the workers `who`."""
        self.values[who, self.count[who] % self.length] = values
        self.count[who] += 1

    def latest(self, who: NDArray[np.intp], length: int) -> Array:
        """[k, length]: the last values of the workers `who`, the latest first; the oldest one stands for those before.

        NaN for workers without any.
        """
        count = self.count[who, None]
        back = np.minimum(np.arange(length), np.maximum(np.minimum(count, self.length) - 1, 0))
        return self.values[who[:, None], (count - 1 - back) % self.length]

    def restart(self, who: NDArray[np.intp]) -> None:
        """The workers `who` begin anew."""
        self.values[who] = np.nan
        self.count[who] = 0

    def medians(self) -> Array:
        """[workers]: of the values that are there, of an even number the mean of the two in the middle; NaN of none."""
        count = np.minimum(self.count, self.length)
        ordered, rows = np.sort(self.values, axis=1), np.arange(len(count))  # NaN come last
        return (ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, count // 2]) / 2
