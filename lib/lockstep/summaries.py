"""The tidy tables behind notebooks, figures and reports, from records alone. A failed or skipped cell stays a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis import (
    BASELINE,
    AnalysisError,
    Conditions,
    Ratio,
    aa_or_none,
    interval_of,
    is_difference,
    median_or_nan,
    paired_ratios,
    per_round,
    ratio_with_interval,
    roughness,
    select,
)
from lockstep.job import IDENTITY

TRACED = ("cpu_percent", "pss_bytes", "threads", "io_wait_percent")
PHASES = ("input_seconds", "compute_seconds", "wait_seconds", "exchange_seconds", "update_seconds")
NOT_A_CELL = ("round", "seed", "selected", "steps", "warmup_steps")
CELL = [name for name in IDENTITY if name not in NOT_A_CELL]
"""The identity columns that make two rows the same cell of the grid, in different rounds."""
SAME_RUN = ("experiment", "use_case", "device", "precision", "environment", "input")
"""What a row shares with the sequential row it is compared with."""

SHOWN: tuple[str, ...] = (
    "experiment",
    "use_case",
    "strategy",
    "variant",
    "device",
    "precision",
    "input",
    "data_source",
    "workers",
)
SHOWN += ("threads_per_worker", "cores_per_worker", "global_batch_size")


def cells(records: pd.DataFrame, experiment: str | None = None) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Every cell of the grid in the order of the records: its identity, and its rows (one per round)."""
    rows = records if experiment is None else records[records["experiment"] == experiment]
    found = []
    for key, group in rows.groupby(CELL, sort=False, dropna=False):
        found.append((dict(zip(CELL, key, strict=True)), group))
    return found


def outcome(rows: pd.DataFrame) -> tuple[str, str]:
    """Status and reason of a cell: `ok` as soon as one round is, and then how many rounds are not and why."""
    bad = rows[rows["status"] != "ok"]
    reasons = "; ".join(dict.fromkeys(text for text in rows["reason"].fillna("").astype(str) if text))
    if bad.empty:
        return "ok", reasons
    if len(bad) == len(rows):
        return str(bad["status"].iloc[0]), reasons
    return "ok", f"{len(bad)} of {len(rows)} rounds {bad['status'].iloc[0]}: {reasons}"


def median_of(rows: pd.DataFrame, name: str) -> float:
    """The median of a column over a cell's ok rows; NaN where there is none."""
    return median_or_nan(rows.loc[rows["status"] == "ok", name])


def ratio_columns(ratio: Ratio | None, name: str = "speedup") -> dict[str, float]:
    """A ratio as columns: `name`, low, high; NaN without one."""
    values = (ratio.median, ratio.low, ratio.high) if ratio else (np.nan,) * 3
    return dict(zip((name, "low", "high"), values, strict=True))


def _base_of(records: pd.DataFrame, cell: dict[str, Any], base: Conditions) -> Conditions | None:
    """The base's conditions for a cell, or None where the same experiment holds no such rows."""
    wanted = {**{name: cell[name] for name in SAME_RUN}, **base}
    return wanted if len(select(records, wanted)) else None


def summary_table(records: pd.DataFrame, experiment: str = "table1", base: Conditions = BASELINE) -> pd.DataFrame:
    """One row per cell of an experiment, with its speedup over `base` in the same use case, device and precision.

    Columns: identity (SHOWN), speedup, low, high (dimensionless; 95 % interval), images_per_second (1/s),
    step_seconds and base_step_seconds (s), base, rounds (paired), difference (bool: may it be called one),
    status, reason. Speedups are NaN where the cell or its base has no ok rows.
    """
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        ratio = aa = None
        wanted = _base_of(records, cell, base)
        if status == "ok" and wanted is not None:
            try:
                ratio = ratio_with_interval(records, cell, wanted, "images_per_second")
                aa = aa_or_none(records, {k: v for k, v in wanted.items() if k != "variant"})
            except AnalysisError as error:
                reason = f"{reason}; {error}".strip("; ")
        table.append(
            {name: cell[name] for name in SHOWN}
            | ratio_columns(ratio)
            | {
                "images_per_second": median_of(rows, "images_per_second"),
                "step_seconds": median_of(rows, "step_seconds"),
                "base": str(base.get("strategy", "")) if ratio else "",
                "base_step_seconds": float(select(records, wanted)["step_seconds"].median()) if wanted else np.nan,
                "rounds": ratio.rounds if ratio else int((rows["status"] == "ok").sum()),
                "difference": ratio is not None and is_difference(ratio, aa),
                "status": status,
                "reason": reason,
            }
        )
    return pd.DataFrame(table)


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
    return table.assign(cores=(table["workers"] * table["cores_per_worker"]).clip(upper=most_cores))


