"""Figures of training on several workers and hosts: rankings, exchange against size, speedup against link rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis.figures.bars import ERROR
from lockstep.analysis.figures.messages import use_case_title
from lockstep.analysis.figures.style import (
    GREY,
    MARKERS,
    PALETTE,
    PUBLISHED,
    ROW_INCHES,
    SIMULATED,
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
    panels,
)
from lockstep.engine.units import bytes_text
from lockstep.experiments.e05_mpi_distribution.tables import predicted_speedups
from lockstep.predict.link_model import PING_PONG, AlphaBeta

_SECONDS = ("seconds", "seconds_low", "seconds_high")
_PAPER_BYTES = 35 * 1024  # single-to-multi §4.2


def _hosts_style(index: int) -> dict[str, Any]:
    """Colour and marker of the n-th number of hosts."""
    return {"color": PALETTE[index % len(PALETTE)], "marker": MARKERS[index % len(MARKERS)], "markersize": 5}


def _line_style(strategy: str) -> dict[str, Any]:
    """Colour and marker of a strategy; ping-pong is none."""
    own: tuple[Any, str] = ("0.3", "p") if strategy == PING_PONG else (colour(strategy), marker(strategy))
    return {"color": own[0], "marker": own[1], "markersize": 5}


def ranking_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Local strategies relative to one of them, on one host and on several (`tables.ranking_table`): where the
    ranking on one host predicts the ranking on several, marks of both kinds lie on the same side of 1."""
    shown = table[table["ratio"].notna()] if len(table) else table
    if shown.empty:
        return empty(title, "no records of this experiment")
    with look():
        use_cases = sorted(shown["use_case"].unique())
        figure, axes = panels(len(use_cases), shown["strategy"].nunique() * len(use_cases) * 1.3)
        figure.suptitle(title)
        counts = sorted(int(count) for count in shown["hosts"].unique())
        for axis, name in zip(axes, use_cases, strict=True):
            _ranking_panel(axis, shown[shown["use_case"] == name], counts)
            axis.set_title(use_case_title(name, shown[shown["use_case"] == name]), loc="left")
        axes[-1].set_xlabel("images/s relative to processes that send messages, on as many hosts (95 % interval)")
        handles = [
            Line2D([], [], linestyle="none", **_hosts_style(index), label=f"{count} host{'s' if count > 1 else ''}")
            for index, count in enumerate(counts)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(counts), frameon=False)
    return figure


