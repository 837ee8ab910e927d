"""Figures from records alone: nothing here trains, and drawing twice gives the same files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lockstep import summaries
from lockstep.figures.bars import exchange_bars, input_bars, memory_bars, phase_stack, speedup_bars
from lockstep.figures.lines import resource_traces, scaling_lines
from lockstep.figures.style import data_label, save_figure
from lockstep.published import read_table

__all__ = [
    "FIGURES",
    "data_label",
    "exchange_bars",
    "input_bars",
    "memory_bars",
    "phase_stack",
    "render_all",
    "resource_traces",
    "save_figure",
    "scaling_lines",
    "speedup_bars",
]

Drawing = Callable[[pd.DataFrame, pd.DataFrame], Figure]


class FigureError(ValueError):
    """A notebook without figures; the message names those that have some."""


def _speedup(records: pd.DataFrame, _: pd.DataFrame) -> Figure:
    published = read_table("single-to-multi", "table1")
    return speedup_bars(summaries.summary_table(records), published, "Speedup of data parallelism on one node")


def _scaling(records: pd.DataFrame, _: pd.DataFrame) -> Figure:
    # Workers beyond the budget of cores of Table 1 share cores: the ideal must not grow with them.
    table1 = records[records["experiment"] == "table1"]
    budget = int((table1["workers"] * table1["cores_per_worker"]).max()) if len(table1) else None
    table = summaries.scaling_table(records, most_cores=budget)
    fixed = len(table) and table[table["strategy"] != "sequential"]["cores"].nunique() == 1
    return scaling_lines(table, "One budget of cores, split over more workers" if fixed else "Speedup against workers")


def _memory(records: pd.DataFrame, _: pd.DataFrame) -> Figure:
    return memory_bars(summaries.memory_table(records), "Memory of each strategy")


def _input(records: pd.DataFrame, _: pd.DataFrame) -> Figure:
    return input_bars(summaries.input_table(records), "What JPEG input costs")


def _phases(records: pd.DataFrame, _: pd.DataFrame) -> Figure:
    return phase_stack(summaries.phase_table(records), "Where a step's time goes")


def _exchange(records: pd.DataFrame, _: pd.DataFrame) -> Figure:
    return exchange_bars(summaries.exchange_table(records), "Agreeing on the parameters: reduce + update alone")


def _traces(records: pd.DataFrame, resources: pd.DataFrame) -> Figure:
    rows = records[records["experiment"] == "table1"]
    return resource_traces(resources, "Resources while training", data=data_label(rows) if len(rows) else "")


FIGURES: Mapping[str, Mapping[str, Drawing]] = {
    "02_threads_vs_processes": {
        "speedup": _speedup,
        "scaling": _scaling,
        "memory": _memory,
        "input": _input,
        "phases": _phases,
        "exchange": _exchange,
        "resources": _traces,
    }
}
"""Notebook -> file name -> drawing of its records and resource traces."""


def render_all(
    notebook: str, records: pd.DataFrame, resources: pd.DataFrame | None, out_folder: str | Path
) -> list[Path]:
    """Draws every figure of a notebook into `out_folder` as PNG and SVG; returns the paths.

    Raises FigureError for a notebook without figures, RecordError if a file can't be written.
    """
    if notebook not in FIGURES:
        raise FigureError(f"{notebook!r} has no figures; there are: {', '.join(FIGURES)}")
    traces = pd.DataFrame() if resources is None else resources
    paths: list[Path] = []
    for name, draw in FIGURES[notebook].items():
        paths += save_figure(draw(records, traces), out_folder, name)
    return paths
