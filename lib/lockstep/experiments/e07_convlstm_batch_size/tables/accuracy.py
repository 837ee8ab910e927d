"""Accuracy over seeds: against batch size, of settings, of pooling and dropout, and seed by seed beside another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import CELL, cells, median_of, outcome
from lockstep.analysis.seeds import (
    ABLATION,
    LEARNING,
    MARGIN,
    PAIRED,
    SELECTED,
    SETTING,
    mean_columns,
    mean_or_none,
    paired_points,
    percent_columns,
    same_but,
    scored,
    way,
    wilson,
)
from lockstep.analysis.statistics import AnalysisError, per_round
from lockstep.engine.job import Job
from lockstep.experiments.e07_convlstm_batch_size.tables.classes import right_of

_WHERE = ("use_case", "data_source", "images", "framework", "strategy", "workers")
_SCORES = {"test_balanced_accuracy": "balanced", "test_auc": "auc", "train_accuracy": "train"}
_TRAINED = ("training_seconds", "epochs_trained", "updates_done")
_DEFAULTS = {field.name: field.default for field in fields(Job)}
_SHORT = {"global_batch_size": "batch", "rate_warmup_epochs": "warm-up", "early_stopping_epochs": "early stopping"}
_SHORT |= {"standardise": "standardised"}
PARALLEL: tuple[str, ...] = ("strategy", "launcher", "sync", "bucket", "overlap", "policy", "shards", "workers")
PARALLEL += ("servers", "model_parallel")
PARALLEL += ("stages", "stages_per_rank", "micro_batches", "schedule", "partition", "activations")
PARALLEL += ("opt_weight", "exchange_every", "state_averaged", "per_worker_batch_size", "cores_per_worker")
PARALLEL += ("memory_format",)
"""Of a distributed row, what its sequential one of the same training differs in."""


def seed_accuracy_table(records: pd.DataFrame, experiment: str, confusion: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per cell: mean test accuracy over seeds (%), its 95 % interval over seeds, and what belongs to it.

    `balanced`, `auc`, `train`, `validation_loss`: means over seeds (%; auc and loss as they are), `validation` with its
    interval. `gap`: train minus test
    accuracy, paired by seed (percentage points). `run_low`, `run_high`: Wilson's interval of the seed with the median
    accuracy alone, from the table `confusion`; the interval over seeds says nothing about other test images. Seconds
    are of training as it ran, of cells that were not timed against each other. Where a seed diverged, no mean is given:
    `reason` says how many did, `seeds` how many did not.
    """
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        ok = scored(rows)
        row: dict[str, Any] = {
            name: cell[name] for name in (*_WHERE, *SETTING, "scored_on", "selected") if name in cell
        }
        row |= {"selected": bool(rows["selected"].any()), "way": way(cell), "budget": budget(cell), "rule": rule(cell)}
        row |= percent_columns(mean_or_none(ok["test_accuracy"]), "accuracy")
        for name, short in _SCORES.items():
            row[short] = float(ok[name].astype(float).mean()) * (1 if short == "auc" else 100)
        row |= percent_columns(mean_or_none(ok["validation_accuracy"]), "validation")
        row["validation_loss"] = float(ok["validation_loss"].astype(float).mean())
        row |= mean_columns(mean_or_none(ok["train_accuracy"] - ok["test_accuracy"]), "gap", 100)
        row |= dict(zip(("run_low", "run_high"), _one_run(ok, cell, confusion), strict=True))
        row |= {name: median_of(rows, name) for name in _TRAINED}
        measured = "validation_accuracy" if cell["scored_on"] == "held_out" else "test_accuracy"
        seeds = int(rows.loc[rows["status"] == "ok", measured].notna().sum())
        row |= {"seeds": seeds, "status": status, "reason": reason}
        table.append(row)
    return pd.DataFrame(table)


def coverage_table(records: pd.DataFrame) -> pd.DataFrame:
    """Which cells there are: per experiment, use case, network and framework how many, in how many rounds, and how many
    rows are ok."""
    keys = ["experiment", "use_case", "data_source", "images", "network", "framework"]
    good = records.assign(ok=records["status"] == "ok", cells=records.groupby(list(CELL), dropna=False).ngroup())
    how = {"rounds": "nunique", "rows": "size", "ok": "sum", "cells": "nunique"}
    found = good.assign(rounds=good["round"], rows=good["round"]).groupby(keys, sort=False)
    return found.agg(**{name: (name, each) for name, each in how.items()}).reset_index()


