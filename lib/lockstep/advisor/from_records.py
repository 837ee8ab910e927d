"""A calibration out of stored records, so that what the advisor says can be checked against cells that were measured.

Rows are one use case's. Columns of a row are means over a visit's steps but for `step_seconds`, the lower quartile of
them, so the parts of a step are scaled to add up to it. A worker of several waits for the slowest, whose parts count:
it waits for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lockstep.advisor.calibration import (
    NOTHING,
    SCHEMA,
    CalibratedMachine,
    CalibratedModel,
    Calibration,
    CalibrationCell,
    CalibrationError,
    PeakMemory,
)
from lockstep.analysis.cells import cells
from lockstep.analysis.statistics import AnalysisError, median_or_nan
from lockstep.analysis.tables import cores_of_machine
from lockstep.predict.cost_model import gradient_bytes, share
from lockstep.records import MEMORY

CROWDED = "crowded"
"""The experiment whose workers trained side by side and exchanged nothing. Processes of MEMORY are new, so that they
hold only what they need."""
DESCRIBED: Mapping[str, Any] = {
    "variant": "a", "exchange_every": 1, "device": "cpu", "model_parallel": "none", "opt_weight": "none",
    "compression": "none", "framework": "torch", "precision": "float32", "servers": 0, "policy": "none",
}  # fmt: skip
"""What rows have that the advisor speaks of: data parallel training that exchanges whole gradients in every step."""
_PARTS = ("input_seconds", "compute_seconds", "exchange_seconds", "update_seconds")


def predictable_rows(records: pd.DataFrame) -> pd.DataFrame:
    """The ok rows that the advisor speaks of, of training alone; of A/A pairs the first."""
    keep = (records["status"] == "ok") & records["compute_seconds"].notna() & records["step_seconds"].notna()
    for name, value in DESCRIBED.items():
        keep &= records[name] == value
    return records[keep & (records["input"] != "none") & ~records["workers"].isna()]


def calibration_of(
    records: pd.DataFrame, sizes: Mapping[str, Any] | None = None, machine: CalibratedMachine | None = None
) -> Calibration:
    """What `lockstep advise` would have measured, from rows of one use case on one host.

    `sizes`: parameters, gradient_bytes, buffer_bytes, optimiser_bytes, largest_layer_bytes and empty_process_bytes of
    its model; without them the gradient is as large as an all-reduce sent, and of the rest nothing is known. `machine`:
    without it as many cores as its rows show. Rows of CROWDED exchanged nothing; those of MEMORY say what a worker
    holds, where there are any, and not how long it takes.

    Raises CalibrationError for rows of several use cases, and where no step of one worker is among them.
    """
    own = predictable_rows(records)
    names = sorted(own["use_case"].unique())
    if len(names) != 1:
        raise CalibrationError(f"rows of {', '.join(names) or 'no use case'}: a calibration is of one; choose its rows")
    everything = [(cell, rows) for cell, rows in cells(own) if cell["hosts"] == 1]
    found = [(cell, rows) for cell, rows in everything if cell["experiment"] != MEMORY]
    single = [(cell, rows) for cell, rows in found if cell["workers"] == 1]
    cold = [(cell, rows) for cell, rows in everything if cell["experiment"] == MEMORY and cell["workers"] == 1]
    if not single:
        raise CalibrationError(f"the rows of {names[0]} hold no step of one worker; measure a sequential cell")
    starts = own.loc[own["workers"] == 2, "launch_seconds"]
    return Calibration(
        schema=SCHEMA,
        model=_model(str(names[0]), own, sizes or {}),
        machine=machine or CalibratedMachine("", "cpu", _cores(records), 0, "", "", ""),
        cells=tuple(_cell(cell, rows) for cell, rows in found),
        optimiser_seconds=_numbers(single[0][1]["update_seconds"]),
        copy_bytes_per_second=(),
        memory=_memory(cold or single),
        empty_process_bytes=int((sizes or {}).get("empty_process_bytes", 0)),
        start_seconds=_or(median_or_nan(starts), 0.0),
    )


def _cell(cell: Mapping[str, Any], rows: pd.DataFrame) -> CalibrationCell:
    rows = rows.sort_values(["session", "round"], kind="stable")
    parts = rows[list(_PARTS)].astype(float).fillna(0.0)
    scale = rows["step_seconds"].astype(float) / parts.sum(axis=1)
    of_step = parts.mul(scale, axis=0)
    computing = of_step["input_seconds"] + of_step["compute_seconds"]
    return CalibrationCell(
        sync=NOTHING if cell["experiment"] == CROWDED else str(cell["sync"]),
        workers=int(cell["workers"]),
        per_worker_batch_size=share(cell),
        threads_per_worker=int(cell["threads_per_worker"]),
        step_seconds=_numbers(rows["step_seconds"]),
        compute_seconds=_numbers(computing),
        exchange_seconds=_numbers(of_step["exchange_seconds"]),
        update_seconds=_numbers(of_step["update_seconds"]),
    )


def _model(name: str, own: pd.DataFrame, sizes: Mapping[str, Any]) -> CalibratedModel:
    if "gradient_bytes" in sizes:
        size = float(sizes["gradient_bytes"])
    else:
        try:
            size = gradient_bytes(own)
        except AnalysisError as error:
            raise CalibrationError(f"{name}: {error}; give its sizes") from error
    known = {key: int(sizes.get(key, 0)) for key in ("buffer_bytes", "optimiser_bytes", "largest_layer_bytes")}
    return CalibratedModel(
        name, "{}", "torch", "", "", "", parameters=int(sizes.get("parameters", size // 4)),
        gradient_bytes=round(size), **known,
    )  # fmt: skip


def _memory(single: Sequence[tuple[Mapping[str, Any], pd.DataFrame]]) -> tuple[PeakMemory, ...]:
    """The peaks of one worker of one thread, by batch: over all rounds, since a short one may miss its peak."""
    found: dict[int, float] = {}
    for cell, rows in single:
        peak = rows["peak_pss_bytes"].astype(float).max()
        if cell["threads_per_worker"] == 1 and math.isfinite(peak):
            found[share(cell)] = max(peak, found.get(share(cell), 0.0))
    return tuple(PeakMemory(batch, int(peak)) for batch, peak in sorted(found.items()))


def _cores(records: pd.DataFrame) -> int:
    """Cores of the machine, or as many as a cell's workers had, where none had to share them."""
    cores = cores_of_machine(records[records["status"] == "ok"])
    return int(cores if math.isfinite(cores) else (records["workers"] * records["cores_per_worker"]).max())


def _numbers(values: pd.Series) -> tuple[float, ...]:
    return tuple(float(value) for value in values.astype(float).dropna())


def _or(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
