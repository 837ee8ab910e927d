"""Notebook 02's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.bars import phase_stack, speedup_bars
from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import in_one_session
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.experiments.e02_threads_vs_processes.drawings import exchange_bars, input_bars, memory_bars, scaling_lines
from lockstep.experiments.e02_threads_vs_processes.lock_drawings import LOCK, lock_points, too_few_counts
from lockstep.experiments.e02_threads_vs_processes.tables import (
    exchange_table,
    gil_table,
    input_table,
    memory_table,
    one_budget,
    phase_table,
    scaling,
    speedup_table,
)


def speedup(stored: Stored) -> Figure:
    """Of the cells that have a sequential one beside them: the others stand beside a rival alone."""
    published, table = read_table("single-to-multi", "table1"), speedup_table(stored.records)
    shown = table[table["precision"] == "float32"] if len(table) else table
    return speedup_bars(shown, published, "Speedup of data parallelism on one node", fitted=True)


def workers(stored: Stored) -> Figure:
    table = scaling(stored)
    title = "One budget of cores, split over more workers" if one_budget(table) else "Speedup against workers"
    return too_few_counts(table, title) or scaling_lines(table, title)


FIGURES: Mapping[str, Recipe] = {
    "speedup": speedup,
    "interpreter": lambda stored: lock_points(gil_table(stored.records), LOCK),
    "scaling": workers,
    "memory": lambda stored: memory_bars(memory_table(stored.records), "Memory of each strategy"),
    "input": lambda stored: input_bars(input_table(stored.records), "What JPEG input costs"),
    "phases": in_one_session("table1", lambda stored, title: phase_stack(phase_table(stored.records), title)),
    "exchange": lambda stored: exchange_bars(exchange_table(stored.records), "The exchange alone: reduce + update"),
    "resources": traces_of("table1"),
}
