"""Verdicts on notebook 04: hybrids on GPUs, and what they do to the memory, threads and CPUs of the host.

Without GPUs a bound, the paper's own tables and counted memory speak (`lockstep.predict.gpu_answers`); what only a
trace or the host's memory could tell needs the hardware.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.gpu_traces import mean_cpu_use, mean_threads
from lockstep.analysis.published_speedups import beside
from lockstep.analysis.rules import above, enough, has_more
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import TOLERANCE, Claim, Verdict, Verdicts, cell, each, join, opposite
from lockstep.predict.gpu_answers import (
    FOUR_GPUS,
    TWO_GPUS,
    faster_than,
    hybrid_memory,
    measured_or,
    only_measured,
    over_one_gpu,
    without_gpus,
)

RULES = Verdicts()

A_TRACE = f"{FOUR_GPUS} and a minute's trace of it"
_HYBRID, _MODEL, _DATA = ("data and model", "table2"), ("model", "table2"), ("GPU single-process", "table1")


def hybrid_of(records: pd.DataFrame, use_case: str, way: str) -> dict[str, Any]:
    """Conditions of the cell of `hybrid` on GPUs that is data, model or hybrid. Raises NotNow as `cell` does."""
    if way == "data":
        return cell(records, experiment="hybrid", use_case=use_case, device="cuda", strategy="processes_allreduce")
    sync = "local" if way == "model" else "allreduce"
    pipeline = {"model_parallel": "pipeline", "sync": sync}
    return cell(records, experiment="hybrid", use_case=use_case, device="cuda", **pipeline)


@RULES.add
def hybrid_gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 2, "Data and Model": replicas of a pipeline on GPUs, one process for each GPU; else the bound of the GPUs
    that the paper describes."""

    def measured() -> Verdict:
        use_case = str(claim["use_case"])
        ours = hybrid_of(stored.records, use_case, "hybrid")
        base = cell(stored.records, experiment="hybrid", use_case=use_case, device="cuda", strategy="sequential")
        return beside(claim, stored.records, [ours], base, None)

    return measured_or(measured, partial(over_one_gpu, claim, "a hybrid"), FOUR_GPUS)


@RULES.add
def hybrid_between(claim: Claim, stored: Stored) -> Verdict:
    """The hybrid above data parallelism and below model parallelism, all on GPUs; else in Tables 1 and 2."""

    def one(use_case: str) -> Verdict:
        data, model, hybrid = (hybrid_of(stored.records, use_case, way) for way in ("data", "model", "hybrid"))
        pairs = (("hybrid over data", hybrid, data), ("model over hybrid", model, hybrid))
        text = "times the images/s on GPUs"
        return join([(name, has_more(stored.records, high, low, text)) for name, high, low in pairs])

    tables = partial(faster_than, claim, [(_HYBRID, _DATA), (_MODEL, _HYBRID)])
    return measured_or(partial(each, claim, one), tables, FOUR_GPUS)


def _hybrid(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    """Figure 4b is of the hybrid."""
    return hybrid_of(records, use_case, "hybrid")


@RULES.add
def hybrid_trace_threads(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4b: mean number of threads."""
    return only_measured(partial(mean_threads, claim, stored, _hybrid), A_TRACE)


@RULES.add
def hybrid_trace_cpu(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4b: mean CPU use, of the cores that the ranks were given."""
    return only_measured(partial(mean_cpu_use, claim, stored, _hybrid), A_TRACE)


@RULES.add
def hybrid_ram(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of the host with the hybrid over that with model parallelism, both on GPUs: no more, up to TOLERANCE."""

    def one(use_case: str) -> Verdict:
        hybrid, model = (hybrid_of(stored.records, use_case, way) for way in ("hybrid", "model"))
        ratio = ratio_with_interval(stored.records, hybrid, model, "peak_pss_bytes")
        enough(ratio.rounds)
        limit, text = 1 + TOLERANCE, "times the peak PSS of model parallelism"
        return opposite(above(ratio, limit, limit, text, f"1 + {TOLERANCE:.0%}"))

    return only_measured(partial(each, claim, one), FOUR_GPUS)


@RULES.add
def hybrid_gpu_memory(claim: Claim, stored: Stored) -> Verdict:
    """Memory of each GPU: counted, for GPUs of several sizes, for no row holds it."""
    return without_gpus(partial(hybrid_memory, claim), TWO_GPUS)
