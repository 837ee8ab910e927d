"""Verdicts on the paper's own gaps, on speedups and on comparisons of speed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis import (
    BASELINE,
    MIN_ROUNDS,
    Ratio,
    interval_of,
    is_difference,
    paired_ratios,
    ratio_with_interval,
    select,
)
from lockstep.verdicts.rules import (
    NOT_MEASURABLE,
    NOT_REPRODUCED,
    NOT_YET,
    REPRODUCED,
    Claim,
    NotNow,
    Verdict,
    above_one,
    compare,
    cores_of,
    each,
    enough,
    join,
    noise,
    register,
    sequential,
    table1,
    use_cases,
    within,
)


def published_speedup(claim: Claim, records: pd.DataFrame, strategy: str | None, device: str) -> Verdict:
    """A published speedup against ours, over sequential training on the same device."""
    wanted: dict[str, Any] = {"use_case": claim["use_case"], "device": device}
    ours = table1(records, **wanted, **({"strategy": strategy} if strategy else {}))
    if strategy is None:
        ours = {**ours, "strategy": sorted(set(select(records, ours)["strategy"]) - {"sequential"})}
    base = {**table1(records, **wanted, **BASELINE), "workers": 1}
    ratio = ratio_with_interval(records, ours, base, "images_per_second")
    rows = select(records, ours)
    cores = cores_of(rows) if device == "cpu" else None
    batches = [int(found["global_batch_size"].iloc[0]) for found in (rows, select(records, base))]
    return near(float(claim["value"]), ratio, cores, *batches)


def near(published: float, ratio: Ratio, cores: int | None, batch: int, base_batch: int) -> Verdict:
    measured = ""
    numbers: tuple[tuple[str, Ratio], ...] = ()  # an interval of too few rounds would look exact
    if ratio.rounds >= MIN_ROUNDS:
        measured = f"{ratio} at batch {batch} (base: {base_batch})" + (f" on {cores} cores" if cores else "")
        numbers = (("", ratio),)
    if cores is not None and published > cores:
        why = f"{cores} cores can't give {published:g} times one core; the paper does not state its cores"
        return Verdict(NOT_MEASURABLE, measured, why, numbers)
    return within(published, ratio, measured)


@register
def pending(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The notebook that will measure it has no verdict function yet."""
    return Verdict(NOT_YET, "", f"notebook {claim['notebook']} will measure it")


@register
def omission(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Something the paper does not state or publish."""
    return Verdict(NOT_MEASURABLE, "", f"left open by the paper: {claim['note']}")


@register
def contradiction(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The paper contradicts itself: there is no one figure to reproduce."""
    return Verdict(NOT_MEASURABLE, "", f"the paper contradicts itself: {claim['note']}")


@register
def survey(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """A statement about the literature, not about training."""
    return Verdict(NOT_MEASURABLE, "", f"no experiment but {claim['note']}")


@register
def threads_speedup(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Table 1, CPU single-process: one replica per thread."""
    return published_speedup(claim, records, "threads", "cpu")


@register
def processes_speedup(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Table 1, CPU multi-process: one replica per process."""
    return published_speedup(claim, records, "processes", "cpu")


@register
def gpu_speedup(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Table 1, GPU single-process: one replica per GPU."""
    return published_speedup(claim, records, None, "cuda")


@register
def needs_gpu(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """A claim about one GPU's memory, threads or host: traces on a GPU machine are to be had first."""
    for use_case in use_cases(claim):
        table1(records, use_case=use_case, device="cuda")  # raises with the skipped rows' own reason
    return Verdict(NOT_YET, "", "there are GPU records, but no traces of GPU training to judge this by")


@register
def gpu_gains_less(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The GPU's speedup over sequential training on the GPU is below that of processes on the CPU."""

    def one(use_case: str) -> Verdict:
        table1(records, use_case=use_case, device="cuda")
        raise NotNow(NOT_YET, "there are GPU records, but several GPUs are needed for data parallelism over them")

    return each(claim, one)


@register
def gpu_worst_simple_big(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """On GPUs SimpleBig gains least: needs data parallelism over GPUs."""
    return gpu_gains_less(claim, records, resources)


@register
def cpu_modes_speed_up(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Threads and processes are both faster than sequential training."""
    parts = []
    for strategy in ("threads", "processes"):

        def one(use_case: str, strategy: str = strategy) -> Verdict:
            ours = table1(records, use_case=use_case, device="cpu", strategy=strategy)
            base = sequential(records, use_case)
            ratio = ratio_with_interval(records, ours, base, "images_per_second")
            return above_one(ratio, noise(records, base), "times sequential")

        parts.append((strategy, each(claim, one)))
    return join(parts)


@register
def processes_beat_threads(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """More images/s with processes than with threads, on the same cores."""
    return compare(claim, records, "processes", "threads", "images_per_second", "times threads in images/s")


@register
def gil_hinders_threads(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Processes / threads bounds what the GIL costs from above; it can refute the claim, not show the lock's part."""
    found = processes_beat_threads(claim, records, resources)
    if found.verdict == REPRODUCED:
        why = "threads are behind, but they share the allocator and page tables, too: only a bound of the GIL's cost"
        return Verdict(NOT_MEASURABLE, found.measured, why)
    return found


@register
def processes_best_local(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Processes against every other way of using the same cores in Table 1: threads, and threads inside operators."""
    text = "times {} in images/s"
    others = ("threads", "intra_op")
    parts = [(n, compare(claim, records, "processes", n, "images_per_second", text.format(n))) for n in others]
    return join(parts)


@register
def gain_depends_on_use_case(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The speedups of the two use cases differ, whichever is larger."""
    parts = []
    for strategy in ("threads", "processes"):
        ratio = _use_case_ratio(records, strategy)
        enough(ratio.rounds)
        differs = is_difference(ratio)
        why = "the interval excludes 1" if differs else "no difference: the interval holds 1"
        word = REPRODUCED if differs else NOT_REPRODUCED
        parts.append((strategy, Verdict(word, f"{ratio} (SimpleBig's speedup over ComplexSmall's)", why)))
    found = join(parts)
    return Verdict(found.verdict, found.measured, f"{found.reason}; {claim['note']}")


def _use_case_ratio(records: pd.DataFrame, strategy: str) -> Ratio:
    """SimpleBig's speedup over ComplexSmall's, paired per round."""
    series = []
    for use_case in ("SimpleBig", "ComplexSmall"):
        ours = table1(records, use_case=use_case, device="cpu", strategy=strategy)
        series.append(paired_ratios(records, ours, sequential(records, use_case), "images_per_second"))
    ratios = (series[0] / series[1]).dropna()
    if ratios.empty:
        raise NotNow(NOT_YET, "no round holds both use cases")
    return interval_of(ratios)


@register
def larger_gain_simple_big(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """The speedup of each CPU mode is larger for SimpleBig than for ComplexSmall, paired per round."""
    parts = []
    for strategy in ("threads", "processes"):
        ratio = _use_case_ratio(records, strategy)
        parts.append((strategy, above_one(ratio, None, "(SimpleBig's speedup over ComplexSmall's)")))
    found = join(parts)
    return Verdict(found.verdict, found.measured, f"{found.reason}; {claim['note']}")
