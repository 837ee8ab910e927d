"""Notebook 03's verdicts on model parallelism, pipelined and naive.

The paper's numbers were measured on GPUs. Rows on the CPU never stand in for them: without CUDA such a claim is not
measurable here. What the paper says about model parallelism as such, or about the CPU, is judged from ranks on this
machine's CPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.gpu_traces import column_of_trace, mean_cpu_use, mean_threads, rows_of_trace
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.published_speedups import beside
from lockstep.analysis.statistics import best_strategy, interval_of, per_round, ratio_with_interval, select
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
    below,
    cell,
    cores_given,
    each,
    enough,
    join,
    settle,
)
from lockstep.engine.job.strategies import STRATEGIES

RULES = Verdicts()

PIPELINED = ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"]
TWO_CORES = {"intra_op": "threads inside operators", "processes": "a data parallel process per core"}
"""What two cores can be spent on instead of two stages."""
VARIES = 0.25
"""A coefficient of variation from which on CPU use varies much; the paper gives none."""
EXCHANGE_PERCENT = 1.0
"""Less of a step than this is no synchronisation of gradients."""


def _speedup(records: pd.DataFrame, use_case: str, **conditions: Any) -> dict[str, Any]:
    return cell(records, experiment="speedup", use_case=use_case, **conditions)


def pipelined(records: pd.DataFrame, use_case: str, **conditions: Any) -> tuple[dict[str, Any], str]:
    """Conditions of the fastest schedule, and its name with the number of those it was chosen from."""
    ours = _speedup(records, use_case, strategy=PIPELINED, **conditions)
    rows = select(records, ours)
    ours["strategy"] = best_strategy(records, ours)
    count = rows["strategy"].nunique()
    chosen = f"the fastest of {count} schedules: " if count > 1 else ""
    return ours, chosen + STRATEGIES[str(ours["strategy"])].label


# Model parallelism, as such


@RULES.add
def naive_slower_than_one(claim: Claim, stored: Stored) -> Verdict:
    """Images/s of one device over naive model parallelism on two, both ranks of the CPU; a device is a core here."""

    def one(use_case: str) -> Verdict:
        naive = _speedup(stored.records, use_case, strategy="naive_pipeline")
        alone = _speedup(stored.records, use_case, strategy="sequential")
        ratio = ratio_with_interval(stored.records, alone, naive, "images_per_second")
        return above_one(
            ratio, aa_noise(stored.records), "times the images/s on one core, over two stages without pipelining"
        )

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; a device is a core here") if found.measured else found


@RULES.add
def pipelining_pays(claim: Claim, stored: Stored) -> Verdict:
    """The fastest schedule of two stages over one device, a core each."""

    def one(use_case: str) -> Verdict:
        ours, name = pipelined(stored.records, use_case)
        alone = _speedup(stored.records, use_case, strategy="sequential")
        ratio = ratio_with_interval(stored.records, ours, alone, "images_per_second")
        batch = int(select(stored.records, ours)["global_batch_size"].iloc[0])
        text = f"times the images/s of one core, by {_cores(stored.records, ours)} at batch {batch} ({name})"
        return above_one(ratio, aa_noise(stored.records), text)

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; a device is a core here") if found.measured else found


def _cores(records: pd.DataFrame, ours: dict[str, Any]) -> str:
    return f"{cores_given(select(records, ours))} cores"


@RULES.add
def cpu_model_parallel_overhead(claim: Claim, stored: Stored) -> Verdict:
    """Overhead only: a pipeline on two cores is no faster than one core, nor than two cores spent otherwise.

    One core: the paper's own words, no gain from processing data on another CPU. Two cores otherwise: what of TWO_CORES
    was measured beside it at the same batch. One comparison that the pipeline wins contradicts the claim.
    """

    def one(use_case: str) -> Verdict:
        ours, name = pipelined(stored.records, use_case)
        parts = [("over one core", settle(partial(_no_gain, stored.records, use_case, ours, "sequential", "one core")))]
        for rival, label in TWO_CORES.items():
            rows = select(
                stored.records, {"experiment": "speedup", "use_case": use_case, "strategy": rival}, status=None
            )
            if len(rows):
                parts.append((f"over {label}", settle(partial(_no_gain, stored.records, use_case, ours, rival, label))))
        if len(parts) == 1:
            raise NotNow(NOT_YET, "no rows that spend the same cores otherwise")
        found = join(parts)
        return replace(found, reason=f"compared: {name}; {found.reason}")

    return each(claim, one)


def _no_gain(records: pd.DataFrame, use_case: str, ours: dict[str, Any], rival: str, label: str) -> Verdict:
    """Reproduced if the rival is above the pipeline, or no difference can be measured."""
    other = _speedup(records, use_case, strategy=rival)
    ratio = ratio_with_interval(records, ours, other, "images_per_second")
    gain = above_one(ratio, aa_noise(records), f"times the images/s of {label}")
    if gain.answer == SUPPORTED:
        return replace(gain, answer=CONTRADICTED, reason="a gain: the pipeline is faster")
    return replace(gain, answer=SUPPORTED, reason=f"no gain ({gain.reason})")


@RULES.add
def no_gradient_sync(claim: Claim, stored: Stored) -> Verdict:
    """The share of a pipeline's step in which gradients are exchanged between replicas, beside the share of waiting."""

    def one(use_case: str) -> Verdict:
        ours, _ = pipelined(stored.records, use_case)
        step = per_round(stored.records, ours, "step_seconds")
        shares = (100 * per_round(stored.records, ours, "exchange_seconds") / step).dropna()
        idle = (100 * per_round(stored.records, ours, "idle_seconds") / step).dropna()
        enough(min(len(shares), len(idle)))
        text = f"of a step in exchange: one replica has nobody to exchange with; {interval_of(idle)} % waiting"
        return below(interval_of(shares), EXCHANGE_PERCENT, "%", text)

    return each(claim, one)


