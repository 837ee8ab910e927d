"""Notebook 13's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.stored import Stored
from lockstep.experiments.e13_advisor.checking import judged, memories
from lockstep.experiments.e13_advisor.drawings import (
    coverage_line,
    earlier_points,
    error_strips,
    memory_points,
    parity_points,
    pick_points,
)
from lockstep.experiments.e13_advisor.earlier import earlier_speedups
from lockstep.experiments.e13_advisor.picks import allowed_loss, picks
from lockstep.experiments.e13_advisor.tables import coverage, strips


def errors_figure(stored: Stored) -> Figure:
    return error_strips(*strips(stored), "How far predictions are off")


def parity_figure(stored: Stored) -> Figure:
    return parity_points(judged(stored), "Measured and predicted steps")


def coverage_figure(stored: Stored) -> Figure:
    return coverage_line(coverage(stored), "Do the ranges hold what they promise?")


def picks_figure(stored: Stored) -> Figure:
    title = "What the way predicted quickest, and the recommended one, would have cost"
    return pick_points(picks(stored), allowed_loss(stored), title)


def memory_figure(stored: Stored) -> Figure:
    return memory_points(memories(stored), "Peak memory of a worker")


def earlier_figure(stored: Stored) -> Figure:
    table = earlier_speedups()
    return earlier_points(table if len(stored.records) else table.iloc[:0], "Speedups that were stored before")


FIGURES: Mapping[str, Recipe] = {
    "errors": errors_figure,
    "parity": parity_figure,
    "coverage": coverage_figure,
    "picks": picks_figure,
    "memory": memory_figure,
    "earlier": earlier_figure,
}
