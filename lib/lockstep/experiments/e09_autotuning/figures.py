"""Notebook 09's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.stored import Stored
from lockstep.experiments.e09_autotuning.drawings import (
    course_lines,
    engine_points,
    forecast_panels,
    frontier_points,
    importance_bars,
    ladder_points,
    learning_curves,
)
from lockstep.experiments.e09_autotuning.stored_pool import pool_in
from lockstep.experiments.e09_autotuning.tables import SHOWN_SETTINGS, TUNED, compared, ladder


def curves(stored: Stored) -> Figure:
    return learning_curves(pool_in(stored), SHOWN_SETTINGS, "Learning curves of settings drawn at random")


def pruners(stored: Stored) -> Figure:
    return frontier_points(compared(stored), "What pruners save, and what they lose")


def course(stored: Stored) -> Figure:
    return course_lines(stored.table("best_so_far"), "How soon a study has found its best setting")


def forecasts(stored: Stored) -> Figure:
    return forecast_panels(stored.table("curve_forecasts"), "Forecasts of how learning curves end")


def steps(stored: Stored) -> Figure:
    table = ladder(stored)
    tuned = len(table) > 0 and TUNED in set(table["step"])
    added = "an LSTM head, and tuning add" if tuned else "and an LSTM head add\n(no tuned network has been scored yet)"
    return ladder_points(table, f"What dropout, L2, {added}")


def importance(stored: Stored) -> Figure:
    return importance_bars(stored.table("importances"), "Which choices matter")


def engines(stored: Stored) -> Figure:
    return engine_points(stored.table("studies"), "One list of trials by one engine and by several")


FIGURES: Mapping[str, Recipe] = {
    "ladder": steps,
    "pruners": pruners,
    "course": course,
    "forecasts": forecasts,
    "curves": curves,
    "importances": importance,
    "engines": engines,
}