# Table 2, over sequential training on one GPU: the paper does not say what its base is


@RULES.add
def model_gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 2, "Model": the fastest schedule on GPUs."""
    use_case = str(claim["use_case"])
    ours, _ = pipelined(stored.records, use_case, device="cuda")
    return beside(
        claim, stored.records, ours, _speedup(stored.records, use_case, strategy="sequential", device="cuda"), None
    )


@RULES.add
def model_beats_data(claim: Claim, stored: Stored) -> Verdict:
    """The fastest schedule over all-reduce, both on GPUs."""

    def one(use_case: str) -> Verdict:
        ours, name = pipelined(stored.records, use_case, device="cuda")
        data = _speedup(stored.records, use_case, strategy="processes_allreduce", device="cuda")
        ratio = ratio_with_interval(stored.records, ours, data, "images_per_second")
        return above_one(ratio, 0.0, f"times data parallelism in images/s on GPUs ({name})")

    return each(claim, one)


# Figure 4a: the host of the GPUs


def _pipelined_on_gpus(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    return pipelined(records, use_case, device="cuda")[0]


@RULES.add
def gpu_trace_threads(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4a: mean number of threads."""
    return mean_threads(claim, stored, _pipelined_on_gpus)


@RULES.add
def gpu_trace_cpu(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4a: mean CPU use, of the cores that the ranks were given."""
    return mean_cpu_use(claim, stored, _pipelined_on_gpus)


@RULES.add
def gpu_trace_cpu_varies(claim: Claim, stored: Stored) -> Verdict:
    """Figure 4a: the standard deviation of CPU use over its mean, within a trace; VARIES and more is much."""

    def one(use_case: str) -> Verdict:
        ours = _pipelined_on_gpus(stored.records, use_case)
        column_of_trace(stored, use_case, ours, "cpu_percent_mean")  # raises where there is too little
        use = rows_of_trace(stored, use_case, ours).groupby("round")["cpu_percent"]
        spread = interval_of((use.std() / use.mean()).dropna())
        much = spread.low >= VARIES
        why = f"the interval is {'not ' if not much else ''}above {VARIES:g}"
        return Verdict(SUPPORTED if much else CONTRADICTED, f"{spread} (standard deviation / mean of CPU use)", why)

    return each(claim, one)
