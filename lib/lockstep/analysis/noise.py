"""What two runs of one and the same cell differ by: the A/A pairs of a notebook, pooled into one number."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.statistics import interval_of, per_round

IMAGES_PER_SECOND = "images_per_second"
NOISE_OF_A_QUOTIENT = math.sqrt(2)
"""A quotient of two ratios has the noise of both."""


def aa_pairs(records: pd.DataFrame, measure: str = IMAGES_PER_SECOND) -> list[Estimate]:
    """The ratio b / a of every cell that was measured twice in a round, as variants a and b."""
    found = []
    again = records[(records["variant"] == "b") & (records["status"] == "ok")]
    for cell, _ in cells(again):
        try:
            ratios = per_round(records, cell, measure) / per_round(records, {**cell, "variant": "a"}, measure)
            found.append(interval_of(ratios.dropna()))
        except AnalysisError:
            continue  # a pair of which no round was measured
    return found


def aa_noise(records: pd.DataFrame, measure: str = IMAGES_PER_SECOND) -> float:
    """How far two runs of the same cell lie apart for other reasons than their rounds' own spread, as a logarithm.

    With the pairs' means m and their standard errors e this is twice the root of max(0, mean(m² - e²)): the variance
    between pairs by the method of moments, around the 0 that is known to be true (DerSimonian and Laird 1986). It is an
    estimate that widens what counts as a difference (`statistics.is_difference`). 0 where no pair has rounds enough.
    """
    pairs = [pair for pair in aa_pairs(records, measure) if pair.rounds >= MIN_ROUNDS]
    if not pairs:
        return 0.0
    beyond = np.mean([math.log(pair.value) ** 2 - pair.deviation**2 / pair.rounds for pair in pairs])
    return 2 * math.sqrt(max(0.0, float(beyond)))
