"""Rules for accuracies over seeds, which notebooks 07 and 08 share: margins in percentage points, not in percent."""

from __future__ import annotations

import math
from dataclasses import replace

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.rules import between, decided, enough, undecided
from lockstep.analysis.seeds import MARGIN
from lockstep.analysis.verdicts import CONTRADICTED, SUPPORTED, UNDECIDED, Verdict

BY_DESIGN = "synchronous SGD trains the parameters of one worker, up to rounding"


def within_points(published: float, mean: Estimate, measured: str) -> Verdict:
    """Supported if the whole interval lies within MARGIN points of a published number, contradicted if it lies outside:
    a share of an accuracy would be lenient towards high ones."""
    around = f"{published:g} ± {MARGIN:g} points"
    found = between(published - MARGIN, published + MARGIN, mean, measured, around)
    return replace(found, numbers=(("", mean),))


def gained(points: Estimate, measured: str) -> Verdict:
    """Whether there is a gain: supported if the interval lies above 0, contradicted if it lies below 0 or within MARGIN
    of it, for then there is none that anybody would notice."""
    enough(points.rounds)
    if points.low > 0:
        return decided(SUPPORTED, measured, "the interval is above 0", points, [0.0])
    if points.high < 0:
        return decided(CONTRADICTED, measured, "the interval is below 0", points, [0.0])
    alike = between(-MARGIN, MARGIN, points, measured, f"0 ± {MARGIN:g} points")
    if alike.answer == SUPPORTED:
        return replace(alike, answer=CONTRADICTED, reason=f"{alike.reason}: no gain")
    return alike if alike.answer == UNDECIDED else undecided(measured, alike.reason, math.nan)
