"""Notebook 03's verdicts on GPUs: Table 2, and the host of the GPUs in Figure 4a.

Rows on the CPU never stand in for GPUs. Without any, a bound, the paper's own tables and a model speak
(`lockstep.predict.gpu_answers`); what only a trace could tell needs the hardware.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.gpu_traces import column_of_trace, mean_cpu_use, mean_threads, rows_of_trace
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.published_speedups import beside
from lockstep.analysis.rules import above_one, graded, not_below, with_seconds
from lockstep.analysis.statistics import Estimate, interval_of, median_or_nan, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import PAPER, Claim, Verdict, Verdicts, cell, each
from lockstep.experiments.e03_pipelined_model_parallelism.verdicts import Pipelined, schedules, speedup_cell
from lockstep.predict.gpu_answers import (
    TWO_GPUS,
    cpu_per_image,
    faster_than,
    measured_or,
    model_against_data,
    only_measured,
    over_one_gpu,
)

RULES = Verdicts()

VARIES = 0.25
"""A coefficient of variation from which on CPU use varies much; the paper gives none."""
A_TRACE = f"{TWO_GPUS} and a minute's trace of it"


# Table 2, over sequential training on one GPU: the paper does not say what its base is


@RULES.add
def model_gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 2, "Model": the fastest schedule on GPUs; else the bound of the GPUs that the paper describes."""

    def measured() -> Verdict:
        use_case = str(claim["use_case"])
        ours = schedules(stored.records, use_case, device="cuda")
        base = speedup_cell(stored.records, use_case, strategy="sequential", device="cuda")
        return beside(claim, stored.records, ours, base, None)

    return measured_or(measured, partial(over_one_gpu, claim, "a pipeline"), TWO_GPUS)


@RULES.add
def model_beats_data(claim: Claim, stored: Stored) -> Verdict:
    """The fastest schedule over all-reduce, both on GPUs; else Table 2 against Table 1."""

    def one(use_case: str) -> Verdict:
        records = stored.records
        data = speedup_cell(records, use_case, strategy="processes_allreduce", device="cuda")
        ours = Pipelined.over(records, schedules(records, use_case, device="cuda"), data)
        text = f"times data parallelism in images/s on GPUs ({ours.name})"
        return with_seconds(above_one(ours.ratio, aa_noise(records), text), records, ours.sides)

    def tables() -> Verdict:
        found = faster_than(claim, [(("model", "table2"), ("GPU single-process", "table1"))])
        return graded(found, PAPER, model_against_data())

    return measured_or(partial(each, claim, one), tables, TWO_GPUS)


# Figure 4a: the host of the GPUs


def _pipelined_on_gpus(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    """The schedule with the highest median images/s: what is judged is its host's CPU and threads, not its speed."""
    found = schedules(records, use_case, device="cuda")
    return max(found, key=lambda each: median_or_nan(select(records, each)["images_per_second"]))


@RULES.add
def gpu_trace_threads(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4a: mean number of threads."""
    return only_measured(partial(mean_threads, claim, stored, _pipelined_on_gpus), A_TRACE)


@RULES.add
def gpu_trace_cpu(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4a: mean CPU use, of the cores that the ranks were given; else what it leaves for decoding an image."""

    def decoded_over_trained() -> Estimate:
        use_case = str(claim["use_case"])
        decoding = cell(stored.records, experiment="decode", use_case=use_case, strategy="decode")
        training = speedup_cell(stored.records, use_case, strategy="sequential")
        return ratio_with_interval(stored.records, decoding, training, "images_per_second")

    measured = partial(mean_cpu_use, claim, stored, _pipelined_on_gpus)
    return measured_or(measured, partial(cpu_per_image, claim, decoded_over_trained), A_TRACE)


@RULES.add
def gpu_trace_cpu_varies(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4a: the standard deviation of CPU use over its mean, within a trace; VARIES and more is much."""

    def one(use_case: str) -> Verdict:
        ours = _pipelined_on_gpus(stored.records, use_case)
        column_of_trace(stored, use_case, ours, "cpu_percent_mean")  # raises where there is too little
        use = rows_of_trace(stored, use_case, ours).groupby("round")["cpu_percent"]
        spread = interval_of((use.std() / use.mean()).dropna())
        return not_below(spread, VARIES, "", "(standard deviation / mean of CPU use)")

    return only_measured(partial(each, claim, one), A_TRACE)
