"""What only notebook 02 draws: scaling over one budget of cores, memory, input, exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis.figures.bars import bars_with_intervals, by_use_case, end_of_axis, side_texts
from lockstep.analysis.figures.style import (
    GIB,
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
    row_labels,
)
from lockstep.analysis.statistics import amdahl, amdahl_fit


def memory_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """Peak memory of all workers together, and per worker in words (`memory_table`)."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, each = by_use_case(table, title)
        for axis, rows in each:
            gib = rows.assign(value=rows["peak_pss_bytes"] / GIB)
            bars_with_intervals(axis, gib, "value")
            worker = rows["pss_per_worker_bytes"] / GIB
            many = rows["workers"] > 1
            texts = [f"{value:.2f}" + (f"  ({one:.2f} per worker)" if several else "")
                     for value, one, several in zip(gib["value"], worker, many, strict=True)]  # fmt: skip
            side_texts(axis, gib["value"], texts)
            axis.set_xlim(0, end_of_axis(gib["value"], 0.1) * 1.05)
            axis.set_xlabel("peak memory of all workers together (PSS, GiB)")
    return figure


def input_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """What of the images/s with tensors in memory is lost with JPEG input; the bound where no core is free
    (`input_table`)."""
    if table.empty:
        return empty(title, "no records of this experiment")
    with look():
        figure, each = by_use_case(table, title)
        for axis, rows in each:
            axis.set_yticks(range(len(rows)), [f"{name},\n{_cores(row)}" for name, row in zip(
                row_labels(rows), rows.to_dict("records"), strict=True)])  # fmt: skip
            shares = {"lost": rows["ratio"], "least": rows["high"], "most": rows["low"]}
            shares |= {"bound": rows["ratio"] / rows["of_bound"]}
            lost = rows.assign(**{name: 100 * (1 - share) for name, share in shares.items()})
            bars_with_intervals(axis, lost, "lost", "least", "most")
            for y, limit in enumerate(lost["bound"]):
                if np.isfinite(limit):
                    axis.vlines(limit, y - 0.38, y + 0.38, color="0.1", linestyle="--", linewidth=1.6, zorder=5)
            texts = [f"{r.lost:z.1f} %  ({r.images_per_second:.3g} images/s)" for r in lost.itertuples()]
            side_texts(axis, lost["lost"], texts)
            axis.axvline(0, color="0.2", linewidth=1)
            drawn = lost[["lost", "least", "most", "bound"]].to_numpy(dtype=float).ravel()
            axis.set_xlim(min(0.0, 1.1 * -end_of_axis(-drawn, 0.0)), end_of_axis(drawn, 1.0) * 1.1)
            axis.set_xlabel("images/s lost to decoding JPEG files (%, of those with tensors in memory; 95 % interval)")
        line = Line2D([], [], color="0.1", linestyle="--", label="bound: computing and decoding on the same cores")
        figure.legend(handles=[line], loc="outside lower center", frameon=False)
    return figure


def _cores(row: Mapping[Any, Any]) -> str:
    cores, free = int(row["cores_per_worker"]), int(row["cores_per_worker"]) - int(row["threads_per_worker"])
    workers = "" if row["workers"] == 1 else f"{row['workers']} workers of "
    spare = f"{free} of them free to decode" if free > 0 else "which also decode" + ("s" if cores == 1 else "")
    return f"{workers}{cores} core{'s' if cores > 1 else ''}, {spare}"


def exchange_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """Milliseconds to reduce gradients and update parameters (`exchange_table`), the copy bandwidth's bound a line."""
    if table.empty:
        return empty(title, "no records of this experiment")
    bounds = table[table["strategy"] == "copy_bound"]
    rows = table[table["strategy"] != "copy_bound"]
    if rows.empty:
        return empty(title, "only the copy bandwidth was measured")
    with look():
        figure, each = by_use_case(rows, title)
        for axis, own in each:
            shown = own.assign(ms=own["seconds"] * 1e3, lo=own["seconds_low"] * 1e3, hi=own["seconds_high"] * 1e3)
            bars_with_intervals(axis, shown, "ms", "lo", "hi")
            side_texts(axis, shown["ms"], [
                f"{r.ms:.1f} ms" + (f"  ({r.times_base:.2f} times {label(r.base)})" if r.strategy != r.base else "")
                for r in shown.itertuples()
            ])  # fmt: skip
            ends = ["seconds", "seconds_low", "seconds_high"]
            for bound, low, high in 1e3 * bounds.loc[bounds["use_case"] == own["use_case"].iloc[0], ends].to_numpy():
                axis.axvline(bound, color="0.1", linestyle="--", linewidth=1.6, zorder=5)
                axis.axvspan(low, high, color="0.1", alpha=0.08, zorder=0)
            axis.set_title(str(own["use_case"].iloc[0]) + " (parameters only, no photos)", loc="left")
            axis.set_xlim(0, end_of_axis([*shown["hi"], *shown["ms"]], 1e-6) * 1.05)
            axis.set_xlabel("reduce + update (ms; 95 % interval; how many times: paired by round)")
        if bounds["seconds"].notna().any():
            shaded = " (shaded: its 95 % interval)" if bounds["seconds_low"].notna().any() else ""
            line = Line2D([], [], color="0.1", linestyle="--", label=f"yardstick: measured copy bandwidth{shaded}")
            figure.legend(handles=[line], loc="outside lower center", frameon=False)
    return figure


