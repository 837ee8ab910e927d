"""Notebook 03's verdicts on model parallelism as such, from ranks on this machine's CPU: a device is a core here.

The paper's section 3.3.1 names no use case there, so each is judged that was measured. What its tables and figures say
of GPUs is judged in `gpu_verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.rules import above, above_one, enough, has_more, one_and_noise, undecided, with_seconds
from lockstep.analysis.statistics import AnalysisError, Conditions, Estimate, each_strategy, highest_ratio, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    NOT_YET,
    SUPPORTED,
    TOLERANCE,
    USE_CASES,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    any_of,
    cell,
    cores_given,
    join,
    settle,
)
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.experiments.e03_pipelined_model_parallelism.grid import TWO_CORES
from lockstep.predict import gpus

RULES = Verdicts()

PIPELINED = ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"]
A_CORE = "a device is a core here"


def speedup_cell(records: pd.DataFrame, use_case: str, **conditions: Any) -> dict[str, Any]:
    return cell(records, experiment="speedup", use_case=use_case, **conditions)


def schedules(records: pd.DataFrame, use_case: str, **conditions: Any) -> list[dict[str, Any]]:
    """Conditions of the pipeline by each of its schedules that ran. Raises NotNow where none did."""
    return each_strategy(records, speedup_cell(records, use_case, strategy=PIPELINED, **conditions))


@dataclass(frozen=True)
class Pipelined:
    """The fastest schedule's images/s over those of `base`, with an interval that pays for the choice."""

    ratio: Estimate
    cell: Conditions  # of the schedule with the largest mean
    name: str
    sides: list[Conditions]  # all schedules, and the base

    @classmethod
    def over(cls, records: pd.DataFrame, found: list[dict[str, Any]], base: Conditions) -> Pipelined:
        ratio, place = highest_ratio(records, found, base, "images_per_second")
        among = f"the fastest of {len(found)} schedules: " if len(found) > 1 else ""
        return cls(ratio, found[place], among + STRATEGIES[str(found[place]["strategy"])].label, [*found, base])


def _measured(stored: Stored, one: Callable[[str], Verdict]) -> list[tuple[str, Verdict]]:
    """The verdict on each use case of which there are records. Raises NotNow if there are none."""
    records = stored.records
    own = records[(records["experiment"] == "speedup") & (records["device"] == "cpu")]
    names = [name for name in (*USE_CASES, *dict.fromkeys(own["use_case"])) if name in set(own["use_case"])]
    if not names:
        raise NotNow(NOT_YET, "no records of model parallelism")
    return [(name, settle(partial(one, name))) for name in dict.fromkeys(names)]


def _with_reason(found: Verdict, *more: str) -> Verdict:
    return replace(found, reason="; ".join(part for part in (found.reason, *more) if part)) if found.measured else found


@RULES.add
def naive_slower_than_one(claim: Claim, stored: Stored) -> Verdict:
    """Images/s of one device over naive model parallelism on two, both ranks of the CPU."""

    def one(use_case: str) -> Verdict:
        naive = speedup_cell(stored.records, use_case, strategy="naive_pipeline")
        alone = speedup_cell(stored.records, use_case, strategy="sequential")
        return has_more(
            stored.records, alone, naive, "times: the images/s on one core over those of two stages without pipelining"
        )

    return _with_reason(join(_measured(stored, one)), A_CORE)


@RULES.add
def pipelining_pays(claim: Claim, stored: Stored) -> Verdict:
    """Two stages in a pipeline over one device, a core each. The paper makes it depend on batch and model, so one use
    case in which it pays supports it, and all must speak against it.

    What the same two cores give otherwise stands beside it: a pipeline that beats one core need not beat that.
    """

    def one(use_case: str) -> Verdict:
        records = stored.records
        alone = speedup_cell(records, use_case, strategy="sequential")
        ours = Pipelined.over(records, schedules(records, use_case), alone)
        rows = select(records, ours.cell)
        batch, pieces = int(rows["global_batch_size"].iloc[0]), int(rows["micro_batches"].iloc[0])
        cores = f"{cores_given(rows)} cores at batch {batch} in {pieces} micro-batches"
        text = f"times the images/s of one core, by {cores} ({ours.name})"
        return with_seconds(above_one(ours.ratio, aa_noise(records), text), records, ours.sides)

    parts = _measured(stored, one)
    found = any_of(parts)
    return _with_reason(found, A_CORE, _on_gpus(), _equal_cores(stored, [name for name, _ in parts]))


