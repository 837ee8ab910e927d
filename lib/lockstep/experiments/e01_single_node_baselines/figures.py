"""Notebook 01's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.stored import Stored
from lockstep.experiments.e01_single_node_baselines.drawings import ladder_bars, operator_bars, roofline, step_stack
from lockstep.experiments.e01_single_node_baselines.tables import ladder_of, operators_of, roof_table


def ladder_figure(stored: Stored) -> Figure:
    table = ladder_of(stored)  # without the second of the A/A pair, which stood beside the first alone
    shown = table[table["variant"] == "a"].reset_index(drop=True) if len(table) else table
    return ladder_bars(shown, "One ingredient at a time")


def step_figure(stored: Stored) -> Figure:
    return step_stack(ladder_of(stored), "Where a step's time goes")


def roofline_figure(stored: Stored) -> Figure:
    return roofline(roof_table(stored.records), operators_of(stored), "How near the machine's roofs")


def operator_figure(stored: Stored) -> Figure:
    return operator_bars(operators_of(stored), "Operators of a forward and backward pass")


FIGURES: Mapping[str, Recipe] = {
    "ladder": ladder_figure,
    "steps": step_figure,
    "roofline": roofline_figure,
    "operators": operator_figure,
    "resources": traces_of("ladder"),
}
