"""Figures of single-node training: the ladder, where a step goes, and the roofline."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.figures.bars import (
    bars_with_intervals,
    draw_stack,
    log_speedups,
    side_texts,
    stack_legend,
    without_skipped,
)
from lockstep.analysis.figures.messages import use_case_title
from lockstep.analysis.figures.style import (
    GREY,
    KIND_COLOURS,
    ROW_INCHES,
    StoredFigure,
    data_label,
    empty,
    look,
    new_figure,
    note,
    panels,
)
from lockstep.experiments.e01_single_node_baselines.grid import ROOF, ROOF_1_CORE
from lockstep.experiments.e01_single_node_baselines.tables import PARTS

MARKS = {"SimpleBig": "o", "ComplexSmall": "s"}


def _rungs(table: pd.DataFrame, title: str) -> tuple[StoredFigure, list[tuple[Axes, pd.DataFrame]]]:
    table, footnote = without_skipped(table)
    groups = [(str(name), rows.reset_index(drop=True)) for name, rows in table.groupby("use_case", sort=True)]
    figure, axes = panels(len(groups), len(table), heights=[len(rows) for _, rows in groups])
    figure.suptitle("\n".join([title, *textwrap.wrap(footnote, 100)]))
    for axis, (name, rows) in zip(axes, groups, strict=True):
        axis.set_title(use_case_title(name, rows), loc="left")
        axis.set_yticks(range(len(rows)), rows["label"])
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(False, axis="y")
        for y, (status, reason) in enumerate(zip(rows["status"], rows["reason"], strict=True)):
            if status != "ok":
                note(axis, y, f"{status}: {reason}")
    return figure, [(axis, rows) for axis, (_, rows) in zip(axes, groups, strict=True)]


def ladder_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """Speedup over the baseline at each rung, with intervals and each rung's gain over the one before
    (`ladder_table`), on a log scale from 1; the ceiling that the measured matrix peak sets is a dashed mark."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, parts = _rungs(table, title)
        for axis, rows in parts:
            bars_with_intervals(axis, rows, "speedup", "low", "high", left=1.0)
            for y, (speedup, ceiling) in enumerate(zip(rows["speedup"], rows["ceiling"], strict=True)):
                if np.isfinite(speedup) and np.isfinite(ceiling):
                    axis.vlines(ceiling, y - 0.4, y + 0.4, color="0.1", linestyle="--", linewidth=1.6)
                elif np.isnan(speedup) and rows["status"][y] == "ok":
                    note(axis, y, "not measured beside the baseline")
            side_texts(axis, rows["speedup"].fillna(rows["gain"]), [_gain_text(row) for row in rows.to_dict("records")])
            axis.axvline(1, color="0.2", linewidth=1, zorder=3)
            drawn = rows[["speedup", "low", "high", "ceiling"]].to_numpy(dtype=float)
            log_speedups(axis, float(np.nanmin([1.0, *drawn.flat])), float(np.nanmax([1.0, *drawn.flat])) / 1.4)
        parts[-1][0].set_xlabel(
            "speedup over the sequential baseline; gain over the rung before it, on the same machine\n"
            "(log scale; each from its own paired rounds, so gains need not multiply up; 95 % interval)"
        )
        line = Line2D([], [], color="0.1", linestyle="--", label="if every FLOP ran at the cores' measured matrix peak")
        figure.legend(handles=[line], loc="outside lower center", frameon=False)
    return figure


def _gain_text(row: dict[Any, Any]) -> str:
    text = f"{row['speedup']:.2f}" if np.isfinite(row["speedup"]) else ""
    if np.isfinite(row["gain"]):
        known = f" [{row['gain_low']:.2f}, {row['gain_high']:.2f}]" if np.isfinite(row["gain_low"]) else ""
        text += f"  (gain {row['gain']:.2f}{known})"
    return text.strip()