def scaling_lines(table: pd.DataFrame, title: str) -> StoredFigure:
    """Speedup against workers with intervals (`scaling_table`), the ideal for the cores given, and Amdahl's fit where
    the number of cores varies."""
    ok = table[(table["status"] == "ok") & table["speedup"].notna()] if len(table) else table
    if ok.empty:
        return empty(title, "no records of this experiment")
    with look():
        groups = list(ok.groupby("use_case", sort=True))
        figure = new_figure(4.9 * max(len(groups), 1) + 0.6, 4.2 if len(groups) > 1 else 4.6)
        axes = figure.subplots(1, len(groups), squeeze=False)[0]
        figure.suptitle(title)
        handles: dict[str, Line2D] = {}
        for axis, (name, rows) in zip(axes, groups, strict=True):
            _scaling_panel(axis, rows, handles)
            axis.set_title(f"{name}\n({data_label(rows)})", loc="left")
        axes[0].set_ylabel(f"speedup over {ok['base'].iloc[0] if ok['base'].nunique() == 1 else 'the fewest workers'}")
        columns = 3 if len(groups) > 1 else 1
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _scaling_panel(axis: Axes, rows: pd.DataFrame, handles: dict[str, Line2D]) -> None:
    strategies = [name for name in rows["strategy"].unique() if name != "sequential"] or ["sequential"]
    workers = sorted(int(value) for value in rows[rows["strategy"].isin(strategies)]["workers"].unique())
    for index, name in enumerate(strategies):
        own = rows[rows["strategy"] == name].sort_values("workers")
        # Points of two strategies at one worker count stand side by side, never on top of each other.
        x = own["workers"] * (1 + 0.03 * (index - (len(strategies) - 1) / 2))
        style = {"color": colour(name), "marker": marker(name), "linestyle": line_between(len(own))}
        interval_points(axis, x, own, SPEEDUP, zorder=3, **style)
        handles[name] = Line2D([], [], **style, label=f"{label(name)} (measured)")
        _draw_amdahl(axis, own, name, handles)
    ideal = rows[rows["strategy"].isin(strategies)].groupby("workers")[["cores", "base_cores"]].max()
    axis.plot(ideal.index, ideal["cores"] / ideal["base_cores"], color="0.3", linestyle="--", linewidth=1.2, zorder=1)
    handles["ideal"] = Line2D([], [], color="0.3", linestyle="--", label="ideal for the cores given")
    axis.set_xscale("log", base=2)
    axis.set_xticks(workers, [str(value) for value in workers])
    axis.set_xlim(workers[0] / 1.2, workers[-1] * 1.2)
    axis.set_ylim(0, end_of_axis([*rows["high"], *(ideal["cores"] / ideal["base_cores"])], 1.0) * 1.12)
    axis.set_xlabel("workers")


def _draw_amdahl(axis: Axes, own: pd.DataFrame, name: str, handles: dict[str, Line2D]) -> None:
    times = own["cores"] / own["base_cores"]
    if times.nunique() < 2 or times.max() <= 1:
        return
    serial = amdahl_fit(times.tolist(), own["speedup"].tolist())
    fitted = [amdahl(value, serial) for value in times]
    axis.plot(own["workers"], fitted, color=colour(name), linestyle="-.", linewidth=1.2, zorder=2)
    text = f"Amdahl's fit to {label(name)}"
    handles[f"amdahl {name}"] = Line2D([], [], color=colour(name), linestyle="-.", label=text)
