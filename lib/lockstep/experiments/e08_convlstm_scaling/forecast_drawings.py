"""Figures of notebook 08 in which the cost model speaks of numbers of nodes that nobody measured.

Measured: filled marks. Modelled: dotted lines without marks. Published: hollow grey diamonds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis.figures.style import (
    PALETTE,
    PUBLISHED,
    SIMULATED,
    StoredFigure,
    empty,
    look,
    new_figure,
)
from lockstep.experiments.e08_convlstm_scaling.drawings import IDEAL, WAYS, workers_axis


def forecast_lines(
    forecast: pd.DataFrame, measured: pd.DataFrame, title: str, published: tuple[int, float] | None = None
) -> StoredFigure:
    """Modelled speedup against nodes (`forecast_table`), a panel per kind of scaling and network;
    measured cells of strong scaling with a core for every worker, and a published (nodes, speedup), apart from it."""
    if forecast.empty:
        return empty(title, "the cost model was not calibrated: too few cells")
    groups = list(forecast.groupby(["scaling", "network"], sort=False))
    with look():
        figure = new_figure(max(4.2 * len(groups), 8.0), 5.4)
        figure.suptitle(title)
        axes = figure.subplots(1, len(groups), squeeze=False)[0]
        stand: dict[str, None] = {}
        for axis, ((scaling, network), own) in zip(axes, groups, strict=True):
            for way, rows in own.groupby("way", sort=False):
                paint = WAYS[str(way)]
                axis.plot(rows["nodes"], rows["modelled_speedup"], color=paint, linewidth=2, **SIMULATED)
            nodes = sorted(int(count) for count in own["nodes"].unique())
            axis.plot(nodes, nodes, **IDEAL)
            if scaling == "strong":
                stand |= dict.fromkeys(_measured_points(axis, measured, str(network)))
                if published:
                    axis.plot(*published, **PUBLISHED)
            axis.set_yscale("log", base=2)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            workers_axis(axis, _apart(nodes), "nodes (a parameter server is one)")
            axis.set_title(f"{scaling} scaling, {network}", loc="left")
        axes[0].set_ylabel("speedup over one node")
        handles = _forecast_handles(list(stand), published)
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _apart(nodes: Sequence[int]) -> list[int]:
    """Of many numbers those whose labels do not overlap on a log axis."""
    kept: list[int] = []
    for count in nodes:
        if not kept or count >= 1.35 * kept[-1]:
            kept.append(count)
    return kept


def _measured_points(axis: Axes, measured: pd.DataFrame, network: str) -> list[str]:
    """Returns the ways that have a point."""
    if measured.empty:
        return []
    own = measured[(measured["network"] == network) & measured["speedup"].notna() & ~measured["time_shared"]]
    own = own[(own["variant"] == "a") & own["sync"].isin(["allreduce", "parameter_server"])]
    own = own[own["global_batch_size"] == own["global_batch_size"].max()]
    ways = ["all-reduce" if sync == "allreduce" else "parameter server" for sync in own["sync"]]
    for way, (_, row) in zip(ways, own.iterrows(), strict=True):
        error = [[row["speedup"] - row["low"]], [row["high"] - row["speedup"]]]
        nodes = row["workers"] + row["servers"]
        axis.errorbar(nodes, row["speedup"], yerr=error, color=WAYS[way], marker="o", capsize=3, zorder=4)
    return ways


def _forecast_handles(measured: Sequence[str], published: tuple[int, float] | None) -> list[Line2D]:
    found = [
        Line2D([], [], color=paint, linewidth=2, label=f"{way} (modelled)", **SIMULATED) for way, paint in WAYS.items()
    ]
    found += [
        Line2D([], [], color=paint, linestyle="none", marker="o", label=f"{way} (measured)")
        for way, paint in WAYS.items()
        if way in measured
    ]
    found.append(Line2D([], [], **IDEAL, label="ideal: a worker on every node"))
    if published:
        found.append(Line2D([], [], **PUBLISHED, label=f"published: {published[1]:g} on {published[0]} nodes"))
    return found


def table3_lines(published: pd.DataFrame, modelled: pd.DataFrame, title: str) -> StoredFigure:
    """Times as fast as on Table 3's 5 nodes: published marks, the ideal, and what the model says of the same nodes."""
    with look():
        figure = new_figure(8.0, 5.0)
        axis = figure.subplots()
        axis.plot(published["nodes"], published["published_times"], **PUBLISHED)
        axis.plot(published["nodes"], published["workers_times"], **IDEAL)
        handles = [Line2D([], [], **PUBLISHED, label="published (Table 3)")]
        handles.append(Line2D([], [], **IDEAL, label="ideal: all nodes but the server train"))
        for index, (network, own) in enumerate(modelled.groupby("network", sort=False) if len(modelled) else ()):
            style: dict[str, Any] = {"color": PALETTE[index], "linewidth": 2, **SIMULATED}
            axis.plot(own["nodes"], own["modelled_times"], **style)
            handles.append(Line2D([], [], label=f"{network} (modelled, assumed link)", **style))
        workers_axis(axis, [int(count) for count in published["nodes"]], "nodes")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("times as fast as on 5 nodes")
        axis.set_title(title, loc="left")
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure
