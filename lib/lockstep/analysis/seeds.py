"""Statistics over seeds, shared by the notebooks that train until a network has learnt; and which cells those are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.statistics import Conditions, mean_of, per_round, select, sessions_column
from lockstep.engine.job import OF_SIZES
from lockstep.engine.training.scores import DIVERGED

LEARNING, CANDIDATES, ABLATION = "learning", "candidates", "ablation"
SELECTED, PAIRED, SPEED, PROFILE = "selected", "paired", "speed", "profile"
HEADS = "heads"
"""Experiments of notebook 07: accuracy against batch size, settings compared on validation data, pooling x dropout, the
finalists among them, distributed beside sequential training, steps that are timed, steps under a profiler, and what
reads the features in place of the LSTM."""

MARGIN = 2.0
"""Percentage points: two accuracies that differ by no more count as alike, and so does a published number."""

SETTING: tuple[str, ...] = ("network", "global_batch_size", "epochs", "updates", "learning_rate", "learning_rate_rule")
SETTING += ("rate_warmup_epochs", "learning_rate_decay", "pooling", "dropout", "weight_decay", "batch_norm")
SETTING += ("class_weights", "augmentation", "standardise", "early_stopping_epochs", *OF_SIZES)
"""What of a job decides which parameters come out, but for the seed, the data and rounding."""

_MODEL_PARALLEL = ("pipeline", "head")


def way(cell: Mapping[str, Any]) -> str:
    """sequential | data parallel | model parallel | weights averaged, which trains other parameters."""
    if cell["model_parallel"] in _MODEL_PARALLEL:
        return "model parallel"
    if cell["workers"] > 1 and (cell["exchange_every"] != 1 or cell["opt_weight"] != "none"):
        return "weights averaged"
    return "data parallel" if cell["workers"] > 1 else "sequential"


def mean_or_none(values: pd.Series) -> Estimate | None:
    known = values.dropna()
    return mean_of(known) if len(known) else None


def diverged(rows: pd.DataFrame) -> int:
    """Rows whose training diverged. A mean over the other seeds would hide that."""
    return int(rows["reason"].fillna("").astype(str).str.startswith(DIVERGED).sum())


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """The ok rows of a cell, indexed by seed, for means over them; none where a seed diverged."""
    kept = rows[rows["status"] == "ok"].set_index("seed")
    return kept.iloc[:0] if diverged(rows) else kept


def wilson(right: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion: what one run's accuracy says about images outside its test split."""
    if of < 1 or not 0 <= right <= of:
        raise AnalysisError(f"{right} right of {of}: there is no such share; count images of a test split")
    z = 1.959963984540054
    share, more = right / of, z * z / of
    middle = (share + more / 2) / (1 + more)
    half = z * math.sqrt(share * (1 - share) / of + more / (4 * of)) / (1 + more)
    return middle - half, middle + half


def paired_points(
    records: pd.DataFrame, ours: Conditions, base: Conditions, measure: str = "test_accuracy"
) -> Estimate:
    """Mean over seeds of `measure` of one cell minus another's of the same seed, in percentage points.

    Raises AnalysisError where no seed was trained by both, or one diverged.
    """
    for side in (ours, base):
        rows = select(records, side, status=None)
        if lost := diverged(rows):
            raise AnalysisError(f"{lost} of {len(rows)} seeds diverged: there is no mean difference over all of them")
    above, below = per_round(records, ours, measure), per_round(records, base, measure)
    points = (100 * (above - below)).dropna()
    if points.empty:
        raise AnalysisError(f"no seed has {measure} of both {dict(ours)} and {dict(base)}: measure them in one run")
    return mean_of(points)


def mean_columns(ratio: Estimate | None, name: str, scale: float = 1.0) -> dict[str, Any]:
    """A mean or a ratio as columns: name, name_low, name_high; NaN without one. Where its sessions differ,
    name_sessions says what each of them gave."""
    found = ratio.columns if ratio else (math.nan,) * 3
    columns = dict(zip((name, f"{name}_low", f"{name}_high"), (scale * value for value in found), strict=True))
    return columns | sessions_column(ratio.times(scale) if ratio else None, name)


def percent_columns(share: Estimate | None, name: str) -> dict[str, Any]:
    """A mean share as columns in percent, its interval cut off at 0 and 100: no accuracy lies beyond."""
    columns = mean_columns(share, name, 100)
    return columns | {end: min(max(columns[end], 0.0), 100.0) for end in (f"{name}_low", f"{name}_high")}


def same_but(cell: Mapping[str, Any], *free: str, **changed: Any) -> dict[str, Any]:
    """The conditions of a cell with the fields `changed` instead, whatever the fields `free` hold."""
    return {name: value for name, value in cell.items() if name not in free} | changed
