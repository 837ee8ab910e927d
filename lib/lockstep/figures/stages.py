"""Figures of models in stages: memory of each rank, where a model is cut, and where cutting and copying should pay.

What was measured is filled, what was predicted is dotted, and a bound that was computed is an outline.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.figures.bars import side_texts
from lockstep.figures.clusters import size_text
from lockstep.figures.pipelines import cell_name
from lockstep.figures.style import (
    GIB,
    GREY,
    PALETTE,
    ROW_INCHES,
    SIMULATED,
    StoredFigure,
    colour,
    data_label,
    empty,
    look,
    new_figure,
    note,
)

_KINDS = {"data": (0, "data parallel"), "model": (1, "model parallel"), "hybrid": (2, "hybrid: stages x replicas")}
_ROOM = 0.08  # of an axis, that the name of a line needs


def stage_memory_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """What each rank held at most (measured, filled), above what it should hold: its parameters with gradients and
    optimiser state, and the activations it has in flight (computed, outlined) (`tables.memory_table`)."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure = new_figure(9.0, 1.6 + ROW_INCHES * 1.25 * len(table))
        axis = figure.subplots()
        names = [f"{cell_name(row)}, rank {row['rank']}" for row in table.to_dict("records")]
        for y, row in enumerate(table.itertuples()):
            axis.barh(y - 0.2, row.peak_bytes / GIB, height=0.36, color=colour(str(row.strategy)), zorder=2)
            outline: dict[str, Any] = {"height": 0.36, "facecolor": "white", "edgecolor": "0.3", "zorder": 2}
            axis.barh(y + 0.2, row.parameter_bytes / GIB, **outline)
            start = row.parameter_bytes / GIB
            axis.barh(y + 0.2, row.activation_bytes / GIB, left=start, hatch="////", **outline)
        texts = [f"{size_text(r.peak_bytes)}: {r.ratio:.2f} of its bound" for r in table.itertuples()]
        side_texts(axis, table["peak_bytes"], texts)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.set_xlabel("tensors of a rank at their peak (GiB)")
        axis.set_title(f"{title}\n({', '.join(dict.fromkeys(table['use_case']))}, {_batches(table)})", loc="left")
        handles: list[Any] = [
            Patch(facecolor=PALETTE[0], label="measured (a colour per strategy)"),
            Patch(facecolor="white", edgecolor="0.3", label="bound: parameters, gradients, optimiser"),
            Patch(facecolor="white", edgecolor="0.3", hatch="////", label="bound: activations in flight"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _batches(table: pd.DataFrame) -> str:
    return f"{' or '.join(str(size) for size in sorted(table['global_batch_size'].unique()))} images per step"


def partition_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """How each rule's slowest stage compares with the best contiguous split, by layers, and how long its steps took
    (`forecasts.partition_table`)."""
    if not len(table) or not table["step_seconds"].notna().any():
        return empty(title, "no records of this experiment")
    with look():
        figure = new_figure(9.6, 1.7 + ROW_INCHES * len(table))
        left, right = figure.subplots(1, 2, sharey=True)
        names = [
            str(row.partition).replace("_", " ") + (", recomputed" if row.activations == "recomputed" else "")
            for row in table.itertuples()
        ]
        y = np.arange(len(table))
        colours = [PALETTE[index % len(PALETTE)] for index in range(len(table))]
        left.barh(y, table["slowest_over_best"], height=0.6, color=colours, zorder=2)
        right.barh(y, table["step_seconds"], height=0.6, color=colours, zorder=2)
        for place, row in enumerate(table.itertuples()):
            if np.isfinite(row.slowest_over_best):
                text = f"{row.slowest_over_best:.2f}  (cuts at {row.first_layers})"
                left.text(0.02, place, text, transform=left.get_yaxis_transform(), va="center", fontsize=8, zorder=4,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})  # fmt: skip
            if row.status != "ok":
                note(right, place, f"{row.status}: {row.reason}")
        texts = [f"{r.step_seconds:.3g} s: {r.ratio:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in table.itertuples()]
        side_texts(right, table["step_seconds"], texts)
        left.axvline(1, color="0.2", linewidth=1, zorder=3)
        left.set_yticks(y, names)
        left.set_ylim(len(table) - 0.4, -0.6)
        left.set_xlabel("slowest stage / that of the best split, by layers")
        right.set_xlabel("seconds per step (beside: over balanced)")
        for axis in (left, right):
            axis.grid(False, axis="y")
        figure.suptitle(f"{title}\n({table['use_case'].iloc[0]}, {data_label(table)})")
    return figure


def hybrid_map(table: pd.DataFrame, title: str) -> StoredFigure:
    """Predicted speedup over one device against the link's rate, for data parallel, model parallel and hybrid training:
    a row of panels per model, a column per number of ranks (`costs.map_table`). Nothing in it is measured."""
    if table.empty:
        return empty(title, "no records to predict from")
    with look():
        use_cases, counts = list(dict.fromkeys(table["use_case"])), sorted(table["ranks"].unique())
        figure = new_figure(1.2 + 2.9 * len(counts), 1.5 + 2.5 * len(use_cases))
        axes = figure.subplots(len(use_cases), len(counts), squeeze=False, sharex=True, sharey="row")
        figure.suptitle(f"{title}\n(all of it predicted; {_batches(table)}, a core of its own for each rank)")
        for across, name in zip(axes, use_cases, strict=True):
            own = table[table["use_case"] == name]
            for axis, ranks in zip(across, counts, strict=True):
                _map_panel(axis, own[own["ranks"] == ranks], float(own["predicted_speedup"].max()))
                axis.set_title(f"{name}, {ranks} ranks", loc="left", fontsize=9)
            across[0].set_ylabel("predicted speedup over one device")
            across[0].set_ylim(bottom=0)  # only now: it ends autoscaling for the whole row
        for axis in axes[-1]:
            axis.set_xlabel("link rate (bit/s)")
        handles = [
            Line2D([], [], color=PALETTE[index], linewidth=2, label=f"{text}, predicted", **SIMULATED)
            for index, text in _KINDS.values()
        ]
        handles.append(Line2D([], [], color=GREY, linewidth=6, alpha=0.35, label="rates at which the hybrid leads"))
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _map_panel(axis: Axes, own: pd.DataFrame, top: float) -> None:
    speeds = own.pivot(index="link_bits_per_second", columns="kind", values="predicted_speedup")
    told = [kind for kind in _KINDS if kind in speeds]
    for kind in told:
        axis.plot(speeds.index, speeds[kind], color=PALETTE[_KINDS[kind][0]], linewidth=2, **SIMULATED)
    ends = sorted(float(speeds[kind].iloc[-1]) for kind in told)
    if all(after - before > _ROOM * top for before, after in pairwise(ends)):  # else names would lie on each other
        for kind in told:
            last = (speeds.index[-1], speeds[kind].iloc[-1])
            axis.annotate(kind, last, xytext=(0, 2), textcoords="offset points", ha="right", va="bottom", fontsize=7)
    if "hybrid" in speeds:
        leads = speeds["hybrid"] > speeds.drop(columns="hybrid").max(axis=1)
        at = speeds.index.to_numpy(dtype=float)
        axis.fill_between(
            at, 0, 0.02, where=leads.to_numpy(), transform=axis.get_xaxis_transform(), color=GREY, alpha=0.35
        )
    axis.axhline(1, color="0.2", linewidth=1)
    axis.set_xscale("log")
