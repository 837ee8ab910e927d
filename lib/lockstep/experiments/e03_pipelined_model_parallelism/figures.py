"""Notebook 03's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.bars import speedup_bars
from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.predictions import prediction_bars
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import remark_on_seconds
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.experiments.e03_pipelined_model_parallelism.answer import with_rivals
from lockstep.experiments.e03_pipelined_model_parallelism.drawings import pipeline_diagram, schedule_lines
from lockstep.experiments.e03_pipelined_model_parallelism.forecasts import partitions_of, predictions_of
from lockstep.experiments.e03_pipelined_model_parallelism.stage_drawings import partition_bars, stage_memory_bars
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import rank_memory_table, shown_cells
from lockstep.predict.pipeline_speedups import NAIVE, pipeline_speedup_table


def pipeline_speedup_figure(stored: Stored) -> Figure:
    published = read_table("single-to-multi", "table2")
    table = with_rivals(stored.records, pipeline_speedup_table(stored.records, "speedup"))
    return speedup_bars(table, published, "Model parallelism on one machine, and published on GPUs", fitted=True)


def schedule_figure(stored: Stored) -> Figure:
    return schedule_lines(pipeline_speedup_table(stored.records, "schedules", NAIVE), "Schedules and micro-batches")


def diagram_figure(stored: Stored) -> Figure:
    return pipeline_diagram(shown_cells(stored.table("actions")), "What each rank does in a step")


def prediction_figure(stored: Stored) -> Figure:
    title = f"Predicted from stages that were timed alone\n{remark_on_seconds(stored)}"
    return prediction_bars(predictions_of(stored), title.strip())


def rank_memory_figure(stored: Stored) -> Figure:
    return stage_memory_bars(rank_memory_table(stored.table("stages")), "What a rank holds")


def partition_figure(stored: Stored) -> Figure:
    return partition_bars(partitions_of(stored), f"Where to cut\n{remark_on_seconds(stored)}".strip())


FIGURES: Mapping[str, Recipe] = {
    "speedup": pipeline_speedup_figure,
    "schedules": schedule_figure,
    "diagram": diagram_figure,
    "predicted": prediction_figure,
    "memory": rank_memory_figure,
    "partition": partition_figure,
    "resources": traces_of("speedup"),
}
