"""Notebook 10's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored
from lockstep.experiments.e10_straggler_forecasts.by_processor import (
    behind_of_networks,
    slowdowns_of_networks,
    slowdowns_of_sizes,
)
from lockstep.experiments.e10_straggler_forecasts.cause_drawings import (
    cost_bars,
    loading_points,
    part_bars,
    trace_rows,
    vanishing_panels,
)
from lockstep.experiments.e10_straggler_forecasts.cause_tables import (
    DENORMAL,
    gradients_table,
    input_parts_table,
    slow_loading_table,
)
from lockstep.experiments.e10_straggler_forecasts.drawings import (
    calibration_rows,
    error_rows,
    example_lines,
    history_lines,
    onset_rows,
)
from lockstep.experiments.e10_straggler_forecasts.findings import mean_of_input
from lockstep.experiments.e10_straggler_forecasts.forecasters import BINS
from lockstep.experiments.e10_straggler_forecasts.grid import KINDS
from lockstep.experiments.e10_straggler_forecasts.tables import costs_table, errors_table, history_table, trace_table
from lockstep.experiments.e10_straggler_forecasts.targets import COST_SHARE, STEP_MILLISECONDS


def errors(stored: Stored) -> Figure:
    return error_rows(errors_table(stored), "How far off are forecasts of a task's time?")


def onsets(stored: Stored) -> Figure:
    return onset_rows(errors_table(stored), "Who is seen to become a straggler, a step before?")


def examples(stored: Stored) -> Figure:
    return example_lines(stored.table("examples"), KINDS.__getitem__, "One worker's times, and what was forecast")


def calibration(stored: Stored) -> Figure:
    return calibration_rows(errors_table(stored), "Are forecast quantiles honest?")


def history(stored: Stored) -> Figure:
    return history_lines(history_table(stored), BINS, "How much history does a forecast need?")


def traces(stored: Stored) -> Figure:
    return trace_rows(trace_table(stored), "Forecasts of three public traces")


def costs(stored: Stored) -> Figure:
    return cost_bars(costs_table(stored), "What forecasting costs", COST_SHARE * STEP_MILLISECONDS)


def loading(stored: Stored) -> Figure:
    table = slow_loading_table(stored)
    shares = table["delays"].map(mean_of_input).astype(float) if len(table) else table
    return loading_points(table, shares, "The slowest input sets the pace")


def vanishing(stored: Stored) -> Figure:
    title = "Do vanishing gradients make workers slow?"
    waits = {"slowdown": slowdowns_of_networks(stored), "behind": behind_of_networks(stored)}
    return vanishing_panels(slowdowns_of_sizes(stored), gradients_table(stored), waits, DENORMAL, title)


def input_parts(stored: Stored) -> Figure:
    claims = read_claims().set_index("id")
    published = float(claims.loc["dps-decoding-half", "value"])
    return part_bars(input_parts_table(stored), "Where the input's time goes", published)


FIGURES: Mapping[str, Recipe] = {
    "errors": errors,
    "onsets": onsets,
    "examples": examples,
    "calibration": calibration,
    "history": history,
    "traces": traces,
    "costs": costs,
    "loading": loading,
    "vanishing": vanishing,
    "input_parts": input_parts,
}
