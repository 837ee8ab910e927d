"""Tables of what Spark does without training: its own jobs, and preparing images."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells, outcome
from lockstep.analysis.statistics import Estimate, interval_of, select
from lockstep.analysis.tables import ratio_columns

SPEEDUP, FEW, DATA, OVERHEAD, PREPARATION = "speedup", "few", "data", "overhead", "preparation"
"""Experiments of notebook 06: the variants, exchanging seldom, images/s against the data set's size, Spark without
training, Parquet."""
PAPER_STYLE = "sparknet"
"""§3.3.2: a map-reduce loop that is the driver's, over images that Spark holds in memory."""


def overhead_table(records: pd.DataFrame, use_case: str = "SimpleBig", beside: str = PAPER_STYLE) -> pd.DataFrame:
    """Seconds of a Spark job without training: an empty one, a broadcast, a treeAggregate (mean, 95 % interval).

    `of_step`: those seconds over a step of `beside` on `use_case` with as many workers, measured in rounds of its own,
    with its interval of_step_low, of_step_high; NaN without such a step.
    """
    table = []
    for cell, rows in cells(records, OVERHEAD):
        status, reason = outcome(rows)
        row: dict[str, Any] = {name: cell[name] for name in ("strategy", "workers", "message_bytes")}
        seconds = interval_over_rounds(rows, "step_seconds")
        row |= ratio_columns(seconds, "seconds")
        fits = {"experiment": SPEEDUP, "use_case": use_case, "strategy": beside, "workers": cell["workers"]}
        step = interval_over_rounds(select(records, fits | {"variant": "a", "device": "cpu"}), "step_seconds")
        ratio = seconds.over(step) if seconds is not None and step is not None else None
        if ratio is None:
            reason = reason or f"no step of {beside} with {cell['workers']} workers"
        row |= named(ratio, "of_step")
        table.append(row | {"rounds": int((rows["status"] == "ok").sum()), "status": status, "reason": reason})
    return pd.DataFrame(table)


def preparation_table(records: pd.DataFrame) -> pd.DataFrame:
    """Images per second from files to Parquet and from Parquet to decoded images (mean, 95 % interval)."""
    table = []
    for cell, rows in cells(records, PREPARATION):
        status, reason = outcome(rows)
        row: dict[str, Any] = {
            name: cell[name] for name in ("use_case", "data_source", "strategy", "workers", "images")
        }
        row |= ratio_columns(interval_over_rounds(rows, "images_per_second"), "images_per_second")
        table.append(row | {"rounds": int((rows["status"] == "ok").sum()), "status": status, "reason": reason})
    return pd.DataFrame(table)


def interval_over_rounds(rows: pd.DataFrame, measure: str) -> Estimate | None:
    """The geometric mean over rounds and its interval; None where nothing ran."""
    values = rows[rows["status"] == "ok"].groupby("round")[measure].median().dropna().astype(float)
    return interval_of(values) if len(values) else None


def named(ratio: Estimate | None, name: str) -> dict[str, float]:
    """A ratio as columns, where a row has low and high of something else already."""
    columns = ratio_columns(ratio, name).items()
    return {column if column.startswith(name) else f"{name}_{column}": value for column, value in columns}
