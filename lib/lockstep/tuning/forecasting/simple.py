"""Forecasts without a network, the baselines: last value, best so far, best so far + the usual gain, a power law.

None of them says how sure it is by itself. All begin with a b of SCALE, which counts as one finished curve: the
study's own misses soon outweigh it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.tuning.forecasting.base import Array, Forecaster
from lockstep.tuning.forecasting.recalibration import Recalibration

SCALE = 0.05
"""Laplace's b of a forecast while no curve is finished, in scores."""
SPREAD_ALONE = Recalibration(offset_prior=math.inf, spread_prior=1.0)
FEWEST_TO_FIT = 4
"""Epochs that the power law needs, one more than it has numbers."""


class LastScore(Forecaster):
    """The curve stays where it is."""

    name = "last"
    does = "the last value"
    recalibration = SPREAD_ALONE

    def raw(self, curves: Array, end: int) -> tuple[Array, Array]:
        """See `Forecaster.raw`."""
        del end
        return curves.copy(), np.full(curves.shape, SCALE)


class BestSoFar(Forecaster):
    """The curve ends at its best value so far."""

    name = "best"
    does = "the best value so far"
    recalibration = SPREAD_ALONE

    def raw(self, curves: Array, end: int) -> tuple[Array, Array]:
        """See `Forecaster.raw`."""
        del end
        return np.maximum.accumulate(curves, axis=1), np.full(curves.shape, SCALE)


class Gain(BestSoFar):
    """The curve gains what finished ones usually did from that epoch on: the median, smoothed over epochs."""

    name = "gain"
    does = "the best value so far + the gain of finished curves from there on"
    recalibration = Recalibration(offset_prior=0.0, spread_prior=1.0)


class PowerLaw(Forecaster):
    """c - a t^-b, fitted to each prefix by least squares; the best so far before FEWEST_TO_FIT.

    0 <= a <= 1, 0 <= c <= 1 and 0.05 <= b <= 4.
    """

    name = "power"
    does = "a power law, fitted to the curve"
    recalibration = SPREAD_ALONE

    def raw(self, curves: Array, end: int) -> tuple[Array, Array]:
        """See `Forecaster.raw`. Some 2 ms for each prefix."""
        middle = np.maximum.accumulate(curves, axis=1)
        for row, curve in enumerate(curves):
            for seen in range(FEWEST_TO_FIT, len(curve) + 1):
                middle[row, seen - 1] = power_law_at(curve[:seen], end)
        return middle, np.full(curves.shape, SCALE)


def power_law_at(prefix: Array, epoch: float) -> float:
    """The power law that fits scores [epochs >= 1] best, at `epoch`. Raises ValueError for an empty prefix.

    For each exponent b the best c and a follow at once, as a bounded linear problem; scipy searches the exponent.
    """
    from scipy.optimize import minimize_scalar

    if not len(prefix):
        raise ValueError("a power law needs at least one score; the prefix is empty")
    epochs = np.arange(1, len(prefix) + 1)

    def missed(log_exponent: float) -> float:
        power = epochs ** -math.exp(log_exponent)
        level, fall = _line(power, prefix)
        return float(((level - fall * power - prefix) ** 2).sum())

    found = minimize_scalar(missed, bounds=(math.log(0.05), math.log(4.0)), method="bounded").x
    exponent = math.exp(float(found))
    level, fall = _line(epochs**-exponent, prefix)
    return level - fall * epoch**-exponent


def _line(power: NDArray[Any], scores: Array) -> tuple[float, float]:
    """(c, a) of the least squares c - a power, 0 <= a <= 1, 0 <= c <= 1."""
    away = power - power.mean()
    total = float((away**2).sum())
    fall = min(1.0, max(0.0, -float((away * scores).sum()) / total)) if total > 0 else 0.0
    level = float(scores.mean()) + fall * float(power.mean())
    if level > 1:  # then the curve tends to 1, and the fall alone is left
        level, fall = 1.0, min(1.0, float(((1 - scores) * power).sum() / (power**2).sum()))
    return level, fall
