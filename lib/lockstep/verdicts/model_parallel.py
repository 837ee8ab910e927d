"""Verdicts on model parallelism, pipelined, naive and combined with data parallelism: notebooks 03 and 04.

The paper's figures are of GPUs. Rows on the CPU never stand in for them: without CUDA such a claim is not measurable
here. What the paper says of model parallelism as such, or of the CPU, is judged from ranks of this machine's CPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis import best_strategy, interval_of, per_round, ratio_with_interval, select
from lockstep.strategies import STRATEGIES
from lockstep.verdicts.distribution import beside
from lockstep.verdicts.rules import (
    NOT_REPRODUCED,
    NOT_YET,
    REPRODUCED,
    Claim,
    NotNow,
    Verdict,
    above_one,
    below,
    cell,
    cores_of,
    each,
    enough,
    join,
    noise,
    register,
    settle,
)

PIPELINED = ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"]
TWO_CORES = {"intra_op": "threads inside operators", "processes": "a data parallel process per core"}
"""What two cores can be spent on instead of two stages."""
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


@register
def naive_slower_than_one(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Images/s of one device over naive model parallelism on two, both ranks of the CPU; a device is a core here."""

    def one(use_case: str) -> Verdict:
        naive = _speedup(records, use_case, strategy="naive_pipeline")
        alone = _speedup(records, use_case, strategy="sequential")
        ratio = ratio_with_interval(records, alone, naive, "images_per_second")
        return above_one(
            ratio, noise(records, alone), "times the images/s on one core, over two stages without pipelining"
        )

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; a device is a core here") if found.measured else found


@register
def pipelining_pays(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The fastest schedule of two stages over one device, a core each."""

    def one(use_case: str) -> Verdict:
        ours, name = pipelined(records, use_case)
        alone = _speedup(records, use_case, strategy="sequential")
        ratio = ratio_with_interval(records, ours, alone, "images_per_second")
        batch = int(select(records, ours)["global_batch_size"].iloc[0])
        text = f"times the images/s of one core, by {_cores(records, ours)} at batch {batch} ({name})"
        return above_one(ratio, noise(records, alone), text)

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; a device is a core here") if found.measured else found


def _cores(records: pd.DataFrame, ours: dict[str, Any]) -> str:
    return f"{cores_of(select(records, ours))} cores"


@register
def cpu_model_parallel_overhead(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Overhead only: a pipeline on two cores is no faster than one core, nor than two cores spent otherwise.

    One core: the paper's own words, no gain from processing data on another CPU. Two cores otherwise: what of TWO_CORES
    was measured beside it at the same batch. One comparison that the pipeline wins contradicts the claim.
    """

    def one(use_case: str) -> Verdict:
        ours, name = pipelined(records, use_case)
        parts = [("over one core", settle(partial(_no_gain, records, use_case, ours, "sequential", "one core")))]
        for rival, label in TWO_CORES.items():
            rows = select(records, {"experiment": "speedup", "use_case": use_case, "strategy": rival}, status=None)
            if len(rows):
                parts.append((f"over {label}", settle(partial(_no_gain, records, use_case, ours, rival, label))))
        if len(parts) == 1:
            raise NotNow(NOT_YET, "no rows that spend the same cores otherwise")
        found = join(parts)
        return replace(found, reason=f"compared: {name}; {found.reason}")

    return each(claim, one)


def _no_gain(records: pd.DataFrame, use_case: str, ours: dict[str, Any], rival: str, label: str) -> Verdict:
    """Reproduced if the rival is above the pipeline, or no difference can be told."""
    other = _speedup(records, use_case, strategy=rival)
    ratio = ratio_with_interval(records, ours, other, "images_per_second")
    gain = above_one(ratio, noise(records, other), f"times the images/s of {label}")
    if gain.verdict == REPRODUCED:
        return replace(gain, verdict=NOT_REPRODUCED, reason="a gain: the pipeline is faster")
    return replace(gain, verdict=REPRODUCED, reason=f"no gain ({gain.reason})")


@register
def no_gradient_sync(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The share of a pipeline's step in which gradients are exchanged between replicas, beside the share of waiting."""

    def one(use_case: str) -> Verdict:
        ours, _ = pipelined(records, use_case)
        step = per_round(records, ours, "step_seconds")
        shares = (100 * per_round(records, ours, "exchange_seconds") / step).dropna()
        idle = (100 * per_round(records, ours, "idle_seconds") / step).dropna()
        enough(min(len(shares), len(idle)))
        told = f"of a step in exchange: one replica has nobody to exchange with; {interval_of(idle)} % waiting"
        return below(interval_of(shares), EXCHANGE_PERCENT, "%", told)

    return each(claim, one)


# Table 2, over sequential training on one GPU: the paper does not say what its base is


@register
def model_gpu_speedup(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Table 2, "Model": the fastest schedule on GPUs."""
    use_case = str(claim["use_case"])
    ours, _ = pipelined(records, use_case, device="cuda")
    return beside(claim, records, ours, _speedup(records, use_case, strategy="sequential", device="cuda"), None)


@register
def model_beats_data(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The fastest schedule over all-reduce, both on GPUs."""

    def one(use_case: str) -> Verdict:
        ours, name = pipelined(records, use_case, device="cuda")
        data = _speedup(records, use_case, strategy="processes_allreduce", device="cuda")
        ratio = ratio_with_interval(records, ours, data, "images_per_second")
        return above_one(ratio, None, f"times data parallelism in images/s on GPUs ({name})")

    return each(claim, one)


def hybrid_of(records: pd.DataFrame, use_case: str, way: str) -> dict[str, Any]:
    """Conditions of the cell of `hybrid` on GPUs that is data, model or hybrid. Raises NotNow as `cell` does."""
    if way == "data":
        return cell(records, experiment="hybrid", use_case=use_case, device="cuda", strategy="processes_allreduce")
    sync = "local" if way == "model" else "allreduce"
    pipeline = {"model_parallel": "pipeline", "sync": sync}
    return cell(records, experiment="hybrid", use_case=use_case, device="cuda", **pipeline)


@register
def hybrid_gpu_speedup(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Table 2, "Data and Model": replicas of a pipeline on GPUs, one process for each GPU."""
    use_case = str(claim["use_case"])
    ours = hybrid_of(records, use_case, "hybrid")
    base = cell(records, experiment="hybrid", use_case=use_case, device="cuda", strategy="sequential")
    return beside(claim, records, ours, base, None)


@register
def hybrid_between(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The hybrid above data parallelism and below model parallelism, all on GPUs."""

    def one(use_case: str) -> Verdict:
        data, model, hybrid = (hybrid_of(records, use_case, way) for way in ("data", "model", "hybrid"))
        pairs = (("hybrid over data", hybrid, data), ("model over hybrid", model, hybrid))
        parts = []
        for name, above, under in pairs:
            ratio = ratio_with_interval(records, above, under, "images_per_second")
            parts.append((name, above_one(ratio, None, "times the images/s on GPUs")))
        return join(parts)

    return each(claim, one)
