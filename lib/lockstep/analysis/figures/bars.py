"""Bars per strategy: speedup, memory, input, phases of a step, exchange. A row per cell, failed ones included."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from lockstep.analysis.figures.style import (
    GREY,
    PALETTE,
    PUBLISHED,
    StoredFigure,
    colour,
    data_label,
    empty,
    look,
    note,
    panels,
    row_labels,
)
from lockstep.analysis.tables import PHASES

PUBLISHED_ROWS: Mapping[str, tuple[str, str]] = {
    "CPU single-process": ("threads", "cpu"),
    "CPU multi-process": ("processes", "cpu"),
    "GPU single-process": ("", "cuda"),
    "MPI": ("allreduce", "any"),
    "Spark": ("sparknet", "any"),
    "model": ("gpipe", "cuda"),
    "data and model": ("gpipe", "cuda"),
}
"""A row of the paper's Tables 1 to 3 -> our strategy ("": any but sequential) and device (any: that
of the published row)."""
COMBINED = "data and model"
"""The published row that is of several replicas of a model in stages; "model" is of one."""

ERROR: dict[str, Any] = {"ecolor": "0.15", "elinewidth": 1.3, "capsize": 3}


def by_use_case(
    table: pd.DataFrame, title: str, fitted: bool = False, marked: pd.Series | None = None
) -> tuple[StoredFigure, Iterator[tuple[Axes, pd.DataFrame]]]:
    """A panel per use case; with `fitted` its height follows from its number of rows, else all have one height. Rows
    that were skipped here are counted below the title, unless they are `marked` (a published number stands on them)."""
    shown, footnote = _without_skipped(table, marked)
    groups = [(str(name), rows.reset_index(drop=True)) for name, rows in shown.groupby("use_case", sort=True)]
    figure, axes = panels(len(groups), len(shown), heights=[len(rows) for _, rows in groups] if fitted else None)
    figure.suptitle("\n".join([title, *textwrap.wrap(footnote, 100)]))

    def each() -> Iterator[tuple[Axes, pd.DataFrame]]:
        for axis, (name, rows) in zip(axes, groups, strict=True):
            axis.set_title(f"{name} ({data_label(rows)})", loc="left")
            axis.set_yticks(range(len(rows)), row_labels(rows))
            axis.set_ylim(len(rows) - 0.4, -0.6)
            axis.grid(False, axis="y")
            for y, (status, reason) in enumerate(zip(rows["status"], rows["reason"], strict=True)):
                if status != "ok":
                    note(
                        axis, y + 0.28, f"{status}: {reason}"
                    )  # below the row's middle: a published mark may stand there
            yield axis, rows

    return figure, each()


def _without_skipped(table: pd.DataFrame, marked: pd.Series | None) -> tuple[pd.DataFrame, str]:
    """The rows that have something to show, and what keeps the others from it; all of them if nothing was measured."""
    hidden = table["status"] == "skipped"
    if not (table["status"] == "ok").any():
        return table, ""
    hidden &= ~marked if marked is not None else True
    reasons = table.loc[hidden, "reason"].value_counts()
    parts = [f"{count} row{'' if count == 1 else 's'} skipped ({reason})" for reason, count in reasons.items()]
    return table[~hidden], f"Not shown: {'; '.join(parts)}" if parts else ""


def bars_with_intervals(
    axis: Axes, rows: pd.DataFrame, value: str, low: str = "", high: str = "", left: float = 0.0
) -> None:
    for y, row in rows.iterrows():
        if not np.isfinite(row[value]):
            continue
        axis.barh(y, row[value] - left, left=left, height=0.6, color=colour(row["strategy"]), zorder=2)
        if low:
            error = [[row[value] - row[low]], [row[high] - row[value]]]
            axis.errorbar(row[value], y, xerr=error, fmt="none", zorder=4, **ERROR)


def end_of_axis(values: Iterable[float], least: float) -> float:
    """Where an axis ends that shows these values: at the largest that is finite, and not before `least`."""
    return max([least, *(float(value) for value in values if np.isfinite(value))])


def side_texts(axis: Axes, values: pd.Series, texts: list[str]) -> None:
    """The numbers of each row in a column of their own, where no bar, mark or line can cross them."""
    for y, (value, text) in enumerate(zip(values, texts, strict=True)):
        if np.isfinite(value):
            axis.text(1.01, y, text, transform=axis.get_yaxis_transform(), va="center", fontsize=8)


def speedup_bars(table: pd.DataFrame, published: pd.DataFrame, title: str, fitted: bool = False) -> StoredFigure:
    """Speedups with intervals (`summary_table`) beside the published ones (`read_table`), on a log scale from 1.
    With `fitted` the height of a panel follows from its number of rows, for use cases with many rows beside others
    with few."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        marked = pd.Series([bool(_published_of(row, table, published)) for _, row in table.iterrows()], table.index)
        figure, each = by_use_case(table, title, fitted, marked)
        drawn: list[float] = [1.0]
        axes = []
        for axis, rows in each:
            axes.append(axis)
            bars_with_intervals(axis, rows, "speedup", "low", "high", left=1.0)
            texts = [f"{r.speedup:.2f}  ({r.step_seconds:.3g} s per step)" for r in rows.itertuples()]
            side_texts(axis, rows["speedup"], texts)
            axis.axvline(1, color="0.2", linewidth=1, zorder=3)
            drawn += [*rows["low"].dropna(), *rows["high"].dropna(), *_draw_published(axis, rows, published)]
        for axis in axes:
            _log_speedups(axis, min(drawn), max(drawn))
        base = next((name for name in table["base"] if name), "sequential")
        axes[-1].set_xlabel(f"speedup in images/s over {base} (log scale; 95 % interval over paired rounds)")
        handles: list[Any] = [Patch(facecolor="0.75", label="measured here")]
        if len(published):
            handles.append(Line2D([], [], **PUBLISHED, label=f"published ({published['place'].iloc[0]})"))
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_published(axis: Axes, rows: pd.DataFrame, published: pd.DataFrame) -> list[float]:
    drawn = []
    for y, row in rows.iterrows():
        for speedup in _published_of(row, rows, published):
            axis.plot(speedup, y, **PUBLISHED)
            at, below = (speedup, y), speedup < 1  # where a bar may lie between the mark and 1
            beside: dict[str, Any] = {"xytext": (-9, 0), "ha": "right"} if below else {"xytext": (9, 0)}
            beside |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8}} if below else {}
            axis.annotate(f"{speedup:g}", at, textcoords="offset points", va="center", color=GREY, fontsize=8, **beside)
            drawn.append(speedup)
    return drawn


