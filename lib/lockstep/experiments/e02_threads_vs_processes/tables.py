"""Tables of notebook 02, from its records alone: scaling, memory, phases, input, exchange, the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import table_of_one_session
from lockstep.analysis.statistics import (
    BASELINE,
    AnalysisError,
    Conditions,
    Estimate,
    interval_of,
    is_difference,
    paired_ratios,
    per_round,
    ratio_or_reason,
    ratio_with_interval,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import PHASES, SHOWN, ratio_columns, summary_table
from lockstep.engine.job.strategies import STRATEGIES


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of cells as their strategies are listed, what ran on the CPU in float32 first: records have
    them in the order in which they were measured."""
    if table.empty:
        return table
    places = {name: place for place, name in enumerate(STRATEGIES)}
    keys = pd.DataFrame({
        "use_case": table["use_case"].map({name: place for place, name in enumerate(table["use_case"].unique())}),
        "device": table["device"] != "cpu", "precision": table["precision"] != "float32",
        "strategy": table["strategy"].map(places).fillna(len(places)), "cores": table["cores_per_worker"],
        "workers": table["workers"], "batch": table["global_batch_size"], "variant": table["variant"],
    })  # fmt: skip
    return table.loc[keys.sort_values(list(keys)).index].reset_index(drop=True)


def speedup_table(records: pd.DataFrame) -> pd.DataFrame:
    """`summary_table` of Table 1's cells."""
    return in_order(summary_table(records))


def scaling_table(records: pd.DataFrame, experiment: str = "scaling", most_cores: int | None = None) -> pd.DataFrame:
    """`summary_table` with `cores` (workers x cores_per_worker, at most `most_cores`: those the machine has) and
    `base_cores`, so that ideal = cores / base_cores.

    The base is sequential training where the experiment holds it, else each strategy's cell with the fewest workers.
    """
    rows = records[records["experiment"] == experiment]
    if rows.empty or (rows["strategy"] == BASELINE["strategy"]).any():
        table = summary_table(records, experiment).assign(base_cores=1)
    else:
        parts = []
        for name, own in rows.groupby("strategy", sort=False):
            fewest = own[own["workers"] == own["workers"].min()].iloc[0]
            base = {"strategy": name, "variant": "a", "workers": int(fewest["workers"])}
            cores = int(fewest["workers"] * fewest["cores_per_worker"])
            parts.append(summary_table(own, experiment, base).assign(base_cores=cores))
        table = pd.concat(parts, ignore_index=True)
    if table.empty:
        return table
    table = in_order(table)
    return table.assign(cores=(table["workers"] * table["cores_per_worker"]).clip(upper=most_cores))


def scaling(stored: Stored) -> pd.DataFrame:
    """`scaling_table` against as many cores as Table 1's cells used: workers beyond that budget share cores, and the
    ideal must not grow with them."""
    table1 = stored.of("table1")
    budget = int((table1["workers"] * table1["cores_per_worker"]).max()) if len(table1) else None
    return scaling_table(stored.records, most_cores=budget)


def one_budget(table: pd.DataFrame) -> bool:
    """Did all distributed cells of a scaling table have the same number of cores?"""
    return bool(len(table)) and table[table["strategy"] != "sequential"]["cores"].nunique() == 1


def memory_table(records: pd.DataFrame, experiment: str = "table1") -> pd.DataFrame:
    """Peak memory (PSS, bytes) per cell, of all workers together and per worker: peak_pss_bytes / workers."""
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        total = median_of(rows, "peak_pss_bytes")
        row = {name: cell[name] for name in SHOWN}
        row |= {"peak_pss_bytes": total, "pss_per_worker_bytes": total / cell["workers"]}
        table.append(row | {"status": status, "reason": reason})
    return in_order(pd.DataFrame(table))


def phase_table(records: pd.DataFrame, experiment: str = "table1") -> pd.DataFrame:
    """Median seconds per step of each phase and of the whole step, per cell. Phases are each of the slowest rank,
    so their sum may exceed the step."""
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        row = {name: cell[name] for name in SHOWN} | {name: median_of(rows, name) for name in (*PHASES, "step_seconds")}
        table.append(row | {"status": status, "reason": reason})
    return in_order(pd.DataFrame(table))


def input_table(records: pd.DataFrame, experiment: str = "input") -> pd.DataFrame:
    """JPEG input against tensors in memory, per cell, paired per round.

    `ratio` = images/s (JPEG) / images/s (memory): 1 = decoding is free. `of_bound` = (step in memory + CPU seconds
    of decoding per step) / step with JPEG: 1 = a step costs no more than its computing and its decoding on
    the same cores; only where no core is free for decoding (threads_per_worker = cores_per_worker). Both with
    95 % intervals.
    """
    table = []
    for cell, rows in cells(records, experiment):
        if cell["input"] != "jpeg":
            continue
        status, reason = outcome(rows)
        row = {name: cell[name] for name in SHOWN} | {"images_per_second": median_of(rows, "images_per_second")}
        ratio = bound = None
        try:
            memory = {**cell, "input": "memory"}
            ratio = ratio_with_interval(records, cell, memory, "images_per_second")
            bound = _of_bound(records, cell, memory) if cell["threads_per_worker"] >= cell["cores_per_worker"] else None
        except AnalysisError as error:
            reason = reason or str(error)
        row |= ratio_columns(ratio, "ratio")
        row |= {"of_bound": bound.value if bound else np.nan}
        row |= {"of_bound_low": bound.low if bound else np.nan, "of_bound_high": bound.high if bound else np.nan}
        row |= {"rounds": ratio.rounds if ratio else 0, "status": status, "reason": reason}
        table.append(row)
    return in_order(pd.DataFrame(table))


