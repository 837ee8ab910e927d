"""Notebook 02's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.bars import phase_stack, speedup_bars
from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.experiments.e02_threads_vs_processes.drawings import (
    exchange_bars,
    input_bars,
    memory_bars,
    scaling_lines,
)
from lockstep.experiments.e02_threads_vs_processes.tables import (
    exchange_table,
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
    shown = table[(table["variant"] == "a") & (table["precision"] == "float32")] if len(table) else table
    return speedup_bars(shown, published, "Speedup of data parallelism on one node", fitted=True)


def workers(stored: Stored) -> Figure:
    table = scaling(stored)
    title = "One budget of cores, split over more workers" if one_budget(table) else "Speedup against workers"
    return scaling_lines(table, title)


def memory(stored: Stored) -> Figure:
    return memory_bars(memory_table(stored.records), "Memory of each strategy")


def jpeg_input(stored: Stored) -> Figure:
    return input_bars(input_table(stored.records), "What JPEG input costs")


def phases(stored: Stored) -> Figure:
    return phase_stack(phase_table(stored.records), "Where a step's time goes")


def exchange(stored: Stored) -> Figure:
    return exchange_bars(exchange_table(stored.records), "The exchange alone: reduce + update")


FIGURES: Mapping[str, Recipe] = {
    "speedup": speedup,
    "scaling": workers,
    "memory": memory,
    "input": jpeg_input,
    "phases": phases,
    "exchange": exchange,
    "resources": traces_of("table1"),
}
