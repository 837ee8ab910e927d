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

from lockstep.analysis.figures.messages import use_case_title
from lockstep.analysis.figures.style import (
    GREY,
    PALETTE,
    PUBLISHED,
    StoredFigure,
    colour,
    empty,
    look,
    note,
    panels,
    row_labels,
)
from lockstep.analysis.statistics import BASELINE
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

BEYOND: dict[str, Any] = PUBLISHED | {"marker": ">", "clip_on": False}
"""A published number beyond the end of an axis."""
SLOWEST = "each part is its slowest worker's, so parts may add up to more than the step"
_VISIBLE = 0.003  # share of the longest step below which a part is no wider than a line

ERROR: dict[str, Any] = {"ecolor": "0.15", "elinewidth": 1.3, "capsize": 3}


def by_use_case(
    table: pd.DataFrame, title: str, fitted: bool = False, marked: pd.Series | None = None
) -> tuple[StoredFigure, Iterator[tuple[Axes, pd.DataFrame]]]:
    """A panel per use case, the baseline first; with `fitted` its height follows from its number of rows, else all have
    one height. Rows that were skipped here are counted below the title, unless they are `marked` (a published number
    stands on them), and so is what was measured twice."""
    shown, footnote = without_skipped(table, marked)
    beside = set() if marked is None else set(shown.index[marked.loc[shown.index]])
    shown = shown.assign(beside=[index in beside for index in shown.index])
    shown = in_drawn_order(shown)
    groups = [(str(name), rows.reset_index(drop=True)) for name, rows in shown.groupby("use_case", sort=True)]
    figure, axes = panels(len(groups), len(shown), heights=[len(rows) for _, rows in groups] if fitted else None)
    figure.suptitle("\n".join([title, *textwrap.wrap(footnote, 100)]))

    def each() -> Iterator[tuple[Axes, pd.DataFrame]]:
        for axis, (name, rows) in zip(axes, groups, strict=True):
            axis.set_title(use_case_title(name, rows), loc="left")
            axis.set_yticks(range(len(rows)), row_labels(rows))
            axis.set_ylim(len(rows) - 0.4, -0.6)
            axis.grid(False, axis="y")
            for y, row in enumerate(rows.itertuples()):
                if row.status != "ok" and row.beside:  # beside the panel: in it a published mark stands
                    beside_panel(axis, y, f"{row.status}: {row.reason}", style="italic", color=GREY)
                elif row.status != "ok":
                    note(axis, y, f"{row.status}: {row.reason}")
            yield axis, rows

    return figure, each()


def in_drawn_order(table: pd.DataFrame) -> pd.DataFrame:
    """The baseline first, what was not measured last."""
    place = (table["strategy"] != BASELINE["strategy"]) + 2 * (table["status"] != "ok")
    return table.loc[place.sort_values(kind="stable").index]


def without_skipped(table: pd.DataFrame, marked: pd.Series | None = None) -> tuple[pd.DataFrame, str]:
    """The rows that have something to show, and what keeps the others from it; all of them if nothing was measured. The
    second of an A/A pair is no way to train: what it is over the first is noise."""
    again = table["variant"] == "b"
    hidden = (table["status"] == "skipped") & ~again
    if not (table["status"] == "ok").any():
        return table, ""
    hidden &= ~marked if marked is not None else True
    reasons = table.loc[hidden, "reason"].value_counts()
    parts = [f"{count} row{'' if count == 1 else 's'} skipped ({reason})" for reason, count in reasons.items()]
    twice = int((again & (table["status"] == "ok")).sum())
    parts += [f"{twice} measured a second time (A/A: noise)"] if twice else []
    return table[~hidden & ~again], f"Not shown: {'; '.join(parts)}" if parts else ""


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
            beside_panel(axis, y, text)


def beside_panel(axis: Axes, y: float, text: str, **style: Any) -> None:
    """A text at the right of a panel, at the height of a row."""
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    axis.text(1.01, y, shown, transform=axis.get_yaxis_transform(), va="center", fontsize=8, **style)


