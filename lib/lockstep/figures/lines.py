"""Lines: speedup against workers, and resources against time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis import amdahl, amdahl_fit
from lockstep.figures.style import (
    GIB,
    GREY,
    MEASURED,
    SPEEDUP,
    StoredFigure,
    colour,
    data_label,
    empty,
    interval_points,
    label,
    look,
    new_figure,
)
from lockstep.ladder import EXPERIMENT as LADDER
from lockstep.ladder import RUNGS
from lockstep.strategies import STRATEGIES

TRACES = {
    "cpu_percent": ("CPU use (% of one core)", 1.0),
    "pss_bytes": ("memory (PSS, GiB)", GIB),
    "threads": ("threads", 1.0),
    "io_wait_percent": ("I/O wait (%)", 1.0),
}
USE_CASE_LINES: dict[str, Any] = {"SimpleBig": "-", "ComplexSmall": "--"}
USE_CASE_MARKERS: dict[str, Any] = {"SimpleBig": "o", "ComplexSmall": "s"}


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
        interval_points(axis, x, own, SPEEDUP, color=colour(name), zorder=3, **MEASURED)
        handles[name] = Line2D([], [], color=colour(name), marker="o", label=f"{label(name)} (measured)")
        _draw_amdahl(axis, own, name, handles)
    ideal = rows[rows["strategy"].isin(strategies)].groupby("workers")[["cores", "base_cores"]].max()
    axis.plot(ideal.index, ideal["cores"] / ideal["base_cores"], color="0.3", linestyle="--", linewidth=1.2, zorder=1)
    handles["ideal"] = Line2D([], [], color="0.3", linestyle="--", label="ideal for the cores given")
    axis.set_xscale("log", base=2)
    axis.set_xticks(workers, [str(value) for value in workers])
    axis.set_xlim(workers[0] / 1.2, workers[-1] * 1.2)
    axis.set_ylim(0, max(float(rows["high"].max()), float((ideal["cores"] / ideal["base_cores"]).max())) * 1.12)
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


def resource_traces(resources: pd.DataFrame, title: str, experiment: str = "table1", data: str = "") -> StoredFigure:
    """CPU, memory, threads and I/O wait against time, a column per strategy, as the paper's Figures 2 and 3: SimpleBig
    solid, ComplexSmall dashed, a marker where there is one sample only. The first stored round; `data` names photos
    and batch (`data_label` of the records)."""
    traced = resources[resources["experiment"] == experiment] if len(resources) else resources
    traced = resources if traced.empty else traced
    if traced.empty:
        return empty(title, "no resource traces are stored")
    names = RUNGS if experiment == LADDER else STRATEGIES
    strategies = [name for name in names if (traced["strategy"] == name).any()]
    strategies += sorted(set(traced["strategy"]) - set(names))
    with look():
        figure = new_figure(max(2.3 * len(strategies) + 1.0, 6.0), 8.0)
        axes = figure.subplots(len(TRACES), len(strategies), squeeze=False, sharey="row", sharex="col")
        about = f"{data}; round {int(traced['round'].min())}" if data else f"round {int(traced['round'].min())}"
        figure.suptitle(f"{title}\n({about})")
        for column, strategy in enumerate(strategies):
            own = traced[(traced["strategy"] == strategy) & (traced["round"] == traced["round"].min())]
            for row, (name, (unit, scale)) in enumerate(TRACES.items()):
                _trace(axes[row][column], own, name, scale, colour(strategy))
                if column == 0:
                    axes[row][column].set_ylabel(unit)
            axes[0][column].set_title(label(strategy).replace(", ", ",\n"), fontsize=9)
            axes[-1][column].set_xlabel("seconds")
        for row in range(len(TRACES)):
            axes[row][0].set_ylim(bottom=0)  # only now: it ends autoscaling for the whole row
        handles = [
            Line2D([], [], color=GREY, linestyle=line, marker=_marker(axes.flat, line), label=name)
            for name, line in USE_CASE_LINES.items()
            if name in set(traced["use_case"])
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _marker(axes: Iterable[Axes], linestyle: str) -> Any:
    """The marker that some line of this style was drawn with, for the legend."""
    markers = {line.get_marker() for axis in axes for line in axis.lines if line.get_linestyle() == linestyle}
    return next(iter(markers - {"none"}), "none")


def _trace(axis: Axes, own: pd.DataFrame, name: str, scale: float, line_colour: object) -> None:
    for use_case, samples in own.groupby("use_case"):
        ordered = samples.sort_values("seconds")
        values = pd.to_numeric(ordered[name], errors="coerce") / scale
        line = USE_CASE_LINES.get(str(use_case), ":")
        seconds = ordered["seconds"] - ordered["seconds"].min()
        # A line of one point is invisible.
        marker = USE_CASE_MARKERS.get(str(use_case), "o") if values.notna().sum() == 1 else "none"
        axis.plot(seconds, values, linestyle=line, marker=marker, color=line_colour, linewidth=1.3)
