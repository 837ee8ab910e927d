"""What the traces of a host say about training on its GPUs: this one, or the one whose records stand beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from lockstep.analysis.rules import enough, within
from lockstep.analysis.statistics import interval_of, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import trace_table
from lockstep.analysis.verdicts import NOT_YET, Claim, NotNow, Verdict, cores_given, each
from lockstep.engine.units import digits

Choose = Callable[[pd.DataFrame, str], dict[str, Any]]
"""Records and a use case -> the conditions of the cell whose trace is meant."""


def rows_of_trace(stored: Stored, use_case: str, cell: dict[str, Any]) -> pd.DataFrame:
    """The samples of a cell on GPUs. Raises NotNow where none were stored."""
    resources = stored.table("resources")
    if resources.empty:
        raise NotNow(NOT_YET, "no resource traces were stored")
    strategy = select(stored.records, cell)["strategy"].iloc[0]
    wanted = {"experiment": cell["experiment"], "use_case": use_case, "strategy": strategy, "device": "cuda"}
    traces = select(resources, wanted, status=None)
    if traces.empty:
        raise NotNow(NOT_YET, f"no resource trace of {use_case} with {strategy} on GPUs")
    return traces


def column_of_trace(stored: Stored, use_case: str, cell: dict[str, Any], column: str) -> pd.Series:
    """A column of `trace_table`, one value per round, of a cell on GPUs. Raises NotNow for too few rounds."""
    found = trace_table(rows_of_trace(stored, use_case, cell)).set_index("round")[column].dropna()
    enough(len(found), seen=f" of mean {digits(found.mean())}, {stored.gpus}".rstrip(", ") if len(found) else "")
    return found


def mean_threads(claim: Claim, stored: Stored, choose: Choose) -> Verdict:
    """The claim's number of threads against the mean over the trace of the cell that `choose` names."""

    def one(use_case: str) -> Verdict:
        host = stored.on_gpus
        means = interval_of(column_of_trace(host, use_case, choose(host.records, use_case), "threads_mean"))
        return within(float(claim["value"]), means, f"{means} threads, all ranks together, {host.gpus}".rstrip(", "))

    return each(claim, one)


def mean_cpu_use(claim: Claim, stored: Stored, choose: Choose) -> Verdict:
    """The claim's percentage against the mean CPU use, of the cores that the ranks of that cell were given."""

    def one(use_case: str) -> Verdict:
        host = stored.on_gpus
        cell = choose(host.records, use_case)
        cores = cores_given(select(host.records, cell))
        use = interval_of(column_of_trace(host, use_case, cell, "cpu_percent_mean") / cores)
        text = f"{use} % of {cores} core{'s' * (cores > 1)}, {host.gpus}"
        return within(float(claim["value"]), use, text.rstrip(", "))

    return each(claim, one)
