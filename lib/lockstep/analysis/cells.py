"""The cells of a grid among the rows of its records."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.statistics import median_or_nan
from lockstep.engine.job import IDENTITY
from lockstep.records.reading import contended

NOT_A_CELL = ("round", "seed", "selected", "steps", "warmup_steps")
CELL = [name for name in IDENTITY if name not in NOT_A_CELL]
"""The identity columns that make two rows the same cell of the grid, in different rounds."""
SAME_RUN = ("experiment", "use_case", "device", "precision", "environment", "input")
"""What a row shares with the sequential row it is compared with."""


def cells(records: pd.DataFrame, experiment: str | None = None) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Every cell of the grid in the order of the records: its identity, and its rows (one per round), without those
    that others disturbed where there are quiet ones."""
    rows = records if experiment is None else records[records["experiment"] == experiment]
    if rows.empty:
        return []
    columns = {name: rows[name].to_numpy() for name in CELL}
    # Most columns hold one value throughout, and grouping by each of them takes its time.
    varying = [name for name, values in columns.items() if (values != values[0]).any()] or CELL[:1]
    numbers = rows.groupby(varying, sort=False, dropna=False).ngroup().to_numpy()
    disturbed = contended(rows)
    found = []
    for number in range(numbers.max() + 1):
        positions = np.flatnonzero(numbers == number)
        cell = {name: values[positions[0]] for name, values in columns.items()}
        found.append((cell, _calm_rows(rows.iloc[positions], disturbed[positions])))
    return found


def _calm_rows(rows: pd.DataFrame, disturbed: np.ndarray) -> pd.DataFrame:
    if not disturbed.any() or not (rows.loc[~disturbed, "status"] == "ok").any():
        return rows
    return rows[~disturbed]


def outcome(rows: pd.DataFrame) -> tuple[str, str]:
    """Status and reason of a cell, each part once: `ok` as soon as one round is; then how many are not, and why."""
    bad = rows[rows["status"] != "ok"]
    told = re.sub(r"\b(1 (?:worker|server|core))s\b", r"\1", "; ".join(rows["reason"].fillna("").astype(str)))
    reasons = "; ".join(dict.fromkeys(part for part in told.split("; ") if part))  # older rows say "1 servers"
    if bad.empty:
        return "ok", reasons
    if len(bad) == len(rows):
        return str(bad["status"].iloc[0]), reasons
    return "ok", f"{len(bad)} of {len(rows)} rounds {bad['status'].iloc[0]}: {reasons}"


def median_of(rows: pd.DataFrame, name: str) -> float:
    """The median of a column over a cell's ok rows; NaN where there is none."""
    return median_or_nan(rows[name][rows["status"].to_numpy() == "ok"])
