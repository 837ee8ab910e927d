"""Steps that are timed: ways to train beside sequential training, torch beside TensorFlow, and what layers cost."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.seeds import PROFILE, SPEED, mean_columns, same_but, way
from lockstep.analysis.statistics import Conditions, interval_of, is_difference, ratio_or_reason, select
from lockstep.analysis.tables import PHASES, ratio_columns
from lockstep.experiments.e07_convlstm_batch_size.grid import SAME
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import extras

EPOCHS = 10
"""Of Table 2: what a training time is of."""
_SHOWN: tuple[str, ...] = ("use_case", "data_source", "network", "framework", "strategy", "variant")
_SHOWN += ("launcher", "workers", "servers", "global_batch_size", "dropout", "weight_decay")


def sequential_of(cell: Conditions) -> dict[str, Any]:
    """Conditions of the sequential training that a timed cell is compared with."""
    return {name: cell[name] for name in SAME} | {"strategy": "sequential", "variant": "a"}


def speed_table(records: pd.DataFrame) -> pd.DataFrame:
    """One row per timed cell: speedup over sequential training with the same network, framework and global batch, and
    `training_seconds`: EPOCHS epochs at that speed, on as many images as the row was measured on.

    speedup, low, high: images/s, paired per round; of the second of an A/A pair over the first. `difference`: may it be
    called one. Phases are the slowest rank's.
    """
    table, noise = [], aa_noise(records)
    for cell, rows in cells(records, SPEED):
        status, reason = outcome(rows)
        ratio = None
        if status == "ok":
            base = sequential_of(cell) if cell["variant"] == "a" else same_but(cell, variant="a")
            ratio, why = ratio_or_reason(records, cell, base, "images_per_second")
            reason = reason or why
        row: dict[str, Any] = {name: cell[name] for name in _SHOWN} | {"way": way(cell)} | ratio_columns(ratio)
        row |= {name: median_of(rows, name) for name in ("images_per_second", "step_seconds", *PHASES)}
        epochs = rows.loc[rows["status"] == "ok", "epoch_seconds"].dropna().astype(float)
        row |= mean_columns(interval_of(EPOCHS * epochs) if len(epochs) else None, "training_seconds")
        row |= {"rounds": ratio.rounds if ratio else 0, "difference": ratio is not None and is_difference(ratio, noise)}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def framework_table(records: pd.DataFrame) -> pd.DataFrame:
    """torch against TensorFlow: `ratio` = seconds of TensorFlow's step / torch's, paired per round; above 1: torch is
    faster. One row per cell of TensorFlow. The two may lay images out in memory differently (`memory_format`)."""
    table = []
    for cell, rows in cells(records, SPEED):
        if cell["framework"] != "tensorflow" or cell["variant"] != "a":
            continue
        status, reason = outcome(rows)
        other = same_but(cell, "memory_format", framework="torch")
        ratio, why = ratio_or_reason(records, cell, other, "step_seconds")
        reason = reason or why
        kept = ("use_case", "data_source", "network", "strategy", "workers", "global_batch_size")
        row: dict[str, Any] = {name: cell[name] for name in kept} | ratio_columns(ratio, "ratio")
        row |= {"tensorflow_seconds": median_of(rows, "step_seconds")}
        torch = select(records[records["round"].isin(rows["round"])], other)  # equal rounds: processors differ
        row |= {"torch_seconds": median_of(torch, "step_seconds") if len(torch) else float("nan")}
        row |= {"difference": ratio is not None and is_difference(ratio, aa_noise(records, "step_seconds"))}
        table.append(row | {"rounds": ratio.rounds if ratio else 0, "status": status, "reason": reason})
    return pd.DataFrame(table)


def framework_operator_table(records: pd.DataFrame, operators: pd.DataFrame | None) -> pd.DataFrame:
    """Where a forward and backward pass goes in each framework, by kind of operator: medians over rounds.

    Columns: use_case, data_source, network, framework, global_batch_size, operators, seconds, share (of the operators'
    own time), calls (torch's with those that operators make), flops, rounds, step_seconds (of the same step without a
    profiler and with its update, from the timed cell in the sessions of the profiles, for other processors take other
    times; NaN without one), status, reason. A cell that was not profiled is one row without an operator.
    """
    table = []
    for cell, rows in cells(records, PROFILE):
        status, reason = outcome(rows)
        row: dict[str, Any] = {name: cell[name] for name in (*_PROFILED, "data_source")}
        row["step_seconds"] = _timed(records[records["session"].isin(rows["session"])], cell)
        own = pd.DataFrame() if operators is None else operators
        for name in _PROFILED if len(own) else ():
            own = own[own[name] == cell[name]]
        if own.empty:
            lacking = {"operators": "", "seconds": float("nan"), "share": float("nan"), "rounds": 0}
            table.append(row | lacking | {"status": status, "reason": reason})
            continue
        for kind, found in own.groupby("operators", sort=False):
            medians = {name: float(found[name].median()) for name in ("seconds", "share", "calls", "flops")}
            kept = {"operators": kind, **medians, "rounds": len(found)}
            table.append(row | kept | {"status": status, "reason": reason})
    return pd.DataFrame(table)


_PROFILED = ("use_case", "network", "framework", "global_batch_size")


def _timed(records: pd.DataFrame, cell: Conditions) -> float:
    """Median seconds of the sequential step that was profiled in `cell`; NaN where it was not timed."""
    wanted = {name: cell[name] for name in _PROFILED} | {"experiment": SPEED, "strategy": "sequential", "variant": "a"}
    rows = select(records, wanted | {"dropout": 0.0, "weight_decay": 0.0})
    return median_of(rows, "step_seconds") if len(rows) else float("nan")


def price_table(records: pd.DataFrame) -> pd.DataFrame:
    """What dropout, L2 and another network cost: a sequential step with it over one of the plain CNN, paired per round,
    with torch. `ratio` above 1: with it, training is longer at as many epochs."""
    table = []
    for cell, rows in cells(records, SPEED):
        plain = same_but(cell, network="cnn", dropout=0.0, weight_decay=0.0, pooling="default")
        if cell["strategy"] != "sequential" or cell["variant"] != "a" or cell == plain or cell["framework"] != "torch":
            continue
        status, reason = outcome(rows)
        ratio, why = ratio_or_reason(records, cell, plain, "step_seconds")
        reason = reason or why
        row = {name: cell[name] for name in ("use_case", "data_source", "framework", "network", "global_batch_size")}
        row |= {"setting": ", ".join(extras(cell)), "dropout": cell["dropout"]}
        row |= {"weight_decay": cell["weight_decay"]} | ratio_columns(ratio, "ratio")
        row |= {"difference": ratio is not None and is_difference(ratio, aa_noise(records, "step_seconds"))}
        table.append(row | {"rounds": ratio.rounds if ratio else 0, "status": status, "reason": reason})
    return pd.DataFrame(table)
