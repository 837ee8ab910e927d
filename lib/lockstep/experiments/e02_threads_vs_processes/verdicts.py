"""Verdicts on the paper's own gaps, on speedups and on comparisons of speed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.published_speedups import near
from lockstep.analysis.statistics import (
    BASELINE,
    Estimate,
    interval_of,
    is_difference,
    paired_ratios,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    above_one,
    compare,
    cores_given,
    each,
    enough,
    join,
    sequential,
    table1,
)

RULES = Verdicts()


def published_speedup(claim: Claim, records: pd.DataFrame, strategy: str | None, device: str) -> Verdict:
    """A published speedup against ours, over sequential training on the same device."""
    wanted: dict[str, Any] = {"use_case": claim["use_case"], "device": device}
    ours = table1(records, **wanted, **({"strategy": strategy} if strategy else {}))
    if strategy is None:
        ours = {**ours, "strategy": sorted(set(select(records, ours)["strategy"]) - {"sequential"})}
    base = {**table1(records, **wanted, **BASELINE), "workers": 1}
    ratio = ratio_with_interval(records, ours, base, "images_per_second")
    rows = select(records, ours)
    cores = cores_given(rows) if device == "cpu" else None
    batches = [int(found["global_batch_size"].iloc[0]) for found in (rows, select(records, base))]
    return near(float(claim["value"]), ratio, cores, *batches)


@RULES.add
def threads_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, CPU single-process: one replica per thread."""
    return published_speedup(claim, stored.records, "threads", "cpu")


@RULES.add
def processes_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, CPU multi-process: one replica per process."""
    return published_speedup(claim, stored.records, "processes", "cpu")


@RULES.add
def cpu_modes_speed_up(claim: Claim, stored: Stored) -> Verdict:
    """Threads and processes are both faster than sequential training."""
    parts = []
    for strategy in ("threads", "processes"):

        def one(use_case: str, strategy: str = strategy) -> Verdict:
            ours = table1(stored.records, use_case=use_case, device="cpu", strategy=strategy)
            base = sequential(stored.records, use_case)
            ratio = ratio_with_interval(stored.records, ours, base, "images_per_second")
            return above_one(ratio, aa_noise(stored.records), "times sequential")

        parts.append((strategy, each(claim, one)))
    return join(parts)


@RULES.add
def processes_beat_threads(claim: Claim, stored: Stored) -> Verdict:
    """More images/s with processes than with threads, on the same cores."""
    return compare(claim, stored.records, "processes", "threads", "images_per_second", "times threads in images/s")


@RULES.add
def gil_hinders_threads(claim: Claim, stored: Stored) -> Verdict:
    """Processes / threads bounds what the GIL costs from above; it can refute the claim, not show the lock's part."""
    found = processes_beat_threads(claim, stored)
    if found.answer == SUPPORTED:
        why = "threads are behind, but they share the allocator and page tables, too: only a bound of the GIL's cost"
        return Verdict(NEEDS_HARDWARE, found.measured, why)
    return found


@RULES.add
def processes_best_local(claim: Claim, stored: Stored) -> Verdict:
    """Processes against every other way of using the same cores in Table 1: threads, and threads inside operators."""
    text = "times {} in images/s"
    others = ("threads", "intra_op")
    parts = [(n, compare(claim, stored.records, "processes", n, "images_per_second", text.format(n))) for n in others]
    return join(parts)


@RULES.add
def gain_depends_on_use_case(claim: Claim, stored: Stored) -> Verdict:
    """The speedups of the two use cases differ, whichever is larger."""
    parts = []
    for strategy in ("threads", "processes"):
        ratio = _use_case_ratio(stored.records, strategy)
        enough(ratio.rounds)
        differs = is_difference(ratio)
        why = "the interval excludes 1" if differs else "no difference: the interval holds 1"
        word = SUPPORTED if differs else CONTRADICTED
        parts.append((strategy, Verdict(word, f"{ratio} (SimpleBig's speedup over ComplexSmall's)", why)))
    found = join(parts)
    return Verdict(found.answer, found.measured, f"{found.reason}; {claim['note']}")


def _use_case_ratio(records: pd.DataFrame, strategy: str) -> Estimate:
    """SimpleBig's speedup over ComplexSmall's, paired per round."""
    series = []
    for use_case in ("SimpleBig", "ComplexSmall"):
        ours = table1(records, use_case=use_case, device="cpu", strategy=strategy)
        series.append(paired_ratios(records, ours, sequential(records, use_case), "images_per_second"))
    ratios = (series[0] / series[1]).dropna()
    if ratios.empty:
        raise NotNow(NOT_YET, "no round holds both use cases")
    return interval_of(ratios)


@RULES.add
def larger_gain_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """The speedup of each CPU mode is larger for SimpleBig than for ComplexSmall, paired per round."""
    parts = []
    for strategy in ("threads", "processes"):
        ratio = _use_case_ratio(stored.records, strategy)
        parts.append((strategy, above_one(ratio, 0.0, "(SimpleBig's speedup over ComplexSmall's)")))
    found = join(parts)
    return Verdict(found.answer, found.measured, f"{found.reason}; {claim['note']}")
