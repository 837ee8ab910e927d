"""Targets whose numbers are repeated cell by cell: what is undecided says how long deciding it would take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from lockstep.analysis.anytime import MIN_ROUNDS, fewest_more
from lockstep.analysis.cells import cells, median_of
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import Reading, Target
from lockstep.analysis.verdicts import UNDECIDED, Verdict
from lockstep.experiments.report import time_to_decide


def seconds_of_a_round(stored: Stored, *experiments: str, delays: Sequence[str] = ()) -> float:
    """Seconds that one more round, or seed, of all cells of these experiments takes, on the machine that ran them: the
    median of each cell, summed. `delays`: of the cells with these alone; NaN where none ran."""
    found = [
        median_of(rows, "measuring_seconds")
        for name in experiments
        for cell, rows in cells(stored.records, name)
        if not delays or cell["delays"] in delays
    ]
    known = [seconds for seconds in found if not math.isnan(seconds)]
    return sum(known) if known else math.nan


def rounds_to_decide(target: Target, found: Estimate) -> float:
    """How many more rounds would leave the threshold outside the 95 % interval, if they are as those before; infinite
    where none would, among them where sessions differ."""
    if found.apart:
        return math.inf

    def decides(more: int) -> bool:
        low, high = found.ends(more=more)
        return not low <= target.threshold <= high

    return fewest_more(decides)


def with_time_to_decide(target: Target, round_seconds: Callable[[Stored], float]) -> Target:
    """The same target, whose remark tells the further rounds and minutes while it is undecided; for AT_LEAST and
    AT_MOST. `round_seconds`: what one more round of its cells takes."""

    def read(stored: Stored) -> Reading:
        found = target.read(stored)
        if found.ratio is None or found.ratio.rounds < MIN_ROUNDS or target.reached(found.ratio) != UNDECIDED:
            return found
        more = max(1.0, rounds_to_decide(target, found.ratio))
        told = time_to_decide(Verdict(UNDECIDED, rounds_more=more, round_seconds=round_seconds(stored)))
        return replace(found, reason="; ".join(part for part in (found.reason, told) if part))

    return replace(target, read=read)
