"""Verdicts on speedups and on comparisons of speed on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.noise import NOISE_OF_A_QUOTIENT, aa_noise
from lockstep.analysis.published_speedups import (
    core_free_ratio,
    implied_cores,
    near,
    printed,
    same_on_any_cores,
    serial_loss,
)
from lockstep.analysis.rules import (
    above_one,
    alike,
    compare,
    decided,
    enough,
    graded,
    one_and_noise,
    undecided,
    with_seconds,
)
from lockstep.analysis.statistics import (
    BASELINE,
    AnalysisError,
    Conditions,
    Estimate,
    is_difference,
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
    any_of,
    cell,
    cores_given,
    join,
    opposite,
    sequential,
    settle,
    table1,
)

RULES = Verdicts()
MODES = {"threads": "CPU single-process", "processes": "CPU multi-process"}
"""The rows of Table 1 on the CPU."""
RIVALS = ("processes", "threads")
SPEED = "images_per_second"


def published_speedup(claim: Claim, records: pd.DataFrame, strategy: str | None, device: str) -> Verdict:
    """A published speedup against ours, over sequential training on the same device."""
    wanted: dict[str, Any] = {"use_case": claim["use_case"], "device": device}
    ours = table1(records, **wanted, **({"strategy": strategy} if strategy else {}))
    if strategy is None:
        ours = {**ours, "strategy": sorted(set(select(records, ours)["strategy"]) - {"sequential"})}
        if not ours["strategy"]:
            raise NotNow(NOT_YET, "there are GPU records, but none of several GPUs")
    base = {**table1(records, **wanted, **BASELINE), "workers": 1}
    ratio = ratio_with_interval(records, ours, base, SPEED)
    rows = select(records, ours)
    cores = cores_given(rows) if device == "cpu" else None
    batches = [int(found["global_batch_size"].iloc[0]) for found in (rows, select(records, base))]
    found = near(float(claim["value"]), ratio, cores, *batches)
    return with_seconds(found, records, (ours, base))


def _on_the_cpu(claim: Claim, stored: Stored, strategy: str) -> Verdict:
    """A published speedup against ours; one that takes more cores than there are by the ratio of Table 1's two rows."""
    found = published_speedup(claim, stored.records, strategy, "cpu")
    if found.answer != NEEDS_HARDWARE:
        return found
    rows = _rows_of_table1(str(claim["use_case"]), stored.records)
    about = [part for part in (found.measured, rows.measured) if part]
    return replace(
        rows,
        measured="; ".join(about),
        reason=f"{rows.reason}; {found.reason}; {_machine_of_table1()}",
        numbers=found.numbers,
    )


def _rows_of_table1(use_case: str, records: pd.DataFrame) -> Verdict:
    """Processes over threads: on whatever cores, Table 1's two rows of a use case share the cores and the base.

    How what threads lose grows with the cores is unsaid: from not at all to as if all of it were behind one lock.
    """
    above, under = (printed(use_case, MODES[name]) for name in ("processes", "threads"))
    sides = _rows_of(records, use_case)
    cores = cores_given(select(records, sides[0]))
    ours = ratio_with_interval(records, sides[0], sequential(records, use_case), SPEED)
    readings = {
        "if the ratio is the same on any number of cores": same_on_any_cores(),
        f"on {cores} cores if what threads lose is behind one lock": serial_loss(above, ours, cores),
    }
    ratio = ratio_with_interval(records, *sides, SPEED)
    found = core_free_ratio(above, under, ratio, "times threads in images/s", readings)
    return with_seconds(found, records, sides)


def _rows_of(records: pd.DataFrame, use_case: str) -> tuple[Conditions, Conditions]:
    """Our processes and threads of Table 1."""
    processes, threads = (table1(records, use_case=use_case, device="cpu", strategy=n) for n in RIVALS)
    return processes, threads


def _machine_of_table1() -> str:
    """All rows are of one machine, so the largest speedup bounds its cores for the others, too."""
    largest = max(printed(name, row) for name in ("ComplexSmall", "SimpleBig") for row in MODES.values())
    return f"Table 1's largest CPU speedup, {largest:g}, takes at least {implied_cores(largest)} cores"


@RULES.add
def threads_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, CPU single-process: one replica per thread."""
    return _on_the_cpu(claim, stored, "threads")


@RULES.add
def processes_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, CPU multi-process: one replica per process."""
    return _on_the_cpu(claim, stored, "processes")


@RULES.add
def processes_beat_threads(claim: Claim, stored: Stored) -> Verdict:
    """More images/s with processes than with threads, on the same cores."""
    return compare(claim, stored.records, "processes", "threads", SPEED, "times threads in images/s")


