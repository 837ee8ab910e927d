"""Verdicts on Figure 4 and on memory: what training in stages, and replicas of them, does to the host of the GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from lockstep.analysis import Ratio, interval_of, ratio_with_interval, select
from lockstep.summaries import trace_table
from lockstep.verdicts.model_parallel import hybrid_of, pipelined
from lockstep.verdicts.rules import (
    NOT_REPRODUCED,
    NOT_YET,
    REPRODUCED,
    Claim,
    NotNow,
    Verdict,
    above_one,
    cores_of,
    each,
    enough,
    register,
    within,
)

VARIES = 0.25
"""A coefficient of variation from which on CPU use varies much; the paper gives none."""


def _traced(
    records: pd.DataFrame, resources: pd.DataFrame | None, use_case: str, ours: dict[str, Any], column: str
) -> pd.Series:
    """A column of `trace_table`, one value per round, of a cell on GPUs. Raises NotNow without a trace."""
    if resources is None or resources.empty:
        raise NotNow(NOT_YET, "no resource traces were stored")
    strategy = select(records, ours)["strategy"].iloc[0]
    wanted = {"experiment": ours["experiment"], "use_case": use_case, "strategy": strategy, "device": "cuda"}
    traces = select(resources, wanted, status=None)
    if traces.empty:
        raise NotNow(NOT_YET, f"no resource trace of {use_case} with {strategy} on GPUs")
    found = trace_table(traces).set_index("round")[column].dropna()
    enough(len(found))
    return found


def _cell_of(claim: Claim, records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    """Figure 4b is of the hybrid, Figure 4a of model parallelism."""
    if str(claim["notebook"]).startswith("04"):
        return hybrid_of(records, use_case, "hybrid")
    return pipelined(records, use_case, device="cuda")[0]


def _mean_of_trace(
    claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None, column: str, unit: str
) -> Verdict:
    def one(use_case: str) -> Verdict:
        means = interval_of(_traced(records, resources, use_case, _cell_of(claim, records, use_case), column))
        return within(float(claim["value"]), means, f"{means} {unit}, all ranks together")

    return each(claim, one)


@register
def gpu_trace_threads(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Figure 4: mean number of threads."""
    return _mean_of_trace(claim, records, resources, "threads_mean", "threads")


@register
def gpu_trace_cpu(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Figure 4: mean CPU use, of the cores that the ranks were given."""

    def one(use_case: str) -> Verdict:
        ours = _cell_of(claim, records, use_case)
        cores = cores_of(select(records, ours))
        use = interval_of(_traced(records, resources, use_case, ours, "cpu_percent_mean") / cores)
        return within(float(claim["value"]), use, f"{use} % of {cores} cores")

    return each(claim, one)


@register
def gpu_trace_cpu_varies(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Figure 4a: the standard deviation of CPU use over its mean, within a trace; VARIES and more is much."""

    def one(use_case: str) -> Verdict:
        ours = _cell_of(claim, records, use_case)
        _traced(records, resources, use_case, ours, "cpu_percent_mean")  # raises where there is too little
        assert resources is not None
        strategy = select(records, ours)["strategy"].iloc[0]
        own = select(resources, {"use_case": use_case, "strategy": strategy, "device": "cuda"}, status=None)
        use = own.groupby("round")["cpu_percent"]
        spread: Ratio = interval_of((use.std() / use.mean()).dropna())
        much = spread.low >= VARIES
        why = f"the interval is {'not ' if not much else ''}above {VARIES:g}"
        return Verdict(REPRODUCED if much else NOT_REPRODUCED, f"{spread} (standard deviation / mean of CPU use)", why)

    return each(claim, one)


@register
def hybrid_ram(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Peak PSS of the host with the hybrid over that with model parallelism, both on GPUs: is it no more?"""

    def one(use_case: str) -> Verdict:
        hybrid, model = (hybrid_of(records, use_case, way) for way in ("hybrid", "model"))
        ratio = ratio_with_interval(records, hybrid, model, "peak_pss_bytes")
        more = above_one(ratio, None, "times the peak PSS of model parallelism")
        if more.verdict == REPRODUCED:
            return replace(more, verdict=NOT_REPRODUCED, reason=f"more: {more.reason}")
        return replace(more, verdict=REPRODUCED, reason=f"no more: {more.reason}")

    return each(claim, one)


@register
def hybrid_gpu_memory(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Memory of each GPU: needs records of GPUs first, and a measure of their memory."""

    def one(use_case: str) -> Verdict:
        hybrid_of(records, use_case, "hybrid")  # raises with the reason of skipped rows
        raise NotNow(NOT_YET, "there are GPU records, but no row holds the memory of a GPU")

    return each(claim, one)
