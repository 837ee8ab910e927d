"""Forecasts of how learning curves end.

    forecaster = make_forecaster("lstm")
    forecaster.fit([curve, curve], seed=0)              # the study's finished curves so far; may be none
    said = forecaster.predict([0.61, 0.72], horizon=14)  # of the score 14 epochs later
    said.mean, said.low, said.high, said.chance_above(0.93)

Every forecaster is a `raw` forecast, that of a curve by itself, and a `Recalibration` of its offset and spread on the
study's finished curves. So a study can be replayed thousands of times without asking a network again:

    middle, scale = forecaster.raw(curves, epochs)      # once: [curves, epochs], from every prefix of every curve
    units = in_units(curves, middle, scale)
    offset, factor = forecaster.recalibration.tables(units[finished])            # [epochs] each
    chances_above(middle + offset * scale, SPREAD_OF_SCALE * factor * scale, level)

**The distribution is Laplace's** around the forecast, cut to the scores' range 0 to 1. Misses of learning curves have a
sharp middle and long tails: most curves saturate and end where they are expected, a few decline or collapse. It is also
what `SequenceModel` learns its spread by, and has one number to recalibrate. The forecast is its median.
"""

from __future__ import annotations

import math
import operator
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.options import at_least
from lockstep.tuning.forecasting.recalibration import Recalibration, in_units
from lockstep.tuning.forecasting.storing import read_arrays, write_arrays

Array = NDArray[np.float64]
SPREAD_OF_SCALE = math.sqrt(2)
"""The standard deviation of Laplace's distribution over its scale b."""
NINETY = math.log(10)
"""How many b lie between its middle and either end of the interval that holds 90 %."""


@dataclass(frozen=True)
class CurveForecast:
    """The score at the end of a curve: its median, a 90 % interval, and the standard deviation; all in 0 to 1."""

    mean: float
    low: float
    high: float
    spread: float

    @classmethod
    def around(cls, middle: float, scale: float) -> CurveForecast:
        """Laplace's distribution with its b, in scores; 0 for a score that is known."""
        middle = min(1.0, max(0.0, middle))
        low, high = max(0.0, middle - NINETY * scale), min(1.0, middle + NINETY * scale)
        return cls(middle, low, high, SPREAD_OF_SCALE * scale)

    def chance_above(self, level: float) -> float:
        """The chance that the score is above `level`; falls with it. Raises ValueError for NaN."""
        if math.isnan(level):
            raise ValueError("the level is NaN; give the score that is to be beaten")
        return float(chances_above(self.mean, self.spread, level))


def chances_above(middle: ArrayLike, spread: ArrayLike, level: ArrayLike) -> Array:
    """`CurveForecast.chance_above` of arrays that go together: forecasts, standard deviations, levels."""
    middle, level = np.clip(np.asarray(middle, np.float64), 0, 1), np.asarray(level, np.float64)
    scale = np.asarray(spread, np.float64) / SPREAD_OF_SCALE
    known = scale == 0
    away = (level - middle) / np.where(known, 1, scale)
    tail = 0.5 * np.exp(-np.abs(away))
    chance = np.where(known, level < middle, np.where(away >= 0, tail, 1 - tail))
    return np.where(level >= 1, 0.0, np.where(level < 0, 1.0, chance))


