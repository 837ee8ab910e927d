"""The tidy tables behind notebooks, figures and reports, from records alone. A failed or skipped cell stays a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import SAME_RUN, cells, median_of, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.statistics import (
    BASELINE,
    Conditions,
    Estimate,
    is_difference,
    ratio_or_reason,
    roughness,
    select,
    sessions_column,
)
from lockstep.analysis.stored import once

TRACED = ("cpu_percent", "pss_bytes", "threads", "training_threads", "framework_threads", "io_wait_percent")
PHASES = ("input_seconds", "compute_seconds", "wait_seconds", "exchange_seconds", "update_seconds")
SHOWN: tuple[str, ...] = ("experiment", "use_case", "strategy", "variant", "device", "precision", "input")
SHOWN += ("data_source", "workers")
SHOWN += ("threads_per_worker", "cores_per_worker", "global_batch_size")


def ratio_columns(ratio: Estimate | None, name: str = "speedup") -> dict[str, Any]:
    """A ratio as columns: `name`, low, high; NaN without one. Where its sessions differ, NAME_sessions says what each
    of them gave: a column that the other tables do not have."""
    values = ratio.columns if ratio else (np.nan,) * 3
    return dict(zip((name, "low", "high"), values, strict=True)) | sessions_column(ratio, name)


def sessions_in(row: Mapping[str, Any], name: str) -> str:
    """What the sessions of a row's ratio gave, to stand behind it in a sentence; "" where they do not differ."""
    found = row.get(f"{name}_sessions")
    return f" {found}" if isinstance(found, str) else ""


def _base_of(records: pd.DataFrame, cell: dict[str, Any], base: Conditions) -> Conditions | None:
    """The base's conditions for a cell, or None where the same experiment holds no such rows. The second of an A/A pair
    stood beside the first alone, so that is its base."""
    again = cell["variant"] != "a"
    wanted = {**cell, "variant": "a"} if again else {**{name: cell[name] for name in SAME_RUN}, **base}
    return wanted if len(select(records, wanted)) else None


def summary_table(
    records: pd.DataFrame, experiment: str = "table1", base: Conditions = BASELINE, noise: float | None = None
) -> pd.DataFrame:
    """One row per cell of an experiment, with its speedup over `base` in the same use case, device and precision.

    Columns: identity (SHOWN), speedup, low, high (dimensionless; 95 % interval), images_per_second (1/s),
    step_seconds and base_step_seconds (s), base, rounds (paired), difference (bool: is it beyond `noise`, else that of
    these records), status, reason. Speedups are NaN where the cell or its base has no ok rows.
    """
    table = []
    noise = aa_noise(records) if noise is None else noise
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        ratio = None
        wanted = _base_of(records, cell, base)
        if status == "ok" and wanted is not None:
            ratio, why = ratio_or_reason(records, cell, wanted, "images_per_second")
            reason = f"{reason}; {why}".strip("; ")
        table.append(
            {name: cell[name] for name in SHOWN}
            | ratio_columns(ratio)
            | {
                "images_per_second": median_of(rows, "images_per_second"),
                "step_seconds": median_of(rows, "step_seconds"),
                "base": str(base.get("strategy", "")) if ratio else "",
                "base_step_seconds": float(select(records, wanted)["step_seconds"].median()) if wanted else np.nan,
                "rounds": ratio.rounds if ratio else int((rows["status"] == "ok").sum()),
                "difference": ratio is not None and is_difference(ratio, noise),
                "status": status,
                "reason": reason,
            }
        )
    return pd.DataFrame(table)


TRACE_SECONDS = 60.0
"""How long a cell trains while its resources are sampled."""


def trace_table(resources: pd.DataFrame) -> pd.DataFrame:
    """Per experiment, use case, strategy and trace (`round`: the first, second ... of the cell): mean CPU (%), mean and
    peak PSS (bytes), mean and peak threads, means of those that train and of the framework's, mean I/O wait (%), and
    `roughness` of PSS, threads and CPU use (dimensionless). A trace is one value, however many samples it has. What was
    sampled while the cell loaded is left out."""
    training = resources[resources["phase"] == "train"] if len(resources) else resources
    if training.empty:
        return pd.DataFrame()
    keys = ["experiment", "use_case", "strategy"]
    table = []
    for key, own in training.groupby(keys, sort=False):
        for number, (_, trace) in enumerate(own.groupby("round")):
            # I/O wait and the kinds of threads are missing where the system does not tell them, or did not yet.
            means = trace.reindex(columns=list(TRACED)).apply(pd.to_numeric, errors="coerce")
            row = {**dict(zip(keys, key, strict=True)), "round": number}
            row |= {f"{name}_mean": float(value) for name, value in means.mean().items()}
            row |= {"pss_bytes_peak": float(means["pss_bytes"].max()), "threads_peak": float(means["threads"].max())}
            roughest = {"pss": "pss_bytes", "threads": "threads", "cpu": "cpu_percent"}
            row |= {f"{name}_roughness": roughness(trace, column) for name, column in roughest.items()}
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


@once
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