def _ranking_panel(axis: Axes, rows: pd.DataFrame, counts: list[int]) -> None:
    strategies = list(dict.fromkeys(rows["strategy"]))
    for row in rows.itertuples():
        index = counts.index(int(row.hosts))
        y = strategies.index(row.strategy) + 0.22 * (index - (len(counts) - 1) / 2)
        error = [[row.ratio - row.low], [row.high - row.ratio]]
        axis.errorbar(row.ratio, y, xerr=error, linestyle="none", zorder=4, **_hosts_style(index), **ERROR)
        axis.text(1.01, y, f"{row.ratio:.3f}", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    axis.axvline(1, color="0.2", linewidth=1)
    axis.set_yticks(range(len(strategies)), [label(name) for name in strategies])
    axis.set_ylim(len(strategies) - 0.5, -0.5)


def message_lines(tables: dict[str, pd.DataFrame], title: str, link: AlphaBeta | None = None) -> StoredFigure:
    """Seconds to agree on a message against its size, a panel per network (`link_model.message_table`); the last
    panel with what `link` predicts for an all-reduce."""
    drawn = {name: table[table["seconds"].notna()] for name, table in tables.items() if len(table)}
    drawn = {name: table for name, table in drawn.items() if len(table)}
    if not drawn:
        return empty(title, "no records of this experiment")
    names = list(dict.fromkeys(name for table in drawn.values() for name in table["strategy"]))
    with look():
        figure = new_figure(max(5.2 * len(drawn) + 0.4, 8.5), 5.6)
        axes = figure.subplots(1, len(drawn), squeeze=False, sharey=True)[0]
        figure.suptitle(title)
        handles: dict[str, Line2D] = {}
        for axis, (panel, table) in zip(axes, drawn.items(), strict=True):
            for name, own in table.groupby("strategy", sort=False):
                text = "ping-pong, one way" if name == PING_PONG else label(str(name))
                style = {"linestyle": line_between(len(own)), **_line_style(str(name))}
                aside = 1.6 ** (names.index(str(name)) - (len(names) - 1) / 2)  # side by side: they may be alike
                rows = own.sort_values("bytes")
                interval_points(axis, rows["bytes"] * aside, rows, _SECONDS, capsize=2, **style)
                handles[str(name)] = Line2D([], [], **style, label=text)
            axis.set_title(panel, loc="left")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            sizes = sorted(int(size) for size in table["bytes"].unique())
            axis.set_xticks(sizes, [bytes_text(size) for size in sizes])
            axis.set(xlim=(sizes[0] / 4, sizes[-1] * 4), xlabel="message")
        _predicted(axes[-1], list(drawn.values())[-1], link, handles)
        axes[0].set_ylabel("seconds of an exchange (95 % interval)")
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _predicted(axis: Axes, table: pd.DataFrame, link: AlphaBeta | None, handles: dict[str, Line2D]) -> None:
    """The α–β line of an all-reduce between as many hosts as the panel has."""
    own = table[(table["strategy"] == "mpi_allreduce") & table["predicted_seconds"].notna()].sort_values("bytes")
    if link is None or own.empty:
        return
    axis.plot(own["bytes"], own["predicted_seconds"], color="0.1", linewidth=2, **SIMULATED)
    text = f"all-reduce as predicted from ping-pong ({link})"
    handles["predicted"] = Line2D([], [], color="0.1", linewidth=2, label=text, **SIMULATED)


def link_lines(tables: Mapping[str, pd.DataFrame], title: str) -> StoredFigure:
    """Speedup over sequential training against the link's rate (`tables.link_table`), a panel per processor: measured
    points, and the line that counted bytes predict from the fastest link's point."""
    known = {name: table[table["speedup"].notna()] for name, table in tables.items() if len(table)}
    if not any(map(len, known.values())):
        return empty(title, "no records of this experiment")
    ok = pd.concat(known.values())
    with look():
        figure = new_figure(4.0 + 3.5 * len(known), 6.2)
        axes = figure.subplots(1, len(known), squeeze=False, sharey=True)[0]
        figure.suptitle(f"{title}\n({data_label(ok)}, {int(ok['hosts'].min())} emulated hosts)")
        rates, crossings = ok["link_bits_per_second"], ok["pays_from_bits_per_second"].replace([0, np.inf], np.nan)
        rates = np.geomspace(np.nanmin([rates.min() / 10, crossings.min() / 2]), rates.max() * 3, 80)
        names = list(dict.fromkeys(ok["strategy"]))
        for axis, (processor, own) in zip(axes, known.items(), strict=True):
            _link_panel(axis, own, names, rates)
            axis.set_title(processor, loc="left")
        axes[0].set_yscale("log", base=2)
        text = "speedup in images/s over sequential (95 % interval)"
        axes[0].set(ylim=(max(2**-5, ok["low"].min() / 4), None), ylabel=text)
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        handles = [Line2D([], [], linestyle="none", **_line_style(name), label=label(name)) for name in names]
        handles.append(Line2D([], [], color="0.3", label="predicted from the bytes counted", **SIMULATED))
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _link_panel(axis: Axes, own: pd.DataFrame, names: list[str], rates: np.ndarray) -> None:
    for (_, name), values in predicted_speedups(own, rates).items():
        axis.plot(rates, values, color=colour(str(name)), linewidth=1.3, **SIMULATED)
    for name, rows in own.groupby("strategy", sort=False):
        aside = 1 + 0.05 * (names.index(str(name)) - (len(names) - 1) / 2)  # never on top of each other
        rate = rows["link_bits_per_second"] * aside
        interval_points(axis, rate, rows, SPEEDUP, linestyle="none", **_line_style(str(name)))
    axis.axhline(1, color="0.2", linewidth=1)
    axis.set(xscale="log", xlabel="link rate (bit/s)")


def network_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """Bytes per step on the busiest link (`tables.network_table`) beside the paper's peak, on a log scale."""
    if table.empty:
        return empty(title, "no records over emulated links")
    kept = ["use_case", "strategy", "hosts", "workers", "servers"]
    table = table.drop_duplicates(kept).sort_values("link_bytes_busiest")
    with look():
        figure = new_figure(9.0, 1.6 + ROW_INCHES * len(table))
        axis = figure.subplots()
        names = [
            f"{label(row.strategy)}, {row.use_case}, {row.workers} workers on {row.hosts - row.servers} hosts"
            for row in table.itertuples()
        ]
        for y, (name, value) in enumerate(zip(table["strategy"], table["link_bytes_busiest"], strict=True)):
            axis.plot(value, y, linestyle="none", **_line_style(str(name)) | {"markersize": 8})  # no bar: no zero
            axis.text(1.01, y, bytes_text(value), transform=axis.get_yaxis_transform(), va="center", fontsize=8)
        axis.axvline(_PAPER_BYTES, color=GREY, linestyle="--", linewidth=1)
        axis.plot(_PAPER_BYTES, -0.6, clip_on=False, **PUBLISHED)
        axis.set_yticks(range(len(table)), names)
        axis.set_xscale("log")
        axis.set_xlim(left=_PAPER_BYTES / 4)
        axis.set_ylim(-1.0, len(table) - 0.5)
        axis.set_xlabel("bytes per step on the busiest link, counted by its interface (log scale)")
        axis.set_title(title, loc="left")
        handle = Line2D([], [], **PUBLISHED, label="published (§4.2): peak of 35 KiB, no time unit given")
        figure.legend(handles=[handle], loc="outside lower center", frameon=False)
    return figure
