"""What two runs of one and the same cell differ by: the A/A pairs of a notebook, pooled into one number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import MIN_ROUNDS, MISS, AnalysisError, Estimate
from lockstep.analysis.statistics import by_session, interval_of, per_round
from lockstep.analysis.stored import once

IMAGES_PER_SECOND = "images_per_second"
NOISE_OF_A_QUOTIENT = math.sqrt(2)
"""A quotient of two ratios has the noise of both."""


@once
def aa_pairs(records: pd.DataFrame, measure: str = IMAGES_PER_SECOND) -> list[Estimate]:
    """The ratio b / a of every cell that was measured twice in a round, as variants a and b: one of each session with
    rounds enough, for a session starts its own processes, and so is a pair of its own."""
    found: list[Estimate] = []
    again = records[(records["variant"] == "b") & (records["status"] == "ok")]
    for cell, _ in cells(again):
        try:
            ratios = per_round(records, cell, measure) / per_round(records, {**cell, "variant": "a"}, measure)
            found += by_session(ratios.dropna()).values() or [interval_of(ratios.dropna())]
        except AnalysisError:
            continue  # a pair of which no round was measured
    return found


def aa_noise(records: pd.DataFrame, measure: str = IMAGES_PER_SECOND) -> float:
    """How far two runs of the same cell lie apart, whatever the reason, as a logarithm (`pooled_noise`); infinite, and
    so unknown, where no A/A pair has rounds enough."""
    return pooled_noise([pair for pair in aa_pairs(records, measure) if pair.rounds >= MIN_ROUNDS])


def pooled_noise(pairs: Sequence[Estimate]) -> float:
    """What a further pair of equal cells stays within with 95 %: the root mean square of the pairs' log ratios, times
    Student's t with a degree of freedom for each pair.

    The mean is no parameter, for the true log ratio of equal cells is 0. t is 12.7 for one pair, 4.3 for two, 2.8 for
    four and 2 for many: what a single pair shows of the spread between pairs is next to nothing, and so a difference
    must be large beside it. What the rounds of the pairs explain is not taken off, since of few pairs nobody can tell
    how much that is. It widens what counts as a difference (`statistics.is_difference`). No pairs: infinite.
    """
    if not pairs:
        return math.inf
    spread = math.sqrt(np.mean([math.log(pair.value) ** 2 for pair in pairs]))
    from scipy.special import stdtrit  # heavy

    return float(stdtrit(len(pairs), 1 - MISS / 2)) * spread
