"""Figures of pipelines: speedup and bubble against micro-batches, the classic diagram, predicted step times.

What was measured is filled, what was predicted is dotted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.figures.style import (
    PALETTE,
    SPEEDUP,
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
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import table_cells

ACTION_COLOURS = {
    "forward": PALETTE[0],
    "backward": PALETTE[1],
    "input_backward": PALETTE[1],
    "weight_backward": PALETTE[2],
    "send": PALETTE[4],
    "exchange": PALETTE[3],
    "update": PALETTE[7],
}
"""What of a rank's step is drawn; blank is all the rest: waiting."""
ACTION_NAMES = {
    "forward": "forward",
    "backward": "backward (its first half where it is split)",
    "weight_backward": "backward, weights alone",
    "send": "send",
    "exchange": "exchange between replicas",
    "update": "update",
}
PASSES = ("forward", "backward", "input_backward", "weight_backward")
"""Actions of a micro-batch, which are numbered and count as computing."""
_THINNEST = 0.002  # share of the longest step below which a box is no wider than a line
_NARROWEST = 0.012  # share of the longest step below which a box has no room for its number
_BUBBLE = ("bubble", "bubble_low", "bubble_high")
_IDEAL: dict[str, Any] = {"color": "0.3", "linestyle": "--", "linewidth": 1.2}


def _marked(strategy: str) -> dict[str, Any]:
    return {"color": colour(strategy), "marker": marker(strategy), "markersize": 5}


def schedule_lines(table: pd.DataFrame, title: str) -> StoredFigure:
    """Speedup over naive model parallelism, and the measured bubble, against the number of micro-batches, a line per
    schedule (`pipeline_speedup_table` with NAIVE as its base); beside them (S-1)/(M+S-1), GPipe's and 1F1B's."""
    shown = table[table["bubble"].notna() & (table["variant"] == "a")] if len(table) else table
    if shown.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure = new_figure(9.6, 5.0)
        axes = figure.subplots(1, 2)
        figure.suptitle(f"{title}\n({shown['use_case'].iloc[0]}, {data_label(shown)})")
        ranks = int(shown["pipeline_ranks"].iloc[0])
        counts = sorted(int(count) for count in shown["micro_batches"].unique())
        handles: dict[str, Line2D] = {}
        for index, (name, own) in enumerate(shown.groupby("strategy", sort=False)):
            aside = 1 + 0.035 * (index - (shown["strategy"].nunique() - 1) / 2)  # never on top of each other
            line = {"linestyle": line_between(len(own)), **_marked(str(name))}
            for axis, columns in zip(axes, (SPEEDUP, _BUBBLE), strict=True):
                rows = own.sort_values("micro_batches")
                interval_points(axis, rows["micro_batches"] * aside, rows, columns, zorder=3, **line)
            handles[str(name)] = Line2D([], [], **line, label=f"{label(str(name))} (measured)")
        counted = np.array(counts, dtype=float)
        bubble = (ranks - 1) / (counted + ranks - 1)
        axes[0].plot(counted, ranks * (1 - bubble), **_IDEAL)
        axes[1].plot(counted, bubble, **_IDEAL)
        handles["ideal"] = Line2D([], [], **_IDEAL, label="GPipe and 1F1B with equal stages, ideal")
        for axis, text in zip(axes, ("speedup over naive", "bubble: idle time / (ranks x step)"), strict=True):
            axis.set_xscale("log", base=2)
            axis.set_xticks(counts, [str(count) for count in counts])
            axis.set_xlim(counts[0] / 1.25, counts[-1] * 1.25)
            axis.set_ylim(bottom=0)
            axis.set_xlabel(f"micro-batches M of a step (S = {ranks} ranks)")
            axis.set_ylabel(f"{text} (95 % interval)")
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=2, frameon=False)
    return figure


def pipeline_diagram(actions: pd.DataFrame, title: str) -> StoredFigure:
    """The last measured step of each cell of `actions.csv`, in its first stored round: a row per rank, a box per action
    with its micro-batch. Boxes of a rank's second stage are paler; where nothing is drawn, the rank waits."""
    shown = actions[actions["action"].isin(ACTION_COLOURS)] if len(actions) else actions
    if shown.empty:
        return empty(title, "no actions of a pipeline are stored")
    groups = table_cells(shown)
    with look():
        rows = sum(own["rank"].nunique() for _, own in groups)
        figure = new_figure(11.0, 1.5 + 0.36 * rows + 0.62 * len(groups))
        heights = [own["rank"].nunique() + 0.4 for _, own in groups]
        axes = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=heights)
        marks = "numbers are micro-batches; pale: a rank's second stage; blank: waiting"
        figure.suptitle(f"{title}\n(a step of each; {marks})")
        longest = float((shown["start_seconds"] + shown["seconds"]).max())
        for (axis,), (cell, own) in zip(axes, groups, strict=True):
            _diagram_panel(axis, own, longest)
            axis.set_title(_diagram_title(cell), loc="left", fontsize=9)
        axes[-1][0].set_xlabel("seconds since the first rank began the step (measured)")
        lasts = shown.groupby("action")["seconds"].max()
        lasts["backward"] = max(lasts.get("backward", 0.0), lasts.get("input_backward", 0.0))
        drawn = {name: text for name, text in ACTION_NAMES.items() if lasts.get(name, 0.0) > 0}
        short = [name for name in drawn if lasts[name] < _THINNEST * longest]
        handles = [Patch(facecolor=ACTION_COLOURS[name], label=drawn[name]) for name in drawn if name not in short]
        unseen = f"too short to be seen: {', '.join(drawn[name] for name in short)}" if short else None
        figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)), frameon=False,
                      title=unseen, title_fontsize=8)  # fmt: skip
    return figure


def _diagram_title(cell: dict[str, Any]) -> str:
    count = int(cell["micro_batches"])
    text = f"{label(str(cell['strategy']))}, {count} micro-batch{'es' if count > 1 else ''}, {cell['stages']} stages"
    text += "" if cell["activations"] == "kept" else ", activations recomputed"
    return f"{text} ({cell['use_case']}, {cell['global_batch_size']} images per step)"


def _diagram_panel(axis: Axes, own: pd.DataFrame, longest: float) -> None:
    ranks = sorted(int(rank) for rank in own["rank"].unique())
    firsts = own[own["action"].isin(PASSES)].groupby("rank")["stage"].min()
    for row in own.itertuples():
        y = ranks.index(int(row.rank))
        pale = row.action in PASSES and row.stage > firsts[row.rank]
        axis.barh(y, row.seconds, left=row.start_seconds, height=0.82, color=ACTION_COLOURS[row.action],
                  alpha=0.5 if pale else 1.0, edgecolor="white", linewidth=0.5, zorder=2)  # fmt: skip
        if row.action in PASSES and row.seconds > _NARROWEST * longest:
            ink = "white" if row.action == "forward" and not pale else "black"
            middle = row.start_seconds + row.seconds / 2
            axis.text(middle, y, str(int(row.micro_batch)), ha="center", va="center", fontsize=7, color=ink, zorder=3)
    axis.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axis.set_ylim(len(ranks) - 0.5, -0.5)
    axis.set_xlim(0, longest * 1.01)
    axis.grid(False, axis="y")
