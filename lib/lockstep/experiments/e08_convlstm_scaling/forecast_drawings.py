"""Figures of notebook 08 in which the cost model speaks of numbers of nodes that nobody measured.

Measured: filled marks, on one machine. Modelled: dotted lines without marks. Published: hollow grey diamonds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lockstep.analysis.figures.style import (
    GREY,
    PALETTE,
    PUBLISHED,
    SIMULATED,
    StoredFigure,
    colour,
    empty,
    label,
    look,
    marker,
    new_figure,
)
from lockstep.experiments.e08_convlstm_scaling.drawings import IDEAL, WAYS, network_title, workers_axis

ONE_MACHINE = "measured on one machine, no link"


def forecast_lines(
    forecast: pd.DataFrame, measured: pd.DataFrame, title: str, published: tuple[int, float] | None = None
) -> StoredFigure:
    """Modelled speedup against nodes (`forecast_table`), a panel per kind of scaling and network; apart from it
    measured strong scaling with a core for every worker, on one machine, and a published (nodes, speedup)."""
    if forecast.empty:
        return empty(title, "the cost model was not calibrated: too few cells")
    groups = list(forecast.groupby(["scaling", "network"], sort=False))
    with look():
        across = min(2, len(groups))
        down = -(-len(groups) // across)
        figure = new_figure(9.0, 1.6 + 3.2 * down)
        figure.suptitle(title)
        axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
        for spare in axes[len(groups) :]:
            spare.remove()
        stand: dict[str, None] = {}
        for axis, ((scaling, network), own) in zip(axes, groups, strict=False):
            for way, rows in own.groupby("way", sort=False):
                paint = colour(WAYS[str(way)])
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
            axis.set_title(f"{scaling} scaling, {network_title(str(network))}", loc="left")
        figure.supylabel("speedup over one node (log scale)", fontsize=9)
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
        axis.errorbar(nodes, row["speedup"], yerr=error, color=colour(WAYS[way]), marker=marker(WAYS[way]),
                      capsize=3, zorder=4)  # fmt: skip
    return ways


def _forecast_handles(measured: Sequence[str], published: tuple[int, float] | None) -> list[Line2D]:
    found = [
        Line2D([], [], color=colour(strategy), linewidth=2, label=f"{way} (modelled)", **SIMULATED)
        for way, strategy in WAYS.items()
    ]
    found += [
        Line2D([], [], color=colour(name), linestyle="none", marker=marker(name), label=f"{way} ({ONE_MACHINE})")
        for way, name in WAYS.items()
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
        handles = [Line2D([], [], **PUBLISHED, label="published (Table 3, which does not say: strong or weak)")]
        handles.append(Line2D([], [], **IDEAL, label="ideal: all nodes but the server train"))
        for index, (network, own) in enumerate(modelled.groupby("network", sort=False) if len(modelled) else ()):
            style: dict[str, Any] = {"color": PALETTE[index], "linewidth": 2, **SIMULATED}
            axis.plot(own["nodes"], own["modelled_times"], **style)
            text = f"{network_title(str(network))} (modelled: strong scaling, assumed link)"
            handles.append(Line2D([], [], label=text, **style))
        workers_axis(axis, [int(count) for count in published["nodes"]], "nodes")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("times as fast as on 5 nodes")
        axis.set_title(title, loc="left")
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def model_parity(table: pd.DataFrame, title: str) -> StoredFigure:
    """Modelled against measured seconds of a step, a mark per cell (`check_table`), and by how much the model errs:
    cells it was fitted to hollow, held out filled; on the diagonal both agree, the band is ± 10 %."""
    known = table[table["ratio"].notna()] if len(table) else table
    if known.empty:
        return empty(title, "the cost model was not calibrated: too few cells")
    known = known.assign(measured=known["step_seconds"])
    with look():
        figure = new_figure(9.6, 5.4)
        figure.suptitle(f"{title}\n(several hosts are emulated)")
        left, right = figure.subplots(1, 2, sharex=True)
        ends = np.array([known["measured"].min() / 1.3, known["measured"].max() * 1.3])
        left.fill_between(ends, 0.9 * ends, 1.1 * ends, color="0.92", zorder=0)
        left.plot(ends, ends, color="0.2", linewidth=1, zorder=1)
        right.axhspan(-10, 10, color="0.92", zorder=0)
        right.axhline(0, color="0.2", linewidth=1, zorder=1)
        for strategy, rows in known.groupby("strategy", sort=False):
            _parity_marks(left, right, str(strategy), rows)
        left.set_yscale("log")
        left.set_ylim(*ends)
        for axis in (left, right):
            axis.set_xscale("log")
            axis.set_xlim(*ends)
            axis.set_xlabel("measured seconds of a step (log scale)")
        for scale in (left.xaxis, left.yaxis, right.xaxis):
            scale.set_major_locator(LogLocator(subs=(1, 2, 4, 7)))
            scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            scale.set_minor_locator(NullLocator())
        left.set_ylabel("modelled seconds of a step (log scale)")
        right.set_ylabel("modelled over measured step, minus 1 (%; 95 % interval)")
        right.set_ylim(min(right.get_ylim()[0], -13), max(right.get_ylim()[1], 13))  # the whole band is seen
        figure.legend(handles=_parity_handles(known), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _parity_marks(left: Axes, right: Axes, strategy: str, rows: pd.DataFrame) -> None:
    for held, own in rows.groupby(rows["part"] == "held out"):
        style: dict[str, Any] = {"color": colour(strategy), "marker": marker(strategy), "linestyle": "none"}
        style |= {"markersize": 5, "markerfacecolor": colour(strategy) if held else "white", "zorder": 3 + held}
        left.plot(own["measured"], own["modelled_step_seconds"], **style)
        middle, low, high = (100 * (own[name].to_numpy(dtype=float) - 1) for name in ("ratio", "low", "high"))
        right.errorbar(own["measured"].to_numpy(dtype=float), middle, yerr=[middle - low, high - middle], capsize=2,
                       elinewidth=0.9, **style)  # fmt: skip


def _parity_handles(known: pd.DataFrame) -> list[Line2D]:
    found = [
        Line2D([], [], color=colour(name), marker=marker(name), linestyle="none", label=label(name))
        for name in known["strategy"].unique()
    ]
    for text, fill in (("held out", GREY), ("cells that it was fitted to", "white")):
        found.append(Line2D([], [], color=GREY, marker="o", markerfacecolor=fill, linestyle="none", label=text))
    return [*found, Line2D([], [], color="0.2", linewidth=1, label="modelled = measured (band: ± 10 %)")]
