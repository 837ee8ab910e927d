"""Quantiles of a forecast from its own recent errors, without an assumption on how these are distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.forecasts.kept import Kept

Array = NDArray[np.float64]
KEPT_ERRORS = 32
"""Errors per worker that are remembered."""
POOL_WEIGHT = 16
"""The quantile of all workers counts as much as that of so many errors of the worker's own."""
POOLED_WORKERS = 128
"""The quantile of all is taken over at most so many workers, evenly spread, which bounds its cost."""


class RecentErrors(Kept):
    """The last log(seen / forecast) of each worker, [workers, KEPT_ERRORS], and quantiles of them.

    A worker's quantile is w Q(own) + (1 - w) Q(all workers), w = n / (n + POOL_WEIGHT) with its n remembered errors.
    Q places the i-th smallest of n at i / (n + 1), so that a new error of the same distribution lies below Q(q) with
    probability q, and not with less at the ends as it does for the sample's own quantile.
    """

    kept: ClassVar[tuple[str, ...]] = ("_ring", "_count")

    def __init__(self, workers: int) -> None:
        self._ring = np.full((workers, KEPT_ERRORS), np.nan)
        self._count = np.zeros(workers, np.int64)
        self._sorted: tuple[Array, Array] | None = None

    def load(self, state: Mapping[str, Any]) -> None:
        """As `Kept.load`."""
        self._sorted = None
        super().load(state)

    def add(self, who: NDArray[np.intp], log_errors: Array) -> None:
        """One error each of the workers `who`; errors that are not finite are left out."""
        fine = np.isfinite(log_errors)
        who, log_errors = who[fine], log_errors[fine]
        self._ring[who, self._count[who] % KEPT_ERRORS] = log_errors
        self._count[who] += 1
        self._sorted = None

    def factors(self, quantiles: Sequence[float]) -> Array:
        """[workers, quantiles]: what the forecast is multiplied by. 1 for 0.5 and where no errors are known.

        Raises ValueError for a quantile that is not between 0 and 1.
        """
        wanted = np.asarray(quantiles, np.float64)
        if wanted.ndim != 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(f"quantiles={quantiles!r} are not possible; give numbers above 0 and below 1")
        result = np.ones((len(self._count), len(wanted)))
        if not self._count.any():
            return result
        for column, quantile in enumerate(wanted):
            if quantile != 0.5:
                log = self._quantile(float(quantile))
                result[:, column] = np.exp(np.minimum(log, 0) if quantile < 0.5 else np.maximum(log, 0))
        return result

    def _quantile(self, quantile: float) -> Array:
        if self._sorted is None:
            # NaN, of which rings that are not full have some, come last.
            some = self._ring[:: -(-len(self._ring) // POOLED_WORKERS)].ravel()
            self._sorted = np.sort(self._ring, axis=1), np.sort(some[~np.isnan(some)])
        own, pool = self._sorted
        counts = np.minimum(self._count, KEPT_ERRORS)
        of_all = _placed(pool[None, :], np.array([len(pool)]), quantile)[0] if len(pool) else 0.0
        weight = counts / (counts + POOL_WEIGHT)
        return np.where(counts > 0, weight * _placed(own, counts, quantile) + (1 - weight) * of_all, of_all)


def _placed(ordered: Array, counts: NDArray[np.int64], quantile: float) -> Array:
    """[rows]: the value at quantile (count + 1) of each row, counted from 1, between its neighbours linearly.

    NaN for an empty row.
    """
    place = np.clip(quantile * (counts + 1) - 1, 0, np.maximum(counts - 1, 0))
    below = place.astype(np.intp)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    rows = np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, above]
    return low + (place - below) * (high - low)
