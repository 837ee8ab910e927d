"""Figures of models in stages: the memory of each rank, and where a model is cut.

What was measured is filled, and an estimate that was computed is an outline.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from lockstep.analysis.figures.bars import side_texts
from lockstep.analysis.figures.predictions import cell_name
from lockstep.analysis.figures.style import (
    GIB,
    ROW_INCHES,
    StoredFigure,
    batches_label,
    colour,
    data_label,
    empty,
    look,
    new_figure,
    note,
)


def stage_memory_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """What each rank held at most (measured, filled), above what it should hold: its parameters with gradients and
    optimiser state, and the activations it has in flight (computed, outlined) (`rank_memory_table`)."""
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
        texts = [f"{r.peak_bytes / GIB:.2g} GiB: {r.ratio:.2f} times the estimate" for r in table.itertuples()]
        side_texts(axis, table["peak_bytes"], texts)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.set_xlabel("tensors of a rank at their peak (GiB)")
        axis.set_title(f"{title}\n({', '.join(dict.fromkeys(table['use_case']))}, {batches_label(table)})", loc="left")
        handles: list[Any] = [
            Patch(facecolor="0.75", label="measured (in its strategy's colour)"),
            Patch(facecolor="white", edgecolor="0.3", label="estimate: parameters, gradients, optimizer"),
            Patch(facecolor="white", edgecolor="0.3", hatch="////", label="estimate: activations in flight"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def partition_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """How each rule's slowest stage compares with the best contiguous split, by layers, and how long its steps took
    (`partition_table`)."""
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
        colours = colour("1f1b")  # the schedule of all of them
        left.barh(y, table["slowest_over_best"], height=0.6, color=colours, zorder=2)
        right.barh(y, table["step_seconds"], height=0.6, color=colours, zorder=2)
        for number, row in enumerate(table.itertuples()):
            if np.isfinite(row.slowest_over_best):
                text = f"{row.slowest_over_best:.2f}  (stages begin at layers {row.first_layers})"
                left.text(0.02, number, text, transform=left.get_yaxis_transform(), va="center", fontsize=8, zorder=4,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})  # fmt: skip
            if row.status != "ok":
                note(right, number, f"{row.status}: {row.reason}")
        side_texts(right, table["step_seconds"], [_step_text(row) for row in table.itertuples()])
        left.axvline(1, color="0.2", linewidth=1, zorder=3)
        left.set_yticks(y, names)
        left.set_ylim(len(table) - 0.4, -0.6)
        left.set_xlabel("slowest stage / that of the best split, by layers")
        right.set_xlabel("seconds per step (beside: over balanced)")
        for axis in (left, right):
            axis.grid(False, axis="y")
        figure.suptitle(f"{title}\n({table['use_case'].iloc[0]}, {data_label(table)})")
    return figure


def _step_text(row: Any) -> str:
    if not np.isfinite(row.ratio):
        return f"{row.step_seconds:.3g} s"
    interval = f"[{row.low:.2f}, {row.high:.2f}]" if np.isfinite(row.low) else "(no interval yet)"
    return f"{row.step_seconds:.3g} s: {row.ratio:.2f} {interval}"
