"""Verdicts on memory, threads and CPU use, from peak PSS and from the resource traces."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.statistics import interval_of, mean_of, ratio_with_interval, select
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import trace_table
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    FULL_CPU_PERCENT,
    NOT_YET,
    SUPPORTED,
    TOLERANCE,
    USE_CASES,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    above_one,
    at_least,
    compare,
    cores_given,
    each,
    enough,
    join,
    sequential,
    table1,
)

RULES = Verdicts()


@RULES.add
def replicas_need_memory(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of several processes against that of sequential training."""

    def one(use_case: str) -> Verdict:
        ours = table1(stored.records, use_case=use_case, device="cpu", strategy="processes")
        base = sequential(stored.records, use_case)
        ratio = ratio_with_interval(stored.records, ours, base, "peak_pss_bytes")
        return above_one(ratio, aa_noise(stored.records, "peak_pss_bytes"), "times sequential in peak PSS")

    return each(claim, one)


@RULES.add
def processes_less_memory(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of threads above that of processes, all workers together."""
    return compare(
        claim, stored.records, "threads", "processes", "peak_pss_bytes", "(peak PSS, threads over processes)"
    )


@RULES.add
def complex_small_more_memory(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of ComplexSmall above SimpleBig's, with threads and with processes."""
    parts = []
    for strategy in ("threads", "processes"):
        big, small = (table1(stored.records, use_case=name, device="cpu", strategy=strategy) for name in USE_CASES)
        ratio = ratio_with_interval(stored.records, big, small, "peak_pss_bytes")
        batches = [int(select(stored.records, c)["per_worker_batch_size"].iloc[0]) for c in (big, small)]
        text = f"(peak PSS at {batches[0]} and {batches[1]} images per worker)"
        parts.append((strategy, above_one(ratio, aa_noise(stored.records, "peak_pss_bytes"), text)))
    return join(parts)


_all_traces = once(lambda stored: trace_table(stored.table("resources")))


def _traces(stored: Stored, use_case: str, strategies: tuple[str, ...], column: str) -> pd.DataFrame:
    """A column of `trace_table` as rounds x strategies. Raises NotNow where a strategy has no trace."""
    if stored.table("resources").empty:
        raise NotNow(NOT_YET, "no resource traces were stored")
    table = _all_traces(stored)
    traced = table[(table["use_case"] == use_case) & table["strategy"].isin(strategies)]
    if "table1" in set(traced["experiment"]):
        traced = traced[traced["experiment"] == "table1"]
    missing = set(strategies) - set(traced["strategy"])
    if missing:
        raise NotNow(NOT_YET, f"no resource trace of {use_case} with {', '.join(sorted(missing))}")
    return traced.pivot_table(index="round", columns="strategy", values=column).dropna()


def _compare_traces(claim: Claim, stored: Stored, column: str, text: str) -> Verdict:
    """Whether threads have more of a trace's property than processes, paired per round."""

    def one(use_case: str) -> Verdict:
        table = _traces(stored, use_case, ("threads", "processes"), column)
        table = table[(table > 0).all(axis=1)]
        enough(len(table))
        return above_one(interval_of(table["threads"] / table["processes"]), 0.0, text)

    return each(claim, one)


@RULES.add
def processes_smoother_memory(claim: Claim, stored: Stored) -> Verdict:
    """Roughness of the PSS trace, threads over processes."""
    return _compare_traces(claim, stored, "pss_roughness", "(mean change of PSS, threads over processes)")


@RULES.add
def processes_smoother_threads(claim: Claim, stored: Stored) -> Verdict:
    """Roughness of the number of threads, threads minus processes (a difference: a fixed pool has roughness 0)."""

    def one(use_case: str) -> Verdict:
        table = _traces(stored, use_case, ("threads", "processes"), "threads_roughness")
        enough(len(table))
        more = mean_of(table["threads"] - table["processes"])
        return at_least(more, 0.0, "", "(relative change between samples, threads minus processes)")

    return each(claim, one)


@RULES.add
def same_mean_threads(claim: Claim, stored: Stored) -> Verdict:
    """Mean number of threads, threads over processes, within TOLERANCE of 1."""

    def one(use_case: str) -> Verdict:
        table = _traces(stored, use_case, ("threads", "processes"), "threads_mean")
        enough(len(table))
        ratio = interval_of(table["threads"] / table["processes"])
        inside = ratio.low >= 1 - TOLERANCE and ratio.high <= 1 + TOLERANCE
        rule = f"the interval lies {'within' if inside else 'not within'} 1 ± {TOLERANCE:.0%}"
        return Verdict(SUPPORTED if inside else CONTRADICTED, f"{ratio} (threads over processes)", rule)

    return each(claim, one)


@RULES.add
def thread_per_image(claim: Claim, stored: Stored) -> Verdict:
    """As many threads as images in a batch would have to show in the one-process trace."""

    def one(use_case: str) -> Verdict:
        ours = table1(stored.records, use_case=use_case, device="cpu", strategy="threads")
        batch = int(select(stored.records, ours)["global_batch_size"].iloc[0])
        peaks = _traces(stored, use_case, ("threads",), "threads_peak")["threads"]
        enough(len(peaks))
        each_has_one = float(peaks.median()) >= batch
        measured = f"peak of {peaks.median():g} threads at {batch} images per step"
        why = (
            "at least as many threads as images"
            if each_has_one
            else "fewer threads than images: a fixed pool serves them"
        )
        return Verdict(SUPPORTED if each_has_one else CONTRADICTED, measured, why)

    return each(claim, one)


@RULES.add
def cpu_fully_used(claim: Claim, stored: Stored) -> Verdict:
    """Mean CPU use in the traces against the cores of the cell."""

    def one(use_case: str) -> Verdict:
        parts = []
        for strategy in ("threads", "processes"):
            ours = table1(stored.records, use_case=use_case, device="cpu", strategy=strategy)
            rows = select(stored.records, ours)
            cores = cores_given(rows)
            use = _traces(stored, use_case, (strategy,), "cpu_percent_mean")[strategy] / cores
            enough(len(use))
            full = float(use.median()) >= FULL_CPU_PERCENT
            rule = f"{'at least' if full else 'below'} {FULL_CPU_PERCENT:g} % of {cores} cores"
            word = SUPPORTED if full else CONTRADICTED
            mean = interval_of(use)
            parts.append((strategy, Verdict(word, f"{mean} % of {cores} cores", rule, (("", mean),))))
        return join(parts)

    return each(claim, one)