def _of_bound(records: pd.DataFrame, jpeg: Conditions, memory: Conditions) -> Estimate:
    decoding = per_round(records, jpeg, "decode_seconds") / jpeg["cores_per_worker"]
    bound = per_round(records, memory, "step_seconds") + decoding
    return interval_of((bound / per_round(records, jpeg, "step_seconds")).dropna())


def exchange_table(records: pd.DataFrame, experiment: str = "exchange", base: str = "processes") -> pd.DataFrame:
    """Seconds to reduce the gradients and update the parameters, per strategy: the whole step without a model,
    from a common start to the last rank's end, barriers included.

    `times_base` = seconds / seconds of `base`, paired per round, with its interval (above 1: slower than `base`).
    """
    timed = records.assign(seconds=records["step_seconds"])
    table = []
    for cell, rows in cells(timed, experiment):
        status, reason = outcome(rows)
        ratio, seconds = None, (np.nan, np.nan, np.nan)
        if status == "ok":
            values = per_round(timed, cell, "seconds")
            all_rounds = interval_of(values)
            seconds = all_rounds.columns
            others = {"experiment": experiment, "strategy": base, "status": "ok"}
            others |= {name: cell[name] for name in ("use_case", "workers", "precision", "environment")}
            try:
                ratio = interval_of(paired_ratios(timed, cell, others, "seconds"))
            except AnalysisError as error:
                reason = reason or str(error)
        row = {name: cell[name] for name in SHOWN}
        row |= dict(zip(("seconds", "seconds_low", "seconds_high"), seconds, strict=True))
        row |= ratio_columns(ratio, "times_base") | {"base": base, "status": status, "reason": reason}
        table.append(row)
    return in_order(pd.DataFrame(table))


def gil_table(records: pd.DataFrame) -> pd.DataFrame:
    """What one process costs: images/s of `processes` / `threads` with the same workers, threads, cores and images per
    step; with the 50 x 50 network at few images per step (`scaling`) and at many (`kernels`).

    Both use the same sync and kernels, so what is left is what the threads of one process share: the interpreter's
    lock first, but also the allocator and page tables. An upper bound of the GIL's cost, not the lock alone.
    """
    table, noise = [], aa_noise(records)
    found = [each for experiment in OF_ONE_BUDGET for each in cells(records, experiment)]
    for cell, rows in sorted(found, key=lambda each: (each[0]["workers"], each[0]["global_batch_size"])):
        if cell["strategy"] != "threads":
            continue
        other = {**cell, "strategy": "processes", "launcher": "processes"}
        status, reason = outcome(rows)
        ratio, why = ratio_or_reason(records, other, cell, "images_per_second")
        reason = reason or why
        row = {name: cell[name] for name in SHOWN if name != "strategy"} | ratio_columns(
            ratio, "processes_over_threads"
        )
        row |= {"rounds": ratio.rounds if ratio else 0, "difference": ratio is not None and is_difference(ratio, noise)}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


OF_ONE_BUDGET = ("scaling", "kernels")
"""The experiments with threads and processes on one budget of cores."""


# What the notebook shows of them


def _speedup(stored: Stored) -> pd.DataFrame:
    cell = ["use_case", "strategy", "variant", "device", "precision", "workers", "global_batch_size"]
    measured = ["speedup", "low", "high", "images_per_second", "step_seconds", "rounds", "status", "reason"]
    return speedup_table(stored.records).reindex(columns=[*cell, *measured]).round(3)


def _phases(stored: Stored) -> pd.DataFrame:
    table = phase_table(stored.records)
    ok = table[table["status"] == "ok"] if len(table) else table
    return ok.reindex(columns=["use_case", "strategy", "variant", "precision", *PHASES, "step_seconds"]).round(4)


def _interpreter(stored: Stored) -> pd.DataFrame:
    columns = ["workers", "threads_per_worker", "global_batch_size", "processes_over_threads", "low", "high"]
    return gil_table(stored.records).reindex(columns=[*columns, "rounds", "difference", "status"]).round(3)


def _memory(stored: Stored) -> pd.DataFrame:
    table = memory_table(stored.records)
    if len(table):
        table["total_MiB"] = table["peak_pss_bytes"] / 2**20
        table["per_worker_MiB"] = table["pss_per_worker_bytes"] / 2**20
    cell = ["use_case", "strategy", "variant", "workers", "precision"]
    return table.reindex(columns=[*cell, "total_MiB", "per_worker_MiB", "status", "reason"]).round(0)


def _input(stored: Stored) -> pd.DataFrame:
    bound = ["of_bound", "of_bound_low", "of_bound_high"]
    columns = ["cores_per_worker", "images_per_second", "ratio", "low", "high", *bound, "rounds"]
    return input_table(stored.records).reindex(columns=columns).round(3)


def _exchange(stored: Stored) -> pd.DataFrame:
    columns = ["strategy", "workers", "seconds", "seconds_low", "seconds_high", "times_base", "low", "high", "status"]
    return exchange_table(stored.records).reindex(columns=columns).round(4)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "speedup": _speedup,
    "phases": table_of_one_session("table1", _phases),
    "interpreter": _interpreter,
    "memory": _memory,
    "input": _input,
    "exchange": _exchange,
}
