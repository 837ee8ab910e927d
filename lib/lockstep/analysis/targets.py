"""What a target is: a function of records that reads one number, and the threshold that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from lockstep.analysis.cells import outcome
from lockstep.analysis.statistics import (
    MIN_ROUNDS,
    AnalysisError,
    Conditions,
    Estimate,
    each_strategy,
    highest_ratio,
    interval_of,
    per_round,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, UNDECIDED

AT_LEAST, AT_MOST, WITHIN = "≥", "≤", "1 ±"
TOO_FEW = "too few rounds"
MISSING = "not in these records"
BEST = "best"
"""As a numerator's strategy: the fastest of those that ran besides the denominator's, chosen and judged on the same
rounds by an interval that pays for the choice."""


@dataclass(frozen=True)
class Reading:
    """A measured number, or in its place a word and the reason; beside a number `reason` is a remark."""

    ratio: Estimate | None = None
    word: str = ""
    reason: str = ""


Read = Callable[[Stored], Reading]


@dataclass(frozen=True)
class Target:
    """What `read` measures should be at least `threshold`, at most `threshold`, or within 1 ± `threshold`."""

    name: str
    threshold: float
    read: Read
    aim: str = AT_LEAST

    def reached(self, found: Estimate) -> str:
        """yes or no by the whole interval; UNDECIDED where the aim lies within it."""
        low = {AT_LEAST: self.threshold, AT_MOST: float("-inf"), WITHIN: 1 - self.threshold}[self.aim]
        high = {AT_LEAST: float("inf"), AT_MOST: self.threshold, WITHIN: 1 + self.threshold}[self.aim]
        if low <= found.low and found.high <= high:
            return "yes"
        return "no" if found.high < low or found.low > high else UNDECIDED


def target_table(targets: Iterable[Target], stored: Stored) -> pd.DataFrame:
    """One row per target of a notebook: what is aimed at, the measured number with its 95 % interval, and whether the
    whole interval reaches it: yes, no, UNDECIDED, or TOO_FEW.

    A target whose cells were skipped is NEEDS_HARDWARE, one whose cells failed or are missing NOT_YET; both say why
    instead of a number.
    """
    return pd.DataFrame([_row(stored, target) for target in targets])


@once
def _row(stored: Stored, target: Target) -> dict[str, Any]:
    found = target.read(stored.shown)
    ratio, reached, reason = found.ratio, found.word, found.reason
    if ratio is not None and ratio.rounds < MIN_ROUNDS:
        reached, reason = TOO_FEW, f"{ratio.rounds} of at least {MIN_ROUNDS}"
    elif ratio is not None:
        reached = target.reached(ratio)
        reason = f"{reason}{ratio.differing}".strip()
    return {
        "target": target.name,
        "aim": target.aim,
        "threshold": target.threshold,
        "ratio": ratio.value if ratio else None,
        "low": ratio.columns[1] if ratio else None,
        "high": ratio.columns[2] if ratio else None,
        "interval": ratio.interval if ratio else "",
        "rounds": ratio.rounds if ratio else 0,
        "reached": reached,
        "reason": reason,
    }


def compared(
    numerator: dict[str, Any],
    denominator: dict[str, Any] | None,
    measure: str = "images_per_second",
    shared: dict[str, Any] | None = None,
) -> Read:
    """Reads numerator / denominator of `measure`, paired per round; without a denominator `measure` itself."""

    def read(stored: Stored) -> Reading:
        records = stored.records
        above = (shared or {}) | numerator
        below = None if denominator is None else (shared or {}) | denominator
        best = above.get("strategy") == BEST
        above = {name: value for name, value in above.items() if not best or name != "strategy"}
        try:
            if below is not None and best:
                others = [side for side in each_strategy(records, above) if side["strategy"] != below.get("strategy")]
                return fastest_over(records, others, below, measure)
            if below is not None:
                return Reading(ratio_with_interval(records, above, below, measure))
            values = per_round(records, above, measure)
            if values.empty:
                raise AnalysisError("no ok row")
            return Reading(interval_of(values))
        except AnalysisError as error:
            sides = [select(records, side, status=None) for side in (above, below) if side is not None]
            return lacking(sides, str(error))

    return read


def fastest_over(
    records: pd.DataFrame, numerators: Sequence[Conditions], denominator: Conditions, measure: str = "images_per_second"
) -> Reading:
    """Reads the highest of several strategies' ratios (`statistics.highest_ratio`); the remark names the fastest."""
    ratio, place = highest_ratio(records, numerators, denominator, measure)
    among = f"the fastest of {len(numerators)}: {numerators[place]['strategy']}" if len(numerators) > 1 else ""
    return Reading(ratio, reason=among)


def per_worker(read: Read, workers: int) -> Read:
    """Reads a speedup as an efficiency: divided by the number of workers."""

    def shared_out(stored: Stored) -> Reading:
        found = read(stored)
        if found.ratio is None:
            return found
        return replace(found, ratio=found.ratio.times(1 / workers))

    return shared_out


def lacking(sides: list[pd.DataFrame], otherwise: str) -> Reading:
    """The word and the reason for a target without a number, from the rows that each of its sides has."""
    # Only of rows that did not run: the remark on an ok row explains nothing.
    missing = [outcome(rows) if len(rows) else ("missing", "") for rows in sides if not (rows["status"] == "ok").any()]
    reasons = dict(reversed(missing))  # of several with the same status, the first one's
    if "skipped" in reasons:
        return Reading(None, NEEDS_HARDWARE, reasons["skipped"])
    if "failed" in reasons:
        return Reading(None, NOT_YET, reasons["failed"])
    return Reading(None, NOT_YET, MISSING if missing else otherwise)