def _published_of(row: pd.Series, rows: pd.DataFrame, published: pd.DataFrame) -> list[float]:
    """The published speedups that stand on this row of `rows`."""
    found = []
    for given in published[published["use_case"] == row["use_case"]].itertuples():
        strategy, device = PUBLISHED_ROWS.get(str(given.row), ("?", "?"))
        named = row["strategy"] == strategy or (not strategy and row["strategy"] != "sequential")
        named = named and (strategy != "gpipe" or (row["replicas"] > 1) == (given.row == COMBINED))
        # Spark's published speedup is one of several nodes, so it stands on the row with the most workers.
        most = rows.loc[rows["use_case"] == row["use_case"], "workers"].max()
        named = named and (strategy != "sparknet" or row["workers"] == most)
        device = given.device if device == "any" else device
        same = device == row["device"] and row["precision"] == "float32" and row["variant"] == "a"
        if named and same and np.isfinite(given.speedup):
            found.append(float(given.speedup))
    return found


def _log_speedups(axis: Axes, low: float, high: float) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xlim(min(0.7, low * 0.8), max(high, 2.0) * 1.8)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_locator(NullLocator())


def draw_stack(axis: Axes, rows: pd.DataFrame, parts: Sequence[str]) -> None:
    """The parts of each row's step (columns of seconds) as one stacked bar; a mark shows the whole step."""
    left = np.zeros(len(rows))
    for index, part in enumerate(parts):
        width = rows[part].fillna(0).to_numpy(dtype=float)
        axis.barh(range(len(rows)), width, left=left, height=0.6, color=PALETTE[index], zorder=2)
        left = left + width
    for y, step in enumerate(rows["step_seconds"]):
        if np.isfinite(step):
            axis.vlines(step, y - 0.42, y + 0.42, color="0.1", linewidth=2, zorder=5)
    axis.set_xlim(0, end_of_axis([*left, *rows["step_seconds"]], 1e-9) * 1.08)


def stack_legend(figure: StoredFigure, parts: Sequence[str], names: Mapping[str, str] | None = None) -> None:
    texts = [(names or {}).get(part, part.removesuffix("_seconds")) for part in parts]
    handles: list[Any] = [Patch(facecolor=PALETTE[index], label=text) for index, text in enumerate(texts)]
    handles.append(Line2D([], [], color="0.1", linewidth=2, label="whole step"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if names else len(handles), frameon=False)


def phase_stack(
    table: pd.DataFrame,
    title: str,
    parts: Sequence[str] = PHASES,
    names: Mapping[str, str] | None = None,
    fitted: bool = False,
) -> StoredFigure:
    """Where a step's time goes (`phase_table`, or one with other `parts`): each part of its slowest rank, and the whole
    step as a mark. `names`: of parts, in the legend; `fitted`: as `speedup_bars`."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, each = by_use_case(table, title, fitted)
        for axis, rows in each:
            draw_stack(axis, rows, parts)
            axis.set_xlabel("seconds per step")
        stack_legend(figure, parts, names)
    return figure
