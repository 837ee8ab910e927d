"""Figures of single-node training: the ladder, where a step goes, and the roofline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis.figures.bars import ERROR, draw_stack, side_texts, stack_legend
from lockstep.analysis.figures.style import (
    GREY,
    KIND_COLOURS,
    PALETTE,
    StoredFigure,
    data_label,
    empty,
    look,
    new_figure,
    note,
    panels,
)
from lockstep.experiments.e01_single_node_baselines.grid import ROOF
from lockstep.experiments.e01_single_node_baselines.tables import PARTS

MARKS = {"SimpleBig": "o", "ComplexSmall": "s"}


def _rungs(table: pd.DataFrame, title: str) -> tuple[StoredFigure, list[tuple[Axes, pd.DataFrame]]]:
    groups = [(str(name), rows.reset_index(drop=True)) for name, rows in table.groupby("use_case", sort=True)]
    figure, axes = panels(len(groups), len(table))
    figure.suptitle(title)
    for axis, (name, rows) in zip(axes, groups, strict=True):
        axis.set_title(f"{name} ({data_label(rows)})", loc="left")
        again = [" again (A/A)" if variant == "b" else "" for variant in rows["variant"]]
        axis.set_yticks(range(len(rows)), [text + more for text, more in zip(rows["label"], again, strict=True)])
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(False, axis="y")
        for y, (status, reason) in enumerate(zip(rows["status"], rows["reason"], strict=True)):
            if status != "ok":
                note(axis, y, f"{status}: {reason}")
    return figure, [(axis, rows) for axis, (_, rows) in zip(axes, groups, strict=True)]


def ladder_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """Speedup over the baseline at each rung, with intervals and each rung's gain over the one before
    (`ladder_table`); the ceiling that the measured matrix peak sets is a dashed mark."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, parts = _rungs(table, title)
        for axis, rows in parts:
            for y, row in rows.iterrows():
                if np.isfinite(row["speedup"]):
                    axis.barh(y, row["speedup"], height=0.6, color=PALETTE[0], zorder=2)
                    error = [[row["speedup"] - row["low"]], [row["high"] - row["speedup"]]]
                    axis.errorbar(row["speedup"], y, xerr=error, fmt="none", zorder=4, **ERROR)
                    if np.isfinite(row["ceiling"]):
                        axis.vlines(row["ceiling"], y - 0.4, y + 0.4, color="0.1", linestyle="--", linewidth=1.6)
            side_texts(axis, rows["speedup"], [_gain_text(row) for row in rows.to_dict("records")])
            axis.axvline(1, color="0.2", linewidth=1, zorder=3)
            top = np.nanmax([2.0, *rows["speedup"], *rows["high"], *rows["ceiling"]])
            axis.set_xlim(0, float(top) * 1.06)
        parts[-1][0].set_xlabel("speedup in images/s over the sequential baseline (95 % interval over paired rounds)")
        line = Line2D([], [], color="0.1", linestyle="--", label="ceiling: every FLOP at the cores' measured peak")
        figure.legend(handles=[line], loc="outside lower center", frameon=False)
    return figure


def _gain_text(row: dict[Any, Any]) -> str:
    text = f"{row['speedup']:.2f}"
    if np.isfinite(row["gain"]):
        known = f" [{row['gain_low']:.2f}, {row['gain_high']:.2f}]" if np.isfinite(row["gain_low"]) else ""
        text += f"  (gain {row['gain']:.2f}{known})"
    return text