def _one_run(ok: pd.DataFrame, cell: Mapping[str, Any], confusion: pd.DataFrame | None) -> tuple[float, float]:
    """Wilson's interval (%) of the seed in the middle; NaN where its images were not counted."""
    accuracies = ok["test_accuracy"].dropna().sort_values()
    middle = accuracies.index[(len(accuracies) - 1) // 2 :][:1]
    counted = right_of(confusion, cell, int(middle[0])) if len(middle) else None
    low, high = wilson(*counted) if counted else (float("nan"), float("nan"))
    return 100 * low, 100 * high


def budget(cell: Mapping[str, Any]) -> str:
    """How long training went on: 10 epochs | 630 updates; "" for steps that are timed."""
    if cell["updates"]:
        return f"{cell['updates']} updates"
    if not cell["epochs"]:
        return ""
    return f"{cell['epochs']} epoch{'' if cell['epochs'] == 1 else 's'}"


def rule(cell: Mapping[str, Any]) -> str:
    """Of the learning rate against the batch: constant | linear | linear, 2 epochs warm-up."""
    text = str(cell["learning_rate_rule"])
    epochs = cell["rate_warmup_epochs"]
    return f"{text}, {epochs} epoch{'' if epochs == 1 else 's'} warm-up" if epochs else text


def equal_updates(table: pd.DataFrame, updates: int) -> pd.DataFrame:
    """The rows of `seed_accuracy_table` with so many updates at a constant rate, which updates or epochs gave."""
    return table[(table["updates_done"] == updates) & (table["rule"] == "constant")]


def setting_text(cell: Mapping[str, Any]) -> str:
    """A setting in a line: batch and length, and what else is not the job's default; without the network."""
    parts = [f"batch {cell['global_batch_size']}", budget(cell), *extras(cell)]
    return ", ".join(part for part in parts if part)


def extras(cell: Mapping[str, Any]) -> list[str]:
    """What of a setting, but for network, batch and length, is not the job's default."""
    parts = []
    for name in SETTING:
        value = cell.get(name, _DEFAULTS[name])  # a traced table may be older than an option
        if name in ("network", "global_batch_size", "epochs", "updates") or value == _DEFAULTS[name]:
            continue
        short = _SHORT.get(name, name.replace("_", " "))
        text = f"{value:g}" if isinstance(value, float) else str(value)
        parts.append(short if isinstance(value, bool | np.bool_) else f"{short} {text}")
    return parts


def paired_table(records: pd.DataFrame, experiment: str = PAIRED) -> pd.DataFrame:
    """Distributed minus sequential training of the same setting and seed, in percentage points of test accuracy.

    `within`: does the 95 % interval over seeds lie within ± MARGIN; `equal`: seeds with the same accuracy exactly.
    """
    table = []
    for cell, rows in cells(records, experiment):
        if way(cell) == "sequential":
            continue
        status, reason = outcome(rows)
        points, equal = None, 0
        try:
            base = same_but(cell, *PARALLEL, strategy="sequential")
            points = paired_points(records, cell, base)
            equal = _equal_seeds(records, cell, base)
        except AnalysisError as error:
            reason = reason or str(error)
        row: dict[str, Any] = {name: cell[name] for name in (*_WHERE, "network", "global_batch_size")}
        row |= {"way": way(cell), "setting": setting_text(cell), "budget": budget(cell)} | mean_columns(
            points, "points"
        )
        row |= {"within": points is not None and points.low >= -MARGIN and points.high <= MARGIN}
        row |= {"equal": equal, "seeds": points.rounds if points else 0, "status": status, "reason": reason}
        table.append(row)
    return pd.DataFrame(table)


def _equal_seeds(records: pd.DataFrame, cell: dict[str, Any], base: dict[str, Any]) -> int:
    pair = [per_round(records, conditions, "test_accuracy") for conditions in (cell, base)]
    return int((pair[0] - pair[1]).dropna().eq(0).sum())


def gain_table(records: pd.DataFrame, experiment: str = ABLATION, **base: Any) -> pd.DataFrame:
    """`seed_accuracy_table` with `points`: over the cell whose fields `base` say, else the same, paired by seed.

    By default over pooling="max" and dropout=0, so that each row says what pooling and dropout do.
    """
    table = seed_accuracy_table(records, experiment)
    base = base or {"pooling": "max", "dropout": 0.0}
    found = []
    for cell, _ in cells(records, experiment):
        other = same_but(cell, **base)
        try:
            points = None if other == cell else paired_points(records, cell, other)
        except AnalysisError:
            points = None
        found.append(mean_columns(points, "points"))
    return table.join(pd.DataFrame(found, index=table.index)) if len(table) else table


def lstm_table(records: pd.DataFrame, experiments: tuple[str, ...] = (LEARNING, PAIRED, SELECTED)) -> pd.DataFrame:
    """The ConvLSTM minus the CNN with the same setting, way and seed, in percentage points of test accuracy.

    Columns: use_case, experiment, framework, way, workers, setting, and of it global_batch_size and updates; points,
    points_low, points_high, seeds. Cells of which no seed was trained with both are left out.
    """
    table = []
    for experiment in experiments:
        for cell, _ in cells(records, experiment):
            if cell["network"] != "convlstm":
                continue
            try:
                points = paired_points(records, cell, same_but(cell, network="cnn"))
            except AnalysisError:
                continue
            row: dict[str, Any] = {"use_case": cell["use_case"], "experiment": experiment}
            row |= {"framework": cell["framework"], "way": way(cell), "workers": cell["workers"]}
            row |= {"setting": setting_text(cell)} | {name: cell[name] for name in ("global_batch_size", "updates")}
            table.append(row | mean_columns(points, "points") | {"seeds": points.rounds})
    return pd.DataFrame(table)
