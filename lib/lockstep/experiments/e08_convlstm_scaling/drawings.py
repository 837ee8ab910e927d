"""Figures of notebook 08 on what was measured here; `forecast_drawings` has those that the cost model speaks in.

Measured: filled marks and solid lines (hollow where workers take turns on a core). Modelled: dotted lines without
marks. Published: hollow grey diamonds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis.figures.style import (
    GREY,
    MARKERS,
    PALETTE,
    PUBLISHED,
    ROW_INCHES,
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
    strip,
)

_ACCURACY = ("accuracy", "accuracy_low", "accuracy_high")
IDEAL: dict[str, Any] = {"color": "0.3", "linestyle": "--", "linewidth": 1.2}
WAYS = {"all-reduce": "allreduce", "parameter server": "parameter_server"}
"""What figures call a way to agree on an update -> the strategy whose colour and mark it has."""
_SHARED = "hollow: ranks take turns on cores"


def network_title(name: str) -> str:
    """What figures and sentences call a network."""
    return {"cnn": "CNN", "convlstm": "ConvLSTM"}.get(name, name)


def scaling_panels(tables: dict[str, pd.DataFrame], title: str) -> StoredFigure:
    """Speedup against workers (`worker_scaling_table`), a panel for each kind of scaling and network.

    With Amdahl's fit to several cells (through one it says nothing), and the ideal of the cores that train.
    """
    drawn = []
    for name, table in tables.items():
        ok = table[table["speedup"].notna() & (table["variant"] == "a")] if len(table) else table
        if len(ok):
            own_panels = ok.groupby("network", sort=False)
            drawn += [(f"{name}, {network_title(str(network))}", own) for network, own in own_panels]
    if not drawn:
        return empty(title, "no records of this experiment")
    with look():
        across = min(2, len(drawn))
        down = -(-len(drawn) // across)
        figure = new_figure(9.0, 1.8 + 3.6 * down)
        figure.suptitle(f"{title}\n({data_label(pd.concat([own for _, own in drawn]))})")
        axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
        for spare in axes[len(drawn) :]:
            spare.remove()
        handles: dict[str, Line2D] = {}
        for axis, (name, own) in zip(axes[: len(drawn)], drawn, strict=True):
            _scaling_panel(axis, own, handles)
            axis.set_title(name, loc="left")
        axes[0].set_ylim(bottom=0)  # of all: set before the last panel stands, it would cut off what is higher there
        figure.supylabel("speedup in images/s over sequential (measured, 95 % interval)", fontsize=9)
        handles["shared"] = Line2D(
            [], [], linestyle="none", marker="o", markerfacecolor="white", color=GREY, label=_SHARED
        )
        handles["ideal"] = Line2D([], [], **IDEAL, label="ideal for the cores that train")
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _scaling_panel(axis: Axes, own: pd.DataFrame, handles: dict[str, Line2D]) -> None:
    largest = own["global_batch_size"] == own.groupby(["strategy", "workers"])["global_batch_size"].transform("max")
    own = own[largest]
    names = [name for name in own["strategy"].unique() if name != "sequential"]
    for index, name in enumerate(names):
        rows = own[own["strategy"] == name].sort_values("workers")
        mark, paint = marker(name), colour(name)
        aside = 1 + 0.04 * (index - (len(names) - 1) / 2)  # side by side, never on top of each other
        line = line_between(len(rows))
        axis.plot(rows["workers"] * aside, rows["speedup"], color=paint, linewidth=1.2, linestyle=line, zorder=2)
        for turns, fill in ((False, paint), (True, "white")):
            part = rows[rows["time_shared"] == turns]
            if len(part):
                style: dict[str, Any] = {"color": paint, "marker": mark, "markerfacecolor": fill, "zorder": 3}
                interval_points(axis, part["workers"] * aside, part, SPEEDUP, linestyle="none", **style)
        handles[name] = Line2D([], [], color=paint, marker=mark, linestyle=line, label=f"{label(name)} (measured)")
        fit = rows[rows["amdahl_speedup"].notna()]
        if (~fit["time_shared"] & (fit["cores"] > 1)).sum() > 1:
            axis.plot(fit["workers"], fit["amdahl_speedup"], color=paint, linestyle="-.", linewidth=1.0, zorder=1)
            handles["amdahl"] = Line2D([], [], color=GREY, linestyle="-.", label="Amdahl's fit")
    cores = own.groupby("workers")["cores"].max()
    axis.plot(cores.index, cores, **IDEAL, zorder=1)
    workers_axis(axis, [int(count) for count in sorted(own["workers"].unique())], "workers")


def workers_axis(axis: Axes, counts: Sequence[int], name: str) -> None:
    """A logarithmic axis with a tick at each of these numbers of workers, or of nodes."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(counts), [str(count) for count in counts])
    axis.set_xticks([], minor=True)
    axis.set_xlim(counts[0] / 1.2, counts[-1] * 1.2)
    axis.set_xlabel(name)