def step_stack(table: pd.DataFrame, title: str) -> StoredFigure:
    """Seconds per step of input, forward, backward and update at each rung (`ladder_table`); the step is a mark."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, parts = _rungs(table, title)
        for axis, rows in parts:
            draw_stack(axis, rows, PARTS)
            side_texts(axis, rows["step_seconds"], [f"{value:.3g} s" for value in rows["step_seconds"]])
        parts[-1][0].set_xlabel("seconds per step (medians over rounds)")
        stack_legend(figure, PARTS)
    return figure


def roofline(roofs: pd.DataFrame, operators: pd.DataFrame, title: str) -> StoredFigure:
    """FLOP/s against FLOP per byte: the measured roofs (`roof_table`) and the operators that compute
    (`operators_against_roofs`), one panel for each precision that was measured."""
    measured = roofs[(roofs["strategy"] == ROOF) & (roofs["status"] == "ok")] if len(roofs) else roofs
    if measured.empty or operators.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure = new_figure(8.6, 4.8)
        axes = figure.subplots(1, len(measured), squeeze=False, sharey=True)[0]
        figure.suptitle(f"{title}\n({data_label(operators)})")
        for axis, roof in zip(axes, measured.to_dict("records"), strict=True):
            same = (operators["precision"] == roof["precision"]) & (operators["cores"] == roof["cores"])
            _roof_panel(axis, roof, operators[same])
        axes[0].set_ylabel("GFLOP/s")
        handles = [Line2D([], [], color="0.1", label="roof: measured matrix peak and copy bandwidth")]
        for use_case in operators["use_case"].unique():
            handles.append(
                Line2D([], [], color=GREY, marker=MARKS.get(use_case, "^"), linestyle="none", label=use_case)
            )
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
    axis.annotate(f"{peak / 1e9:.0f} GFLOP/s", (last, peak / 1e9), xytext=(0, 6), textcoords="offset points",
                  ha="right", fontsize=8)  # fmt: skip
    axis.annotate(f"{bandwidth / 1e9:.1f} GB/s", (x[0], x[0] * bandwidth / 1e9), xytext=(14, 4),
                  textcoords="offset points", fontsize=8)  # fmt: skip
    axis.margins(y=0.12)
    for row in shown.to_dict("records"):
        rate = row["flops_per_second"] / 1e9
        axis.plot(row["intensity"], rate, marker=MARKS.get(row["use_case"], "^"), markersize=8, linestyle="none",
                  color=KIND_COLOURS[row["operators"]], markeredgecolor="white", zorder=4)  # fmt: skip
        axis.annotate(f"{row['of_peak']:.0%}", (row["intensity"], rate), xytext=(7, -9), textcoords="offset points",
                      fontsize=8)  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title(f"{roof['precision']}, {roof['cores']} cores", loc="left")
    axis.set_xlabel("FLOP per byte (operands read and written once)")


def operator_bars(operators: pd.DataFrame, title: str) -> StoredFigure:
    """Share of a forward and backward pass by kind of operator, with how near its roof each is
    (`operators_against_roofs`)."""
    if operators.empty:
        return empty(title, "no records of this experiment")
    with look():
        groups = list(operators.groupby(["use_case", "strategy"], sort=False))
        figure, axes = panels(len(groups), len(operators))
        figure.suptitle(title)
        for axis, ((use_case, _), rows) in zip(axes, groups, strict=True):
            rows = rows.reset_index(drop=True)
            first = rows.iloc[0]
            cores = "1 core" if first["cores"] == 1 else f"{first['cores']} cores"
            axis.set_title(f"{use_case}, {first['precision']}, {cores} ({data_label(rows)})", loc="left")
            axis.set_yticks(range(len(rows)), rows["operators"])
            axis.set_ylim(len(rows) - 0.4, -0.6)
            axis.grid(False, axis="y")
            colours = [KIND_COLOURS[kind] for kind in rows["operators"]]
            axis.barh(range(len(rows)), rows["share"] * 100, height=0.6, color=colours, zorder=2)
            side_texts(axis, rows["share"], [_against_roof(row) for row in rows.to_dict("records")])
            axis.set_xlim(0, 100)
        axes[-1].set_xlabel("share of the pass (%)")
    return figure


def _against_roof(row: dict[Any, Any]) -> str:
    text = f"{row['share']:.1%}"
    if row["flops_per_second"] > 0:
        return f"{text}  ({row['of_peak']:.0%} of the matrix peak)"
    return f"{text}  ({row['of_bandwidth']:.0%} of the copy bandwidth)" if np.isfinite(row["of_bandwidth"]) else text
