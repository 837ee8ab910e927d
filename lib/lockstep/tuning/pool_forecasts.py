"""Forecasts for replays: a pool's curves come back thousands of times, and a network is asked once about each.

    once for a pool    raw forecast and its scale from every prefix of every curve     [settings, epochs]
    once per growth    offset and factor of the finished curves' misses                [epochs]
    once per decision  a row and a column of these, and no network

The numbers are those of the forecaster itself, to rounding. A forecaster whose raw forecasts change with what it is
fitted on (`learns`) can't be served so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lockstep.tuning.asking import Forecasts
from lockstep.tuning.forecasting import CurveForecast, Forecaster
from lockstep.tuning.forecasting.recalibration import in_units
from lockstep.tuning.pool import CurvePool

Array = NDArray[np.float64]


class _Tables(Protocol):
    def tables(self, units: Array) -> tuple[Array, Array]: ...


def for_pool(forecaster: Forecasts, pool: CurvePool) -> Forecasts:
    """The same forecasts of the pool's curves without computing one twice; `forecaster` itself where it can't be."""
    if isinstance(forecaster, Forecaster) and not forecaster.learns:
        return PoolForecasts(forecaster, pool)
    return forecaster


class PoolForecasts:
    """A `Forecaster` of the curves of one pool, from their prefixes to the last epoch of the pool. Raises LookupError
    for curves that are not the pool's, and for another horizon."""

    def __init__(self, forecaster: Forecaster, pool: CurvePool) -> None:
        self._epochs = pool.epochs
        self._recalibration: _Tables = forecaster.recalibration
        self._raw: dict[bytes, tuple[float, float]] = {}
        self._units: dict[bytes, Array] = {}
        lengths = np.where(np.isnan(pool.values).any(axis=1), np.isnan(pool.values).argmax(axis=1), pool.epochs)
        for length in set(lengths[lengths > 0].tolist()):
            curves = np.ascontiguousarray(pool.values[lengths == length, :length])
            self._keep(curves, *forecaster.raw(curves, pool.epochs))
        self._offset, self._factor = [0.0] * pool.epochs, [1.0] * pool.epochs

    def _keep(self, curves: Array, middle: Array, scale: Array) -> None:
        units = in_units(curves, middle, scale) if curves.shape[1] == self._epochs else None
        for row, curve in enumerate(curves):
            for epochs in range(1, len(curve) + 1):
                self._raw[curve[:epochs].tobytes()] = float(middle[row, epochs - 1]), float(scale[row, epochs - 1])
            if units is not None:
                self._units[curve.tobytes()] = units[row]

    def fit(self, sequences: Sequence[Array], seed: int) -> None:
        """Offset and spread from finished curves of the pool, [epochs] each. Nothing depends on the seed."""
        units = [self._units[curve.tobytes()] for curve in sequences]
        stacked = np.stack(units) if units else np.empty((0, self._epochs))
        self._offset, self._factor = (part.tolist() for part in self._recalibration.tables(stacked))

    def predict(self, prefix: Array, horizon: int) -> CurveForecast:
        """The score at the pool's last epoch, from the first epochs of one of its curves."""
        epochs = len(prefix)
        if epochs + horizon != self._epochs:
            raise LookupError(f"a forecast of epoch {epochs + horizon}: those of the pool are of epoch {self._epochs}")
        middle, scale = self._raw[prefix.tobytes()]
        if not horizon:
            return CurveForecast.around(middle, 0.0)
        offset, factor = self._offset[epochs - 1], self._factor[epochs - 1]
        return CurveForecast.around(middle + offset * scale, factor * scale)
