"""What we ourselves aim at in notebook 13: how far the advisor may be off."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.sentences import counted
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_LEAST, AT_MOST, MISSING, Read, Reading, Target
from lockstep.analysis.verdicts import NOT_YET
from lockstep.experiments.e13_advisor.checking import judged, memories, of_one_host
from lockstep.experiments.e13_advisor.earlier import earlier_speedups
from lockstep.experiments.e13_advisor.picks import picks
from lockstep.experiments.e13_advisor.tables import held_out_errors, quantile_of, share_of


def _reading(find: Callable[[Stored], Estimate], remark: str = "") -> Read:
    """What `find` finds, over so many cells; in its place why there is no number."""

    def read(stored: Stored) -> Reading:
        try:
            found = find(stored)
        except (AnalysisError, KeyError) as error:
            return Reading(word=NOT_YET, reason=str(error) or MISSING)
        return Reading(found, reason=f"{found.rounds} cells{remark}")

    return read


def _held_out(part: float, hosts: bool = False) -> Read:
    return _reading(lambda stored: quantile_of(held_out_errors(stored, hosts), part))


def _earlier(part: float) -> Read:
    def find(stored: Stored) -> Estimate:
        if stored.records.empty:  # a notebook that measured nothing aims at nothing yet
            raise AnalysisError(MISSING)
        table = earlier_speedups()
        return quantile_of(100 * table["error"] if len(table) else pd.Series(dtype=float), part)

    return _reading(find, ", some of one round")


def _right_picks(stored: Stored) -> Estimate:
    table = picks(stored)
    if len(table) and not table["decided"].any():
        raise AnalysisError(f"in none of {counted(len(table), 'choice')} is the fastest way decided")
    return share_of(table.loc[table["decided"], "good"] if len(table) else pd.Series(dtype=bool))


def _held(stored: Stored) -> Estimate:
    table = judged(stored)
    parts = [of_one_host(table, hosts)["holds"] for hosts in (False, True)] if len(table) else []
    return share_of(pd.concat(parts) if parts else pd.Series(dtype=bool))


def _memory(stored: Stored) -> Estimate:
    table = memories(stored)
    return quantile_of(100 * (table["ratio"] - 1).abs() if len(table) else pd.Series(dtype=float), 0.5)


def _too_low(stored: Stored) -> Estimate:
    """The largest share of a worker's memory that was not predicted: an extreme of these cells, without an interval."""
    table = memories(stored)
    if table.empty:
        raise AnalysisError("no peak was both measured and predicted")
    most = float(100 * (1 - table["ratio"]).max())
    return Estimate(most, most, most, len(table), logarithmic=False)


ONE_HOST = "error of images/s on one host, cells that were not calibrated with, %"
TARGETS: tuple[Target, ...] = (
    Target(f"{ONE_HOST}: median", 10.0, _held_out(0.5), AT_MOST),
    Target(f"{ONE_HOST}: nine in ten below", 20.0, _held_out(0.9), AT_MOST),
    Target("the same on two emulated hosts: median", 15.0, _held_out(0.5, hosts=True), AT_MOST),
    Target("error of speedups that notebooks 02 to 06 had stored, %: median", 12.0, _earlier(0.5), AT_MOST),
    Target("the same: nine in ten below", 30.0, _earlier(0.9), AT_MOST),
    Target("ways predicted quickest that are as fast as the fastest, up to 5 % or what equal cells differ by", 0.9,
           _reading(_right_picks, ", where the fastest is decided"), AT_LEAST),
    Target("share of cells that their 90 % range holds, at least", 0.80, _reading(_held), AT_LEAST),
    Target("the same, at most", 0.97, _reading(_held), AT_MOST),
    Target("error of a worker's peak memory, %: median", 10.0, _reading(_memory), AT_MOST),
    Target("how far it is predicted too low at most, %", 10.0, _reading(_too_low), AT_MOST),
)  # fmt: skip