def memory_table(records: pd.DataFrame, experiment: str = "table1") -> pd.DataFrame:
    """Peak memory (PSS, bytes) per cell, of all workers together and per worker: peak_pss_bytes / workers."""
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        total = median_of(rows, "peak_pss_bytes")
        row = {name: cell[name] for name in SHOWN}
        row |= {"peak_pss_bytes": total, "pss_per_worker_bytes": total / cell["workers"]}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def phase_table(records: pd.DataFrame, experiment: str = "table1") -> pd.DataFrame:
    """Median seconds per step of each phase and of the whole step, per cell. Phases are each of the slowest rank,
    so their sum may exceed the step."""
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        row = {name: cell[name] for name in SHOWN} | {name: median_of(rows, name) for name in (*PHASES, "step_seconds")}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


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
        row |= {"of_bound": bound.median if bound else np.nan}
        row |= {"of_bound_low": bound.low if bound else np.nan, "of_bound_high": bound.high if bound else np.nan}
        row |= {"rounds": ratio.rounds if ratio else 0, "status": status, "reason": reason}
        table.append(row)
    return pd.DataFrame(table)


def _of_bound(records: pd.DataFrame, jpeg: Conditions, memory: Conditions) -> Ratio:
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
            seconds = (all_rounds.median, all_rounds.low, all_rounds.high)
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
    return pd.DataFrame(table)


def gil_table(records: pd.DataFrame, experiment: str = "scaling") -> pd.DataFrame:
    """What one process costs: images/s of `processes` / `threads` with the same workers, threads and cores.

    Both use the same sync and kernels, so what is left is what the threads of one process share: the interpreter's
    lock first, but also the allocator and page tables. An upper bound of the GIL's cost, not the lock alone.
    """
    table = []
    for cell, rows in cells(records, experiment):
        if cell["strategy"] != "threads":
            continue
        other = {**cell, "strategy": "processes", "launcher": "processes"}
        status, reason = outcome(rows)
        ratio = None
        try:
            ratio = ratio_with_interval(records, other, cell, "images_per_second")
        except AnalysisError as error:
            reason = reason or str(error)
        row = {name: cell[name] for name in SHOWN if name != "strategy"} | ratio_columns(
            ratio, "processes_over_threads"
        )
        row |= {"rounds": ratio.rounds if ratio else 0, "difference": ratio is not None and is_difference(ratio)}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def trace_table(resources: pd.DataFrame) -> pd.DataFrame:
    """Per experiment, use case, strategy and round: mean CPU (%), mean and peak PSS (bytes), mean and peak threads,
    mean I/O wait (%), and `roughness` of PSS and of threads (dimensionless)."""
    table = []
    keys = ["experiment", "use_case", "strategy", "round"]
    for key, trace in resources.groupby(keys, sort=False):
        # I/O wait is missing where the system does not tell it.
        means = trace[list(TRACED)].apply(pd.to_numeric, errors="coerce")
        row = dict(zip(keys, key, strict=True))
        row |= {f"{name}_mean": float(value) for name, value in means.mean().items()}
        row |= {"pss_bytes_peak": float(means["pss_bytes"].max()), "threads_peak": float(means["threads"].max())}
        row |= {"pss_roughness": roughness(trace, "pss_bytes"), "threads_roughness": roughness(trace, "threads")}
        table.append(row)
    return pd.DataFrame(table)
