"""How good forecasts of completion times were.

Times and forecasts are seconds per sample, [rounds, workers], NaN where there is none; a forecast stands at the round
that it is for. A **straggler** takes more than FACTOR times the median of its peers, the other workers in that round.
An **onset** is a round in which a worker becomes one: its time has risen, and it was none in the round before.

Onsets stand apart from F1 because of what a forecast is for. While a worker stays slow, the last value tells it, so F1
is high; nobody who waits for the last value ever sees a straggler come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.forecasts.base import Forecast

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
FACTOR = 1.5
"""Times the median: beyond it a task is an outlier in Ananthanarayanan et al. (2010), "Reining in the Outliers in
Map-Reduce Clusters using Mantri", and so in most that came after it."""
EARLY = slice(5, 60)
"""Rounds in which a forecaster still has little history. *DPro-SM* 4: 82 % of jobs have fewer than ten tasks."""
LATER = slice(60, None)


def walk(
    forecast: Forecast,
    seconds: ArrayLike,
    quantiles: Sequence[float] = (0.5,),
    system: Mapping[str, Array] | None = None,
    idle_seconds: float = math.inf,
) -> Array:
    """[rounds, workers, quantiles]: what `forecast` says before each round, with `idle_seconds` to train after it.

    `seconds` and each array of `system` are [rounds, workers].
    """
    seen = np.asarray(seconds, np.float64)
    said = np.empty((*seen.shape, len(quantiles)))
    for task, row in enumerate(seen):
        said[task] = forecast.predict(quantiles)
        state = {name: values[task] for name, values in (system or {}).items()}
        forecast.observe_round(row, task, state or None)
        forecast.idle(idle_seconds)
    return said


def mean_absolute_error(seconds: ArrayLike, forecasts: ArrayLike) -> float:
    """The mean of |seen - forecast|, seconds per sample, where there are both; NaN where there are none."""
    from sklearn.metrics import mean_absolute_error as mean_error

    seen, said = _both(seconds, forecasts)
    return float(mean_error(seen, said)) if seen.size else float("nan")


def peers_median(seconds: ArrayLike) -> Array:
    """[rounds, workers]: the median of the other workers in the same round; NaN for a worker without any."""
    values = np.asarray(seconds, np.float64)
    order = np.argsort(values, axis=1)  # NaN come last
    ordered = np.take_along_axis(values, order, axis=1)
    rank = np.argsort(order, axis=1)  # a worker's place in its round
    here = np.isfinite(values)
    peers = here.sum(axis=1, keepdims=True) - here
    most = values.shape[1] - 1

    def of_peers(place: NDArray[np.intp]) -> Array:
        """The peers in order: a worker's own place is left out."""
        place = np.where(here & (place >= rank), place + 1, place)
        return np.take_along_axis(ordered, np.clip(place, 0, most), axis=1)

    middle = (of_peers(np.maximum(peers - 1, 0) // 2) + of_peers(peers // 2)) / 2
    return np.where(peers > 0, middle, np.nan)


def stragglers(seconds: ArrayLike, factor: float = FACTOR) -> Marks:
    """[rounds, workers]: who takes, or is forecast to take, more than `factor` times the median of its peers."""
    values = np.asarray(seconds, np.float64)
    with np.errstate(invalid="ignore"):
        return values > factor * peers_median(values)


@dataclass(frozen=True)
class Detection:
    """Stragglers round by round."""

    base_rate: float  # share of stragglers
    precision: float
    recall: float
    f1: float
    average_precision: float  # area under precision over recall, ranked by forecast / median of the peers' forecasts


def detection(seconds: ArrayLike, forecasts: ArrayLike, factor: float = FACTOR) -> Detection:
    """How well stragglers were told from the others, where there are both a time and a forecast.

    NaN where it is not defined: precision without alarms; recall, F1 and area without stragglers.
    """
    from sklearn.metrics import average_precision_score, precision_recall_fscore_support

    said = np.asarray(forecasts, np.float64)
    score = said / peers_median(said)
    actual, alarm = stragglers(seconds, factor), score > factor
    use = np.isfinite(np.asarray(seconds, np.float64)) & np.isfinite(score)
    actual, alarm, score = actual[use], alarm[use], score[use]
    if not actual.size:
        return Detection(*[float("nan")] * 5)
    precision, recall, f1, _ = precision_recall_fscore_support(
        actual, alarm, average="binary", pos_label=True, zero_division=np.nan
    )
    area = average_precision_score(actual, score) if actual.any() else float("nan")
    return Detection(float(actual.mean()), float(precision), float(recall), float(f1), float(area))


@dataclass(frozen=True)
class Onsets:
    """Stragglers seen coming."""

    count: int
    recall: float  # share of onsets for whose round the worker was forecast to be a straggler
    lead_rounds: float  # mean, over those, of the rounds in a row up to the onset that were forecast so; at least 1
    chance: float  # share of such forecasts where an onset could have been and was none: a guess's recall is this


def onsets(seconds: ArrayLike, forecasts: ArrayLike, factor: float = FACTOR) -> Onsets:
    """Recall, lead time and chance of onsets, where there are times of two rounds in a row and a forecast.

    A recall above chance on a kind of delays that nobody can see coming means that the future leaked. NaN where it is
    not defined: recall without onsets, lead time without recall, chance without a round that could have been one.
    """
    seen, said = np.asarray(seconds, np.float64), np.asarray(forecasts, np.float64)
    slow, alarm = stragglers(seen, factor), stragglers(said, factor)
    able = np.zeros(seen.shape, bool)
    able[1:] = np.isfinite(seen[1:]) & np.isfinite(seen[:-1]) & np.isfinite(said[1:]) & ~slow[:-1]
    begins = able & slow
    begins[1:] &= seen[1:] > seen[:-1]
    in_a_row = np.zeros(seen.shape, np.int64)
    for row in range(len(seen)):
        in_a_row[row] = alarm[row] * (1 + (in_a_row[row - 1] if row else 0))
    found, others = begins & alarm, able & ~begins
    return Onsets(int(begins.sum()), _mean(alarm[begins]), _mean(in_a_row[found]), _mean(alarm[others]))


def calibration(seconds: ArrayLike, forecasts: ArrayLike) -> Array:
    """[quantiles]: the share of times at or below each forecast quantile; of honest quantiles their own values.

    forecasts: [rounds, workers, quantiles].
    """
    said = np.asarray(forecasts, np.float64)
    seen = np.asarray(seconds, np.float64)[..., None]
    use = np.isfinite(seen) & np.isfinite(said)
    return np.where(use, seen <= said, False).sum(axis=(0, 1)) / np.maximum(use.sum(axis=(0, 1)), 1)


def _both(seconds: ArrayLike, forecasts: ArrayLike) -> tuple[Array, Array]:
    seen, said = np.asarray(seconds, np.float64), np.asarray(forecasts, np.float64)
    if seen.shape != said.shape:
        raise ValueError(f"times of the shape {seen.shape} and forecasts of {said.shape} do not belong together")
    use = np.isfinite(seen) & np.isfinite(said)
    return seen[use], said[use]


def _mean(values: NDArray) -> float:
    return float(values.mean()) if values.size else float("nan")
