"""Lines: speedup against workers, and resources against time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.figures.style import GIB, GREY, StoredFigure, colour, data_label, empty, label, look, new_figure
from lockstep.analysis.stored import Stored
from lockstep.engine.job.strategies import RUNGS, STRATEGIES

TRACES = {
    "cpu_percent": ("CPU use\n(% of one core)", 1.0),
    "pss_bytes": ("memory\n(PSS, GiB)", GIB),
    "threads": ("threads", 1.0),
    "framework_threads": ("of these the\nframework's", 1.0),
    "io_wait_percent": ("I/O wait\n(%)", 1.0),
}
_OF_A_CELL = ["device", "workers", "strategy", "use_case", "experiment"]
_HARDLY = 0.5
"""Percent of waiting for I/O, on average over a trace, below which it is not drawn: a row of a spike or two."""
USE_CASE_LINES: dict[str, Any] = {"SimpleBig": "-", "ComplexSmall": "--"}
USE_CASE_MARKERS: dict[str, Any] = {"SimpleBig": "o", "ComplexSmall": "s"}


def traces_of(experiment: str) -> Recipe:
    """The figure of what was sampled while cells of `experiment` trained, with their photos and batch, not others'."""

    def draw(stored: Stored) -> Figure:
        traced = stored.table("resources")
        rows = stored.of(experiment).merge(traced[_OF_A_CELL].drop_duplicates()) if len(traced) else traced
        return resource_traces(traced, "Resources while training", experiment, data_label(rows) if len(rows) else "")

    return draw


def resource_traces(resources: pd.DataFrame, title: str, experiment: str = "table1", data: str = "") -> StoredFigure:
    """CPU, memory, threads and I/O wait against time, a column per strategy, as the paper's Figures 2 and 3: SimpleBig
    solid, ComplexSmall dashed, a marker where there is one sample only. Each cell's first trace, from the start of
    loading: a dotted line where training begins. Waiting for I/O that is hardly there is said in the title. `data`
    names photos and batch (`data_label` of the records)."""
    traced = resources[resources["experiment"] == experiment] if len(resources) else resources
    traced = resources if traced.empty else traced
    if traced.empty:
        return empty(title, "no resource traces are stored")
    names = RUNGS if experiment == "ladder" else STRATEGIES
    strategies = [name for name in names if (traced["strategy"] == name).any()]
    strategies += sorted(set(traced["strategy"]) - set(names))
    traced = traced[traced["round"] == traced.groupby(["strategy", "use_case"])["round"].transform("min")]
    known = traced.reindex(columns=list(TRACES)).apply(pd.to_numeric, errors="coerce")
    shown = {name: unit for name, unit in TRACES.items() if known[name].any()}
    about = [f"({data})"] if data else []
    waited = known.groupby([traced["strategy"], traced["use_case"]])["io_wait_percent"].mean().max()
    if "io_wait_percent" in shown and waited < _HARDLY:
        del shown["io_wait_percent"]
        about.append(f"Not shown: I/O wait, on average at most {waited:.2g} % of the time")
    with look():
        figure = new_figure(max(2.3 * len(strategies) + 1.0, 6.0), 1.3 + 1.45 * len(shown))
        axes = figure.subplots(len(shown), len(strategies), squeeze=False, sharey="row", sharex=True)
        figure.suptitle("\n".join([title, *about]))
        for column, strategy in enumerate(strategies):
            own = traced[traced["strategy"] == strategy]
            for row, (name, (unit, scale)) in enumerate(shown.items()):
                _trace(axes[row][column], own, name, scale, colour(strategy))
                if column == 0:
                    axes[row][column].set_ylabel(unit)
            axes[0][column].set_title(label(strategy).replace(", ", ",\n"), fontsize=9)
            axes[-1][column].set_xlabel("seconds since loading began")
        for row, (name, (_, scale)) in enumerate(shown.items()):
            top = float(known[name].max()) / scale
            # Only now: it ends autoscaling for the whole row. No line lies on the frame.
            axes[row][0].set_ylim(-0.05 * top, 1.15 * top)
        handles = _trace_handles(axes.flat, set(traced["use_case"]))
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _trace_handles(axes: Iterable[Axes], use_cases: set[str]) -> list[Line2D]:
    axes = list(axes)
    handles = [
        Line2D([], [], color=GREY, linestyle=line, marker=_marker(axes, line), label=name)
        for name, line in USE_CASE_LINES.items()
        if name in use_cases
    ]
    return [*handles, Line2D([], [], color=GREY, linestyle=":", linewidth=1.0, label="training begins")]


def _marker(axes: Iterable[Axes], linestyle: str) -> Any:
    """The marker that some line of this style was drawn with, for the legend."""
    markers = {line.get_marker() for axis in axes for line in axis.lines if line.get_linestyle() == linestyle}
    return next(iter(markers - {"none"}), "none")


def _trace(axis: Axes, own: pd.DataFrame, name: str, scale: float, line_colour: object) -> None:
    for use_case, samples in own.groupby("use_case"):
        ordered = samples.sort_values("seconds")
        values = pd.to_numeric(ordered[name], errors="coerce") / scale
        line = USE_CASE_LINES.get(str(use_case), ":")
        seconds = ordered["seconds"]
        begins = ordered.loc[ordered["phase"] == "train", "seconds"].min()
        if begins > seconds.min():
            axis.axvline(begins, color=GREY, linestyle=":", linewidth=1.0)
        # A line of one point is invisible.
        marker = USE_CASE_MARKERS.get(str(use_case), "o") if values.notna().sum() == 1 else "none"
        axis.plot(seconds, values, linestyle=line, marker=marker, color=line_colour, linewidth=1.3)
