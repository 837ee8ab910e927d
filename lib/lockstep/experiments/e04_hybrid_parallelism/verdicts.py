"""Verdicts on notebook 04: hybrids on GPUs, and what they do to the memory, threads and CPUs of the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from lockstep.analysis.gpu_traces import mean_cpu_use, mean_threads
from lockstep.analysis.published_speedups import beside
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    NOT_YET,
    SUPPORTED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    above_one,
    cell,
    each,
    join,
)

RULES = Verdicts()


def hybrid_of(records: pd.DataFrame, use_case: str, way: str) -> dict[str, Any]:
    """Conditions of the cell of `hybrid` on GPUs that is data, model or hybrid. Raises NotNow as `cell` does."""
    if way == "data":
        return cell(records, experiment="hybrid", use_case=use_case, device="cuda", strategy="processes_allreduce")
    sync = "local" if way == "model" else "allreduce"
    pipeline = {"model_parallel": "pipeline", "sync": sync}
    return cell(records, experiment="hybrid", use_case=use_case, device="cuda", **pipeline)


@RULES.add
def hybrid_gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 2, "Data and Model": replicas of a pipeline on GPUs, one process for each GPU."""
    use_case = str(claim["use_case"])
    ours = hybrid_of(stored.records, use_case, "hybrid")
    base = cell(stored.records, experiment="hybrid", use_case=use_case, device="cuda", strategy="sequential")
    return beside(claim, stored.records, ours, base, None)


@RULES.add
def hybrid_between(claim: Claim, stored: Stored) -> Verdict:
    """The hybrid above data parallelism and below model parallelism, all on GPUs."""

    def one(use_case: str) -> Verdict:
        data, model, hybrid = (hybrid_of(stored.records, use_case, way) for way in ("data", "model", "hybrid"))
        pairs = (("hybrid over data", hybrid, data), ("model over hybrid", model, hybrid))
        parts = []
        for name, above, under in pairs:
            ratio = ratio_with_interval(stored.records, above, under, "images_per_second")
            parts.append((name, above_one(ratio, 0.0, "times the images/s on GPUs")))
        return join(parts)

    return each(claim, one)


def _hybrid(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    """Figure 4b is of the hybrid."""
    return hybrid_of(records, use_case, "hybrid")


@RULES.add
def hybrid_trace_threads(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4b: mean number of threads."""
    return mean_threads(claim, stored, _hybrid)


@RULES.add
def hybrid_trace_cpu(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4b: mean CPU use, of the cores that the ranks were given."""
    return mean_cpu_use(claim, stored, _hybrid)


@RULES.add
def hybrid_ram(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of the host with the hybrid over that with model parallelism, both on GPUs: is it no more?"""

    def one(use_case: str) -> Verdict:
        hybrid, model = (hybrid_of(stored.records, use_case, way) for way in ("hybrid", "model"))
        ratio = ratio_with_interval(stored.records, hybrid, model, "peak_pss_bytes")
        more = above_one(ratio, 0.0, "times the peak PSS of model parallelism")
        if more.answer == SUPPORTED:
            return replace(more, answer=CONTRADICTED, reason=f"more: {more.reason}")
        return replace(more, answer=SUPPORTED, reason=f"no more: {more.reason}")

    return each(claim, one)


@RULES.add
def hybrid_gpu_memory(claim: Claim, stored: Stored) -> Verdict:
    """Memory of each GPU: needs records of GPUs first, and a measure of their memory."""

    def one(use_case: str) -> Verdict:
        hybrid_of(stored.records, use_case, "hybrid")  # raises with the reason of skipped rows
        raise NotNow(NOT_YET, "there are GPU records, but no row holds the memory of a GPU")

    return each(claim, one)