@RULES.add
def gil_hinders_threads(claim: Claim, stored: Stored) -> Verdict:
    """What threads lose at a fixed rate per step, as behind a lock, weighs less the longer a step's kernels are.

    Processes / threads alone bounds the lock's cost: threads share the allocator and page tables, too, whose cost grows
    with the work. So the 50 x 50 network stands beside itself with many times the images per step: threads must be
    behind with few, and less so with many.
    """
    records = stored.records
    few, many = (_rivals(records, experiment) for experiment in ("scaling", "kernels"))
    behind, less = (ratio_with_interval(records, *sides, SPEED) for sides in (few, many))
    short, long = (int(select(records, sides[0])["global_batch_size"].iloc[0]) for sides in (few, many))
    text = f"times threads in images/s with the 50 x 50 network at {short} images per step"
    found = with_seconds(above_one(behind, aa_noise(records), text), records, few)
    if found.answer == SUPPORTED:
        fixed = above_one(behind.over(less), 0.0, f"times as far behind as at {long}")
        if fixed.answer == CONTRADICTED:
            fixed = undecided(fixed.measured, "threads are behind, but not as behind a lock", math.inf)
        found = join([("few", found), ("many", with_seconds(fixed, records, [*few, *many]))])
    return graded(found, found.grade, _bound(records))


def _rivals(records: pd.DataFrame, experiment: str) -> tuple[Conditions, Conditions]:
    """Processes and threads, a worker per core."""
    rows = records[records["experiment"] == experiment]
    if rows.empty:
        raise NotNow(NOT_YET, "no records of threads and processes with the 50 x 50 network")
    workers = int(rows["workers"].max())
    processes, threads = (cell(records, experiment=experiment, strategy=n, workers=workers) for n in RIVALS)
    return processes, threads


def _bound(records: pd.DataFrame) -> str:
    """What the lock costs at most in the paper's use cases, where the kernels are long; "" where that is not known."""
    found = []
    for use_case in ("ComplexSmall", "SimpleBig"):
        try:
            found.append(f"{ratio_with_interval(records, *_rows_of(records, use_case), SPEED)} for {use_case}")
        except (NotNow, AnalysisError):
            continue
    return f"at the paper's kernels processes over threads bounds the lock's cost: {', '.join(found)}" if found else ""


@RULES.add
def processes_best_local(claim: Claim, stored: Stored) -> Verdict:
    """Processes against every other way of using the same cores in Table 1: threads, and threads inside operators."""
    others = {"threads": "threads", "threads inside operators": "intra_op"}
    compared = partial(compare, claim, stored.records, "processes")
    return join([(told, compared(name, SPEED, f"times {told} in images/s")) for told, name in others.items()])


@RULES.add
def gain_depends_on_use_case(claim: Claim, stored: Stored) -> Verdict:
    """The speedups of the two use cases differ with either strategy, whichever is larger."""
    parts = [(strategy, settle(partial(_depends, stored.records, strategy))) for strategy in MODES]
    together = any_of(parts)  # one strategy whose gain depends on the use case is enough
    return graded(together, together.grade, str(claim["note"]))


def _depends(records: pd.DataFrame, strategy: str) -> Verdict:
    """Supported if the speedups differ beyond the noise, contradicted if they are alike."""
    ratio, sides = _use_case_ratio(records, strategy)
    enough(ratio.rounds)
    text = f"{ratio} (SimpleBig's speedup over ComplexSmall's)"
    noise = NOISE_OF_A_QUOTIENT * aa_noise(records)
    if is_difference(ratio, noise):
        edge = math.exp(noise if ratio.value > 1 else -noise)
        found = decided(SUPPORTED, text, f"the interval excludes {one_and_noise(noise)}", ratio, [edge])
        return with_seconds(found, records, sides)
    found = opposite(alike(ratio, text))
    if found.answer == CONTRADICTED:
        return found
    more = ratio.rounds_until(1.0) - ratio.rounds  # until it excludes 1, if it is as far from it as it seems
    return with_seconds(undecided(text, "the interval holds 1 and reaches beyond 1 ± 10%", more), records, sides)


def _use_case_ratio(records: pd.DataFrame, strategy: str) -> tuple[Estimate, Iterable[Conditions]]:
    """SimpleBig's speedup over ComplexSmall's, each paired in rounds of its own, and the four cells."""
    pairs = []
    for use_case in ("SimpleBig", "ComplexSmall"):
        ours = table1(records, use_case=use_case, device="cpu", strategy=strategy)
        pairs.append((ours, sequential(records, use_case)))
    big, small = (ratio_with_interval(records, *pair, SPEED) for pair in pairs)
    return big.over(small), [side for pair in pairs for side in pair]


@RULES.add
def larger_gain_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """The speedup of each CPU mode is larger for SimpleBig than for ComplexSmall."""

    def of(strategy: str) -> Verdict:
        ratio, sides = _use_case_ratio(stored.records, strategy)
        noise, text = NOISE_OF_A_QUOTIENT * aa_noise(stored.records), "(SimpleBig's speedup over ComplexSmall's)"
        return with_seconds(above_one(ratio, noise, text), stored.records, sides)

    found = join([(strategy, settle(partial(of, strategy))) for strategy in MODES])
    return graded(found, found.grade, str(claim["note"]))
