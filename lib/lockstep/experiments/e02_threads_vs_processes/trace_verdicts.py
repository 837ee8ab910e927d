"""Verdicts on memory, threads and CPU use, from peak PSS and from the resource traces."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.rules import above, above_one, compare, enough, not_below, undecided, with_seconds
from lockstep.analysis.statistics import interval_of, mean_of, per_round, select
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import TRACE_SECONDS, trace_table
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    FULL_CPU_PERCENT,
    NOT_YET,
    SUPPORTED,
    USE_CASES,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    cores_given,
    each,
    join,
    settle,
    table1,
    use_cases,
)

RULES = Verdicts()
MEMORY = "peak_pss_bytes"


@RULES.add
def processes_less_memory(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of threads above that of processes, all workers together."""
    return compare(claim, stored.records, "threads", "processes", MEMORY, "(peak PSS, threads over processes)")


@RULES.add
def complex_small_more_memory(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of ComplexSmall above SimpleBig's, with threads and with processes; each measured in its own rounds.

    More images per worker need more memory, and the paper does not state how many it had: the smaller batch of the two
    stands on the side that should need more.
    """
    parts, records = [], stored.records
    for strategy in ("threads", "processes"):
        sides = [table1(records, use_case=name, device="cpu", strategy=strategy) for name in USE_CASES]
        small, big = (interval_of(per_round(records, side, MEMORY)) for side in sides)
        images = [_images_per_worker(select(records, side)) for side in sides]
        text = f"(peak PSS at {images[0]:g} and {images[1]:g} images per worker)"
        found = above_one(small.over(big), aa_noise(records, MEMORY), text)
        parts.append((strategy, with_seconds(found, records, sides)))
    return join(parts)


def _images_per_worker(rows: pd.DataFrame) -> float:
    return float(rows["global_batch_size"].iloc[0] / rows["workers"].iloc[0])


_all_traces = once(lambda stored: trace_table(stored.table("resources")))


def _traces(stored: Stored, use_case: str, strategies: tuple[str, ...], column: str) -> pd.DataFrame:
    """A column of `trace_table` as traces x strategies. Raises NotNow where a strategy has no trace."""
    if stored.table("resources").empty:
        raise NotNow(NOT_YET, "no resource traces were stored")
    table = _all_traces(stored)
    if table.empty:
        raise NotNow(NOT_YET, "no resource trace holds a sample of training")
    traced = table[(table["use_case"] == use_case) & table["strategy"].isin(strategies)]
    if "table1" in set(traced["experiment"]):
        traced = traced[traced["experiment"] == "table1"]
    missing = set(strategies) - set(traced["strategy"])
    if missing:
        raise NotNow(NOT_YET, f"no resource trace of {use_case} with {', '.join(sorted(missing))}")
    return traced.pivot_table(index="round", columns="strategy", values=column).dropna()


def more_of(
    claim: Claim, stored: Stored, column: str, text: str, still: str, sides: tuple[str, str] = ("threads", "processes")
) -> Verdict:
    """Whether a trace's property is larger on the first side: by the difference, for both may be 0, and `still` why."""

    def one(use_case: str) -> Verdict:
        table = _traces(stored, use_case, sides, column)
        enough(len(table))
        more = mean_of(table[sides[0]] - table[sides[1]])
        measured = f"{more} {text}"
        if not (table > 0).to_numpy().any():
            return undecided(measured, still, math.inf)
        return _in_traces(above(more, 0.0, 0.0, text, "0"))

    return each(claim, one)


def _in_traces(found: Verdict) -> Verdict:
    """A round is a trace of each strategy."""
    return replace(found, round_seconds=2 * TRACE_SECONDS)


@RULES.add
def processes_smoother_memory(claim: Claim, stored: Stored) -> Verdict:
    """Roughness of the PSS trace, threads minus processes."""
    text = "(relative change of PSS between samples, threads minus processes)"
    return more_of(claim, stored, "pss_roughness", text, "the memory of neither changes while it trains")


@RULES.add
def processes_smoother_threads(claim: Claim, stored: Stored) -> Verdict:
    """Roughness of the number of threads, threads minus processes.

    The paper's threads came and went with its own loading of photos; Lockstep's decode in a pool of fixed size.
    """
    text = "(relative change of their number between samples, threads minus processes)"
    still = "no thread begins or ends while either trains: the threads that decode photos here are a pool of fixed size"
    return more_of(claim, stored, "threads_roughness", text, still)


@RULES.add
def same_mean_threads(claim: Claim, stored: Stored) -> Verdict:
    """The mean numbers stand beside each other, those of the framework and the runtime apart, and decide nothing.

    How many threads there are follows from the program: Lockstep starts a fixed number for each replica, and leaves
    torch as many as the replica has cores, so that little more than the main thread of each process is not its own.
    """

    def one(use_case: str) -> Verdict:
        sides = ("threads", "processes")
        table = _traces(stored, use_case, sides, "threads_mean")
        enough(len(table))
        means = [interval_of(table[name]) for name in sides]
        measured = f"{means[0]} threads in one process, {means[1]} in several"
        own = _traces(stored, use_case, sides, "framework_threads_mean")
        if len(own):
            several = [interval_of(own[name]) for name in sides]
            measured = f"{measured}; of these PyTorch's and Python's own {several[0]} and {several[1]}"
        why = "the program starts a fixed number for each replica, here Lockstep, and each process has a main thread"
        return undecided(measured, why, math.inf)

    return each(claim, one)


@RULES.add
def thread_per_image(claim: Claim, stored: Stored) -> Verdict:
    """With a thread per image, a process has at least as many threads as a step has images.

    The samples count Lockstep's own threads, too, so that fewer than that contradicts the claim and as many says
    nothing.
    """

    def one(use_case: str) -> Verdict:
        ours = table1(stored.records, use_case=use_case, device="cpu", strategy="threads")
        images = int(select(stored.records, ours)["global_batch_size"].iloc[0])
        peaks = _traces(stored, use_case, ("threads",), "threads_peak")["threads"]
        enough(len(peaks))
        measured = f"at most {peaks.max():g} threads at {images} images per step"
        if peaks.max() < images:
            why = "fewer threads than images, Lockstep's own among them: a fixed pool serves them"
            return Verdict(CONTRADICTED, measured, why, grade=BOUND)
        return undecided(measured, "no fewer threads than images, but Lockstep's own are among them", math.inf)

    found = [(name, settle(partial(one, name))) for name in use_cases(claim)]
    fewer = [(name, part) for name, part in found if part.answer == CONTRADICTED]
    return join(fewer or found)


@RULES.add
def cpu_fully_used(claim: Claim, stored: Stored) -> Verdict:
    """Mean CPU use of the cell's cores in the traces, at least FULL_CPU_PERCENT.

    A worker that waits for the others may poll, which counts as use: supported only if the use without the share of a
    step that is spent waiting is that high, contradicted if even the whole of it is not.
    """

    def one(use_case: str) -> Verdict:
        return join([(strategy, _full(stored, use_case, strategy)) for strategy in ("threads", "processes")])

    return each(claim, one)


def _full(stored: Stored, use_case: str, strategy: str) -> Verdict:
    ours = table1(stored.records, use_case=use_case, device="cpu", strategy=strategy)
    rows = select(stored.records, ours)
    cores = cores_given(rows)
    use = interval_of(_traces(stored, use_case, (strategy,), "cpu_percent_mean")[strategy] / cores)
    waiting = float((rows["wait_seconds"] / rows["step_seconds"]).median())
    of = f"of {cores} cores, waiting included ({100 * waiting:.2g} % of a step)"
    whole = not_below(use, FULL_CPU_PERCENT, "%", of)
    working = not_below(use.times(1 - waiting), FULL_CPU_PERCENT, "%", f"of {cores} cores without waiting")
    if whole.answer == SUPPORTED and working.answer != SUPPORTED:
        why = f"at least {FULL_CPU_PERCENT:g} % only if waiting counts as use"
        whole = undecided(whole.measured, why, working.rounds_more)
    return _in_traces(replace(whole, numbers=(("", use),)))
