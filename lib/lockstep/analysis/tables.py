"""The tidy tables behind notebooks, figures and reports, from records alone. A failed or skipped cell stays a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.statistics import (
    BASELINE,
    AnalysisError,
    Conditions,
    Ratio,
    aa_or_none,
    is_difference,
    median_or_nan,
    ratio_with_interval,
    roughness,
    select,
)
from lockstep.engine.job import IDENTITY

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
    if rows.empty:
        return []
    columns = {name: rows[name].to_numpy() for name in CELL}
    # Most columns hold one value throughout, and grouping by each of them takes its time.
    varying = [name for name, values in columns.items() if (values != values[0]).any()] or CELL[:1]
    numbers = rows.groupby(varying, sort=False, dropna=False).ngroup().to_numpy()
    found = []
    for number in range(numbers.max() + 1):
        positions = np.flatnonzero(numbers == number)
        cell = {name: values[positions[0]] for name, values in columns.items()}
        found.append((cell, rows.iloc[positions]))
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
    noise: dict[str, Ratio | None] = {}  # of the A/A pair of each base, which many cells share
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        ratio = aa = None
        wanted = _base_of(records, cell, base)
        if status == "ok" and wanted is not None:
            try:
                ratio = ratio_with_interval(records, cell, wanted, "images_per_second")
                pair = {k: v for k, v in wanted.items() if k != "variant"}
                if (key := str(pair)) not in noise:
                    noise[key] = aa_or_none(records, pair)
                aa = noise[key]
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


def trace_table(resources: pd.DataFrame) -> pd.DataFrame:
    """Per experiment, use case, strategy and round: mean CPU (%), mean and peak PSS (bytes), mean and peak threads,
    mean I/O wait (%), and `roughness` of PSS and of threads (dimensionless)."""
    table = []
    keys = ["experiment", "use_case", "strategy", "round"]
    for key, trace in resources.groupby(keys, sort=False):
        # I/O wait is missing where the system does not report it.
        means = trace[list(TRACED)].apply(pd.to_numeric, errors="coerce")
        row = dict(zip(keys, key, strict=True))
        row |= {f"{name}_mean": float(value) for name, value in means.mean().items()}
        row |= {"pss_bytes_peak": float(means["pss_bytes"].max()), "threads_peak": float(means["threads"].max())}
        row |= {"pss_roughness": roughness(trace, "pss_bytes"), "threads_roughness": roughness(trace, "threads")}
        table.append(row)
    return pd.DataFrame(table)


SHARED_CORES = "workers share cores"
"""In the remark on a cell with more ranks than cores (`lockstep.engine.job.Job.cautions`)."""


def cores_of_machine(records: pd.DataFrame) -> float:
    """The most cores that a cell had to itself; inf where none had to share them."""
    shares = records["reason"].str.contains(SHARED_CORES)
    return float((records["workers"] * records["cores_per_worker"])[~shares].max()) if shares.any() else math.inf


_WHERE = ("hosts", "servers", "sync", "launcher", "link_bits_per_second")

_PHASES_AND_BYTES = (*PHASES, "bytes_sent", "link_bytes_sent", "link_bytes_busiest")


def distributed_speedup_table(records: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """`summary_table` with what distribution adds: hosts, servers, sync, launcher, link_bits_per_second, the median
    seconds of each phase, and the bytes sent (per rank; through all links; through the busiest, per step)."""
    table = summary_table(records, experiment)
    if table.empty:
        return table
    found = cells(records, experiment)
    for name in _WHERE:
        table[name] = [cell[name] for cell, _ in found]
    for name in _PHASES_AND_BYTES:
        table[name] = [median_of(rows, name) for _, rows in found]
    return table


def start_table(records: pd.DataFrame) -> pd.DataFrame:
    """Seconds that starting a team took, per launcher, hosts, ranks and host_workers: the median over its starts.

    `host_workers`: a process per rank, or one per host with a thread per rank.
    """
    rows = select(records, {}).assign(ranks=lambda kept: kept["workers"] + kept["servers"])
    rows = rows[rows["launch_seconds"].notna()]
    keys = ["launcher", "hosts", "ranks", "host_workers"]
    starts = rows.drop_duplicates([*keys, "link_bits_per_second", "launch_seconds"])
    return starts.groupby(keys)["launch_seconds"].agg(["median", "max", "count"]).reset_index()