def _on_gpus() -> str:
    drawn = gpus.drawn_machines()
    ranges = ", ".join(f"{gpus.range_of(gpus.pipeline(name, drawn))} in {name}" for name in USE_CASES)
    return f"of two GPUs over one, modelled: {ranges}"


def _equal_cores(stored: Stored, use_cases: list[str]) -> str:
    found = []
    for use_case in use_cases:
        for rival in TWO_CORES:
            try:
                ratio = over_rival(stored.records, use_case, rival).ratio
            except (AnalysisError, NotNow):
                continue
            found.append(f"{ratio} of {STRATEGIES[rival].label} ({use_case})")
    return f"over the same two cores spent otherwise it gives {', '.join(found)}" if found else ""


def over_rival(records: pd.DataFrame, use_case: str, rival: str) -> Pipelined:
    """The pipeline's images/s over those of a rival on as many cores."""
    other = speedup_cell(records, use_case, strategy=rival)
    found = Pipelined.over(records, schedules(records, use_case), other)
    budgets = [cores_given(select(records, each)) for each in (found.cell, other)]
    if budgets[0] != budgets[1]:
        raise NotNow(NOT_YET, f"{found.name} ran on {budgets[0]} cores, {rival} on {budgets[1]}: no fair comparison")
    return found


@RULES.add
def cpu_model_parallel_overhead(claim: Claim, stored: Stored) -> Verdict:
    """Overhead only: a pipeline gives no more than the same cores give in some other way (TWO_CORES).

    Against one core it has twice the cores, which speaks neither way. Only a pipeline that is faster than every other
    way contradicts the claim; one way that it does not beat supports it.
    """

    def one(use_case: str) -> Verdict:
        parts = []
        for rival in TWO_CORES:
            wanted = {"experiment": "speedup", "use_case": use_case, "strategy": rival, "device": "cpu"}
            if len(select(stored.records, wanted, status=None)):
                parts.append((f"over {STRATEGIES[rival].label}", settle(partial(_no_gain, stored, use_case, rival))))
        if not parts:
            raise NotNow(NOT_YET, "no rows that spend the same cores otherwise")
        return any_of(parts)

    return join(_measured(stored, one))


def _no_gain(stored: Stored, use_case: str, rival: str) -> Verdict:
    """Supported if the pipeline gains less than TOLERANCE over the rival, contradicted if it gains beyond noise."""
    ours = over_rival(stored.records, use_case, rival)
    ratio = ours.ratio
    enough(ratio.rounds)
    text = f"times its images/s ({ours.name})"
    noise = aa_noise(stored.records)
    gain = above(ratio, math.exp(noise), 0.0, text, one_and_noise(noise))
    if gain.answer == SUPPORTED:
        found = replace(gain, answer=CONTRADICTED, reason="a gain: the pipeline is faster")
    elif ratio.high <= 1 + TOLERANCE:
        why = f"no gain of {TOLERANCE:.0%} or more on the same cores"
        found = replace(gain, answer=SUPPORTED, reason=why, chance=ratio.chance(1 + TOLERANCE))
    else:
        edges = [edge for edge in (1.0, 1 + TOLERANCE) if (ratio.value > edge) == (edge == 1.0)]
        more = min(ratio.rounds_until(edge) for edge in edges) - ratio.rounds
        found = undecided(gain.measured, f"the interval holds gains of less and of more than {TOLERANCE:.0%}", more)
    return with_seconds(found, stored.records, ours.sides)
