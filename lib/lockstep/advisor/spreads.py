"""How much a step differs from the next one, as where a model's time depends on its data, and what ranges grow by.

    spread of a visit    half of log(95 % quantile / 5 % quantile) of its steps' seconds
    ordinary             up to WIDE_SPREAD from the quick end to the slow one: the errors of held-out cells hold that
    beyond               what is more than ordinary, in quadrature: it widens the range of every way
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from lockstep.advisor.calibration import Calibration, CalibrationCell

WIDE_SPREAD = 1.25
"""The slow end over the quick one, of rounds or of steps, from which on it is said that a step's time differs."""
ORDINARY = math.log(WIDE_SPREAD) / 2
_QUICK, _SLOW = 0.05, 0.95


def spread_of(seconds: Sequence[float]) -> float:
    """Of the steps of a visit, as half of a logarithm of two quantiles; 0 for fewer than two."""
    if len(seconds) < 2 or not min(seconds) > 0:
        return 0.0
    ordered = sorted(seconds)
    return math.log(_quantile(ordered, _SLOW) / _quantile(ordered, _QUICK)) / 2


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    return ordered[below] + (place - below) * (ordered[min(below + 1, len(ordered) - 1)] - ordered[below])


def spread_of_cell(cell: CalibrationCell) -> float:
    """The median over its rounds; 0 where no steps were kept."""
    return median(cell.step_spread) if cell.step_spread else 0.0


def spread_beyond_ordinary(calibration: Calibration, batch: int) -> float:
    """By how much (a logarithm) single steps of this batch differ from the typical one, beyond what is ordinary: as
    those of one worker with the batch that comes nearest to it."""
    alone = [each for each in calibration.cells if each.workers == 1 and each.threads_per_worker == 1]
    if not alone:
        return 0.0
    nearest = min(alone, key=lambda each: abs(math.log(each.per_worker_batch_size / batch)))
    return math.sqrt(max(0.0, spread_of_cell(nearest) ** 2 - ORDINARY**2))
