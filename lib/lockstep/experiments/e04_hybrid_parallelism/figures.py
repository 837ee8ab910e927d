"""Notebook 04's figures, by file name: each from what is stored alone."""

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
from lockstep.experiments.e04_hybrid_parallelism.drawings import hybrid_map
from lockstep.experiments.e04_hybrid_parallelism.findings import farthest_off
from lockstep.experiments.e04_hybrid_parallelism.tables import costs_of, layout_names, map_of
from lockstep.predict.pipeline_speedups import pipeline_speedup_table


def hybrid_speedup_figure(stored: Stored) -> Figure:
    table, published = pipeline_speedup_table(stored.records, "hybrid"), read_table("single-to-multi", "table2")
    return speedup_bars(table, published, "Data, model, or both here, and published on GPUs", fitted=True)


def cost_model_figure(stored: Stored) -> Figure:
    table = costs_of(stored)
    title = f"What the cost model says of this machine\n{remark_on_seconds(stored)}"
    return prediction_bars(table, title.strip(), layout_names(table))


def hybrid_map_figure(stored: Stored) -> Figure:
    return hybrid_map(map_of(stored), "When should a hybrid pay?", farthest_off(stored))


FIGURES: Mapping[str, Recipe] = {
    "speedup": hybrid_speedup_figure,
    "predicted": cost_model_figure,
    "map": hybrid_map_figure,
    "resources": traces_of("hybrid"),
}