def step_stack(table: pd.DataFrame, title: str) -> StoredFigure:
    """Seconds per step of input, forward, backward and update at each rung (`ladder_table`); the step is a mark."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, parts = _rungs(table, title)
        for axis, rows in parts:
            draw_stack(axis, rows, PARTS)
            side_texts(axis, rows["step_seconds"], [f"{value:.3g} s" for value in rows["step_seconds"]])
        parts[-1][0].set_xlabel("seconds per step (medians over rounds: parts need not add up to the whole step's)")
        stack_legend(figure, table, PARTS)
    return figure


def roofline(roofs: pd.DataFrame, operators: pd.DataFrame, title: str) -> StoredFigure:
    """FLOP/s against FLOP per byte: the measured roofs (`roof_table`) and the operators that compute
    (`operators_against_roofs`), one panel for each precision and number of cores that was measured."""
    measured = roofs[roofs["strategy"].isin((ROOF_1_CORE, ROOF)) & (roofs["status"] == "ok")] if len(roofs) else roofs
    if len(measured) and len(operators):  # a roof under which nothing was profiled needs no panel
        known = set(zip(operators["precision"], operators["cores"], strict=True))
        measured = measured[[pair in known for pair in zip(measured["precision"], measured["cores"], strict=True)]]
    if measured.empty or operators.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure = new_figure(max(8.6, 4.0 * len(measured)), 4.8)
        axes = figure.subplots(1, len(measured), squeeze=False, sharey=True)[0]
        figure.suptitle(f"{title}\n({data_label(operators)})")
        for axis, roof in zip(axes, measured.to_dict("records"), strict=True):
            same = (operators["precision"] == roof["precision"]) & (operators["cores"] == roof["cores"])
            _roof_panel(axis, roof, operators[same])
        axes[0].set_ylabel("GFLOP/s")
        handles = [Line2D([], [], color="0.1", label="roof: measured matrix peak and copy bandwidth")]
        for case in operators["use_case"].unique():
            handles.append(Line2D([], [], color=GREY, marker=MARKS.get(case, "^"), linestyle="none", label=case))
        for kind in operators[operators["flops_per_second"] > 0]["operators"].unique():
            handles.append(Line2D([], [], color=KIND_COLOURS[kind], marker="o", linestyle="none", label=kind))
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _roof_panel(axis: Axes, roof: dict[Any, Any], operators: pd.DataFrame) -> None:
    peak, bandwidth = roof["flops_per_second"], roof["bandwidth_bytes_per_second"]
    shown = operators[(operators["flops_per_second"] > 0) & operators["intensity"].notna()]
    last = max(float(shown["intensity"].max()) if len(shown) else 0.0, 10 * roof["ridge"]) * 3
    x = np.array([roof["ridge"] / 30, roof["ridge"], last])
    axis.plot(x, np.minimum(peak, x * bandwidth) / 1e9, color="0.1", zorder=2)
    axis.annotate(f"{peak / 1e9:.0f} GFLOP/s", (roof["ridge"], peak / 1e9), xytext=(-6, 4), textcoords="offset points",
                  ha="right", fontsize=8)  # fmt: skip
    middle = roof["ridge"] / 5  # above the line, where no operator can stand
    axis.annotate(f"{bandwidth / 1e9:.1f} GB/s", (middle, middle * bandwidth / 1e9), xytext=(-6, 6), ha="right",
                  textcoords="offset points", fontsize=8)  # fmt: skip
    axis.margins(y=0.36)
    told: list[tuple[float, float, bool, str]] = []
    for row in shown.to_dict("records"):
        rate = row["flops_per_second"] / 1e9
        axis.plot(row["intensity"], rate, marker=MARKS.get(row["use_case"], "^"), markersize=8, linestyle="none",
                  color=KIND_COLOURS[row["operators"]], markeredgecolor="white", zorder=4)  # fmt: skip
        of_roof = max(row["of_peak"], row["of_bandwidth"])  # paired by round, as targets and the finding have it
        text = f"{of_roof:.0%} of its roof\n({row['of_peak']:.0%} of the peak)"
        left, above = row["intensity"] > 4 * roof["ridge"], of_roof > 0.9  # no text crosses a roof
        near = [each for each in told if 1 / 3 < each[0] / row["intensity"] < 3 and 0.5 < each[1] / rate < 2]
        told.append((row["intensity"], rate, above, text))
        if any(text == said for *_, said in near):  # marks that lie on each other say the same once
            continue
        text = f"{row['use_case']}: {text}" if near else text
        beyond = 28 * sum(side == above for *_, side, _ in near)  # nor another text
        aside = 12 + beyond if above else -(7 + beyond)
        axis.annotate(text, (row["intensity"], rate), xytext=(7, aside), textcoords="offset points",
                      va="bottom" if above else "top", ha="right" if left else "left", fontsize=8, zorder=3,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title(f"{roof['precision']}, {roof['cores']} core{'s' if roof['cores'] > 1 else ''}", loc="left")
    axis.set_xlabel("FLOP per byte (operands read and written once)")


def operator_bars(operators: pd.DataFrame, title: str) -> StoredFigure:
    """Shares of a forward and backward pass by kind of operator, a bar per rung, with how near its roof each large one
    is (`operators_against_roofs`)."""
    if operators.empty:
        return empty(title, "no records of this experiment")
    groups = [rows for _, rows in operators.groupby(["use_case", "strategy"], sort=False)]
    kinds = [kind for kind in KIND_COLOURS if (operators["operators"] == kind).any()]
    with look():
        figure = new_figure(9.0, 1.9 + 1.6 * ROW_INCHES * len(groups))
        axis = figure.subplots()
        figure.suptitle(f"{title}\n({data_label(operators)})")
        for y, rows in enumerate(groups):
            _pass_bar(axis, y, rows.set_index("operators").reindex(kinds))
        names = [_pass_name(rows.iloc[0]) for rows in groups]
        axis.set_yticks(range(len(groups)), names)
        axis.set_ylim(len(groups) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.set_xlim(0, 100)
        axis.set_xlabel("share of the pass (%); below it: of the measured matrix peak or copy bandwidth")
        handles = [Patch(facecolor=KIND_COLOURS[kind], label=kind) for kind in kinds]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _pass_name(row: pd.Series) -> str:
    cores = "1 core" if row["cores"] == 1 else f"{row['cores']} cores"
    return f"{row['use_case']}, {row['precision']},\n{cores}, {row['global_batch_size']} images"


def _pass_bar(axis: Axes, y: int, rows: pd.DataFrame) -> None:
    left = 0.0
    for kind, row in rows.iterrows():
        width = 100 * row["share"]
        if not np.isfinite(width):
            continue
        axis.barh(y, width, left=left, height=0.66, color=KIND_COLOURS[str(kind)], edgecolor="white", zorder=2)
        if width > _ROOM:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.8}
            axis.text(left + width / 2, y, _against_roof(row), ha="center", va="center", fontsize=8, zorder=3, bbox=box)
        left += width


_ROOM = 9.0
"""From which share (%) on a part of a bar has room for its number."""


def _against_roof(row: pd.Series) -> str:
    text = f"{row['share']:.0%}"
    if row["flops_per_second"] > 0:
        return f"{text}\n({row['of_peak']:.0%} of peak)"
    return f"{text}\n({row['of_bandwidth']:.0%} of copying)" if np.isfinite(row["of_bandwidth"]) else text
