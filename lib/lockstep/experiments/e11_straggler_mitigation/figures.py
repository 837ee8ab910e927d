"""Notebook 11's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.analysis.figures.recipes import Recipe
from lockstep.experiments.e11_straggler_mitigation import learning_figures, throughput_figures
from lockstep.experiments.e11_straggler_mitigation.advice import advice_figure
from lockstep.experiments.e11_straggler_mitigation.twins_drawings import simulator_figure

FIGURES: Mapping[str, Recipe] = {
    "mitigation": throughput_figures.mitigation_figure,
    "bounds": throughput_figures.bounds_figure,
    "stages": throughput_figures.stages_figure,
    "advice": advice_figure,
    "slow_nodes": learning_figures.slow_nodes_figure,
    "paper_network": learning_figures.paper_network_figure,
    "time_to_loss": learning_figures.time_to_loss_figure,
    "rivals": learning_figures.rivals_figure,
    "scale": throughput_figures.scale_figure,
    "costs": throughput_figures.costs_figure,
    "stand_ins": learning_figures.stand_ins_figure,
    "partitions": learning_figures.partitions_figure,
    "simulator": simulator_figure,
}
