"""Figures of training on Spark: where a step's time goes, images/s against the data set's size, and starting up."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from lockstep.analysis.figures.bars import end_of_axis, phase_stack, side_texts
from lockstep.analysis.figures.style import (
    PALETTE,
    ROW_INCHES,
    StoredFigure,
    colour,
    data_label,
    empty,
    interval_points,
    label,
    line_between,
    look,
    marker,
    new_figure,
)
from lockstep.engine.job.strategies import LAUNCHER_NAMES
from lockstep.experiments.e06_spark_distribution.tables import PARTS, UNEVEN

_NAMES: Mapping[str, str] = {
    "read_seconds": "read (all of a partition)",
    "input_seconds": "input (decoded images)",
    "compute_seconds": "compute",
    "update_seconds": "update",
    "wait_seconds": "exchange: wait",
    "broadcast_seconds": "exchange: broadcast (driver)",
    "fetch_seconds": "exchange: fetch (executors)",
    "exchange_seconds": "exchange: all else (SparkNet: schedule, add up)",
}
"""The last four are what sentences call the exchange."""
STARTED: Mapping[str, str] = {
    "mpiexec": "MPI's ranks",
    "spark": "ranks in Spark's barrier mode",
    "spark_driver": "SparkNet's driver",
    "threads": "a process without Spark or MPI",
}
"""What sentences and figures call what a launcher starts."""
_RATE = ("images_per_second", "low", "high")


def parts_stack(table: pd.DataFrame, title: str) -> StoredFigure:
    """Seconds per step of each part (`tables.parts_table`), the whole step a mark."""
    return phase_stack(table, title, PARTS, _NAMES, fitted=True)


def data_lines(table: pd.DataFrame, title: str) -> StoredFigure:
    """Images/s against the images that are trained on, a line per strategy (`tables.data_table`). Sets that are
    smaller than their steps are left out: a point would look like the effect of their size."""
    ok = table[table["images_per_second"].notna() & (table["reason"] != UNEVEN)] if len(table) else table
    if ok.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure = new_figure(7.5, 5.2)
        axis = figure.subplots()
        names = list(dict.fromkeys(ok["strategy"]))
        handles: list[Line2D] = []
        for index, name in enumerate(names):
            own = ok[ok["strategy"] == name].sort_values("images")
            style = {"color": colour(name), "marker": marker(name), "linestyle": line_between(len(own))}
            aside = 1 + 0.03 * (index - (len(names) - 1) / 2)  # side by side, never on top of each other
            interval_points(axis, own["images"] * aside, own, _RATE, **style)
            handles.append(Line2D([], [], label=label(name), **style))
        sizes = sorted(int(size) for size in ok["images"].unique())
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
        axis.set_ylim(0, end_of_axis([*ok["high"], *ok[_RATE[0]]], 1.0) * 1.12)
        axis.set_xlabel("images that are trained on (log scale)")
        axis.set_ylabel("images/s (mean, 95 % interval)")
        about = f"{', '.join(dict.fromkeys(ok['use_case']))}, {data_label(ok)}, {_counts(ok['workers'])}"
        axis.set_title(f"{title}\n({about})", loc="left")
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def start_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """Seconds until all ranks of a team were ready, per launcher and number of ranks (`tables.start_table`)."""
    if table.empty:
        return empty(title, "no start was recorded")
    rows = table.reset_index(drop=True)
    with look():
        figure = new_figure(8.0, 1.4 + ROW_INCHES * len(rows))
        axis = figure.subplots()
        started = (STARTED.get(name, name) for name in rows["launcher"])
        names = [f"{name}, {_workers(int(count))}" for name, count in zip(started, rows["ranks"], strict=True)]
        colours = [PALETTE[LAUNCHER_NAMES.index(name) % len(PALETTE)] for name in rows["launcher"]]
        axis.barh(range(len(rows)), rows["median"], height=0.6, color=colours, zorder=2)
        side_texts(axis, rows["median"], [_start_text(row) for row in rows.to_dict("records")])
        axis.set_yticks(range(len(rows)), names)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xlim(0, end_of_axis(rows["median"], 1e-9) * 1.05)
        axis.grid(False, axis="y")
        axis.set_xlabel("seconds until all ranks were ready (median over starts)")
        axis.set_title(title, loc="left")
    return figure


def _start_text(row: Mapping[str, float]) -> str:
    count = int(row["count"])
    starts = f"{count} starts, the slowest {row['max']:.1f} s" if count > 1 else "1 start"
    return f"{row['median']:.1f} s  ({starts})"


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _counts(workers: pd.Series) -> str:
    return " or ".join(_workers(int(count)) for count in sorted(workers.unique()))
