"""Notebook 06's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.bars import speedup_bars
from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import in_one_session
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import start_table
from lockstep.experiments.e06_spark_distribution.drawings import data_lines, parts_stack, start_bars
from lockstep.experiments.e06_spark_distribution.tables import (
    data_table,
    parts_table,
    shown_traces,
    variant_table,
    with_most_workers,
)
from lockstep.experiments.e06_spark_distribution.without_training import PAPER_STYLE, SPEEDUP


def speedup(stored: Stored) -> Figure:
    published = read_table("single-to-multi", "table3")
    return speedup_bars(variant_table(stored.records), published, "Spark, MPI and one core", fitted=True)


def parts(stored: Stored, title: str) -> Figure:
    return parts_stack(parts_table(stored.records, stored.tables.get("spark")), title)


def data(stored: Stored) -> Figure:
    return data_lines(data_table(stored.records), "Does more data make it slower?")


def start(stored: Stored) -> Figure:
    return start_bars(start_table(stored.records), "Until training can begin")


def resources(stored: Stored) -> Figure:
    shown = {"resources": shown_traces(stored.table("resources"))}
    return traces_of(SPEEDUP)(Stored(stored.records, shown))


FIGURES: Mapping[str, Recipe] = {
    "speedup": speedup,
    "parts": in_one_session(SPEEDUP, parts, with_most_workers, PAPER_STYLE),
    "data": data,
    "start": start,
    "resources": resources,
}