def speedup_bars(table: pd.DataFrame, published: pd.DataFrame, title: str, fitted: bool = False) -> StoredFigure:
    """Speedups with intervals (`summary_table`) beside the published ones (`read_table`), on a log scale from 1 that
    ends where ours do: a published one further on is an arrow with its number. With `fitted` the height of a panel
    follows from its number of rows, for use cases with many rows beside others with few."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        marked = pd.Series([bool(_published_of(row, table, published)) for _, row in table.iterrows()], table.index)
        figure, each = by_use_case(table, title, fitted, marked)
        axes, inside, beyond = [], 0, 0
        ends = _ends_of_speedups(table)
        for axis, rows in each:
            axes.append(axis)
            bars_with_intervals(axis, rows, "speedup", "low", "high", left=1.0)
            texts = [f"{r.speedup:.2f}" for r in rows.itertuples()]
            side_texts(axis, rows["speedup"], texts)
            axis.axvline(1, color="0.2", linewidth=1, zorder=3)
            log_speedups(axis, *ends)
            drawn = _draw_published(axis, rows, published)
            inside, beyond = inside + drawn[0], beyond + drawn[1]
        base = next((name for name in table["base"] if name), "sequential")
        axes[-1].set_xlabel(f"speedup in images/s over {base} (log scale; 95 % interval over paired rounds)")
        handles: list[Any] = [Patch(facecolor="0.75", label="measured here")]
        where = f"published ({published['place'].iloc[0]})" if len(published) else ""
        handles += [Line2D([], [], **PUBLISHED, label=where)] if inside else []
        handles += [Line2D([], [], **BEYOND, label=f"{where}, beyond the axis")] if beyond else []
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _ends_of_speedups(table: pd.DataFrame) -> tuple[float, float]:
    """The least and the largest of what was measured, ends of intervals included, and 1."""
    drawn = table[["speedup", "low", "high"]].to_numpy(dtype=float)
    drawn = drawn[np.isfinite(drawn)]
    return float(min([1.0, *drawn])), float(max([1.0, *drawn]))


def _draw_published(axis: Axes, rows: pd.DataFrame, published: pd.DataFrame) -> tuple[int, int]:
    """Returns how many lie on the axis and how many beyond it."""
    first, last = axis.get_xlim()
    inside, beyond = 0, 0
    for y, row in rows.iterrows():
        for speedup in _published_of(row, rows, published):
            text: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": GREY, "fontsize": 8}
            text |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8}, "zorder": 6}
            if not first <= speedup <= last:
                beyond += 1
                right = speedup > last
                axis.plot(0.985 if right else 0.015, y, transform=axis.get_yaxis_transform(),
                          **BEYOND | {"marker": ">" if right else "<"})  # fmt: skip
                axis.annotate(f"{speedup:g}", (0.985 if right else 0.015, y), xycoords=axis.get_yaxis_transform(),
                              xytext=(-9 if right else 9, 0), ha="right" if right else "left", **text)  # fmt: skip
                continue
            inside += 1
            axis.plot(speedup, y, **PUBLISHED)
            # On the side where no whisker crosses the number.
            left = row["low"] <= speedup * 1.5 and row["high"] >= speedup
            axis.annotate(f"{speedup:g}", (speedup, y), xytext=(-9 if left else 9, 0), ha="right" if left else "left",
                          **text)  # fmt: skip
    return inside, beyond


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


def log_speedups(axis: Axes, low: float, high: float) -> None:
    """A logarithmic axis of speedups that shows these two."""
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


def stack_legend(
    figure: StoredFigure, table: pd.DataFrame, parts: Sequence[str], names: Mapping[str, str] | None = None
) -> None:
    """What the colours of the parts mean; of those that are too short to be seen in any row only the names."""
    texts = {part: (names or {}).get(part, part.removesuffix("_seconds")) for part in parts}
    longest = end_of_axis(table["step_seconds"], 1e-9)
    hidden = [part for part in parts if not (table[part] > _VISIBLE * longest).any()]
    handles: list[Any] = [
        Patch(facecolor=PALETTE[index], label=texts[part]) for index, part in enumerate(parts) if part not in hidden
    ]
    handles.append(Line2D([], [], color="0.1", linewidth=2, label="whole step"))
    title = f"too short to be seen: {', '.join(texts[part] for part in hidden)}" if hidden else None
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if names else len(handles), frameon=False,
                  title=title, title_fontsize=8)  # fmt: skip


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
        axis.set_xlabel(f"seconds per step\n({SLOWEST})")
        stack_legend(figure, table, parts, names)
    return figure