class Forecaster(ABC):
    """A kind of forecaster implements `raw`, and `learn` and `learned` where the study's curves teach it more."""

    name: ClassVar[str]
    does: ClassVar[str]
    """What it forecasts, in a few words."""
    recalibration: ClassVar[Recalibration]
    learns: ClassVar[bool] = False
    """Whether `raw` depends on what `fit` was given, so that replays must call `fit` anew."""

    def __init__(self) -> None:
        self._units = np.empty((0, 0))  # of the study's finished curves, see `in_units`

    # What callers use -------------------------------------------------------------------------------------------------

    def fit(self, sequences: Sequence[ArrayLike], seed: int) -> None:
        """Takes a study's finished curves, [epochs] each, of any lengths, in the order in which they were finished.

        All that `fit` was given before is forgotten. A curve that holds NaN or infinity is cut there, with a warning;
        its last score then counts as its end. Raises ValueError for scores outside 0 to 1 or of another shape.
        """
        at_least("seed", seed, 0)
        curves = [checked_curve(sequence, f"curve {number}") for number, sequence in enumerate(sequences)]
        curves = [curve for curve in curves if len(curve)]
        fresh = curves[self.learn(curves, seed) :]
        units = np.full((len(fresh), max(map(len, fresh), default=0)), np.nan)
        for length in {len(curve) for curve in fresh}:
            rows = [row for row, curve in enumerate(fresh) if len(curve) == length]
            same = np.stack([fresh[row] for row in rows])
            units[rows, :length] = in_units(same, *self.raw(same, length))
        self._units = units

    def predict(self, prefix: ArrayLike, horizon: int) -> CurveForecast:
        """The score `horizon` epochs after the last one of `prefix`, [epochs >= 1]; 0: that score itself.

        A prefix that holds NaN or infinity is cut there, with a warning; the epoch that is forecast stays the same.
        Raises ValueError where nothing is left of it, and for a negative horizon or scores outside 0 to 1.
        """
        at_least("horizon", operator.index(horizon), 0)
        end = np.size(prefix) + operator.index(horizon)
        values = checked_curve(prefix, "the prefix")
        if not len(values):
            raise ValueError("the prefix has no finite score: there is nothing to forecast from; give one epoch's")
        if len(values) == end:
            return CurveForecast.around(float(values[-1]), 0.0)
        middle, scale = (part[0, -1] for part in self.raw(values[None], end))
        offset, factor = (part[0] for part in self.recalibration.tables(self._units, np.array([len(values)])))
        return CurveForecast.around(float(middle + offset * scale), float(scale * factor))

    def save(self, path: Path) -> None:
        """Writes all that `fit` found to a `.npz` file, whole or not at all; no pickle."""
        write_arrays(path, {"forecaster": np.array(self.name), "units": self._units, **self.learned()})

    def load(self, path: Path) -> None:
        """Goes on from what `save` of a forecaster of this kind wrote, bit for bit.

        Raises ValueError for a file of something else, or a damaged one.
        """
        arrays = read_arrays(path)
        found = str(arrays.pop("forecaster", "nothing of that kind"))
        if found != self.name or "units" not in arrays:
            raise ValueError(f"{path} holds {found}, not the forecaster {self.name!r}; give a file that its save wrote")
        units = arrays.pop("units")
        self.relearn(arrays, path)
        self._units = units

    # What a kind of forecaster implements -----------------------------------------------------------------------------

    @abstractmethod
    def raw(self, curves: Array, end: int) -> tuple[Array, Array]:
        """(forecast, Laplace's b) of the score after epoch `end`, from every prefix of every curve; not recalibrated.

        curves: [curves, epochs], finite; end >= epochs. Both results have that shape; [:, t] uses epochs 1 .. t + 1.
        """

    def learn(self, curves: Sequence[Array], seed: int) -> int:
        """Learns more of finished curves than offset and spread; the number of the first one that it left untouched."""
        del curves, seed
        return 0

    def learned(self) -> dict[str, Any]:
        """What `learn` found, by name."""
        return {}

    def relearn(self, arrays: dict[str, Any], path: Path) -> None:
        """Goes on from what `learned` returned. Raises ValueError where it is something else."""
        del arrays, path


def checked_curve(sequence: ArrayLike, what: str) -> Array:
    """[epochs] up to what is not finite, with a warning.

    Raises ValueError for another shape or scores outside 0 to 1.
    """
    values = np.asarray(sequence, np.float64)
    if values.ndim != 1:
        raise ValueError(f"{what} has the shape {values.shape}; give one score per epoch, [epochs]")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        warnings.warn(f"{what} is cut at epoch {bad[0] + 1} of {len(values)}, which is not finite", stacklevel=3)
        values = values[: bad[0]]
    outside = np.flatnonzero((values < 0) | (values > 1))
    if outside.size:
        at = int(outside[0])
        raise ValueError(f"{what} has {values[at]:g} at epoch {at + 1}; give scores in 0 to 1, higher is better")
    return values