def workers_accuracy(table: pd.DataFrame, title: str, published: float = 100.0) -> StoredFigure:
    """Figure 8: test accuracy against workers, a line per global batch (`worker_accuracy_table`)."""
    ok = table[table["accuracy"].notna()] if len(table) else table
    if ok.empty:
        return empty(title, "no records of this experiment")
    groups = list(ok.groupby("network", sort=False))
    with look():
        figure = new_figure(max(4.6 * len(groups), 7.5), 5.0)
        figure.suptitle(title)
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        batches = sorted(int(size) for size in ok["global_batch_size"].unique())
        for axis, (network, rows) in zip(axes, groups, strict=True):
            for index, batch in enumerate(batches):
                own = rows[rows["global_batch_size"] == batch].sort_values("workers")
                aside = 1 + 0.04 * (index - (len(batches) - 1) / 2)
                interval_points(axis, own["workers"] * aside, own, _ACCURACY, **_batch_style(index), linestyle="-")
            workers_axis(axis, [int(count) for count in sorted(rows["workers"].unique())], "workers")
            _beside(axis, published)
            axis.set_title(f"{network_title(str(network))} ({data_label(rows)})", loc="left", fontsize=9)
        axes[0].set_ylabel("test accuracy (%; mean over seeds, 95 % interval)")
        handles = [
            Line2D([], [], **_batch_style(i), label=f"batch {size} (measured)") for i, size in enumerate(batches)
        ]
        handles.append(Line2D([], [], **PUBLISHED, label=f"published: {published:g} % on 5 to 32 nodes, at the side"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _beside(axis: Axes, published: float) -> None:
    """A number of other nodes than were measured, in a strip at the right of all that were."""
    right = axis.get_xlim()[1]
    axis.set_xlim(right=right * 1.5)
    strip(axis, right, "5 to 32 nodes")
    axis.plot(right * 1.22, published, **PUBLISHED)


def _batch_style(index: int) -> dict[str, Any]:
    return {"color": PALETTE[index % len(PALETTE)], "marker": MARKERS[index % len(MARKERS)]}


def flops_points(counted: pd.DataFrame, beside: pd.DataFrame, title: str) -> StoredFigure:
    """FLOP of an image's forward pass through each layer: counted, by the paper's equation, and Table 4's number
    (`flops.counted_table`, `flops.beside_table2`). Points: a log scale has no zero at which a bar could begin."""
    own = counted[(counted["network"] == "cnn") & (counted["counted_flops"] > 0)] if len(counted) else counted
    if own.empty:
        return empty(title, "no FLOP were counted")
    table = own.merge(beside[["layer", "published_flops"]], left_on="name", right_on="layer", how="left")
    ours: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 8, "color": PALETTE[0]}
    theirs: dict[str, Any] = {"linestyle": "none", "marker": "|", "markersize": 18, "color": "0.1"}
    with look():
        figure = new_figure(8.5, 1.9 + 1.2 * ROW_INCHES * len(table))
        axis = figure.subplots()
        y = np.arange(len(table))
        axis.plot(table["counted_flops"], y, **ours)
        axis.plot(table["equation_flops"], y, zorder=4, **theirs)
        axis.plot(table["published_flops"], y, **PUBLISHED)
        axis.set_xscale("log")
        axis.set_yticks(y, table["name"])
        axis.set_ylim(len(table) - 0.4, -0.6)
        axis.set_xlabel("FLOP of one image's forward pass (log scale)")
        axis.set_title(title, loc="left")
        handles = [
            Line2D([], [], label="counted by torch", **ours),
            Line2D([], [], label="equations (1), (2) of Table 2", **theirs | {"markersize": 14}),
            Line2D([], [], **PUBLISHED, label="published (Table 4)"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure
