"""Notebook 08's figures, by file name: each from what is stored and, of clusters, from what the reader assumes."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.stored import Stored
from lockstep.experiments.e08_convlstm_scaling.drawings import flops_points, scaling_panels, workers_accuracy
from lockstep.experiments.e08_convlstm_scaling.flops import EXPERIMENT as FLOPS
from lockstep.experiments.e08_convlstm_scaling.flops import beside_table2, counted_table, table4
from lockstep.experiments.e08_convlstm_scaling.forecast_drawings import forecast_lines, model_parity, table3_lines
from lockstep.experiments.e08_convlstm_scaling.forecasts import cluster_forecast, cluster_of
from lockstep.experiments.e08_convlstm_scaling.table3 import (
    FIVE_NODES,
    modelled_times,
    published_times,
    speedup_on_five_nodes,
    table3,
)
from lockstep.experiments.e08_convlstm_scaling.tables import (
    accuracy_by_workers,
    checked_model,
    strong_scaling,
    weak_scaling,
)


def speedup_against_workers(stored: Stored) -> Figure:
    tables = {"strong scaling": strong_scaling(stored), "weak scaling": weak_scaling(stored)}
    return scaling_panels(tables, "Speedup against workers")


def cluster(stored: Stored) -> Figure:
    title = f"What a cluster should give, {cluster_of(stored).link}"
    published = (FIVE_NODES, speedup_on_five_nodes())
    return forecast_lines(cluster_forecast(stored), strong_scaling(stored), title, published)


def times_of_table3(stored: Stored) -> Figure:
    published = published_times(table3())
    nodes = published["nodes"].tolist()
    modelled = modelled_times(cluster_forecast(stored), nodes, nodes[0])
    return table3_lines(published, modelled, "Table 3: how much faster than 5 nodes?")


def accuracy_against_workers(stored: Stored) -> Figure:
    return workers_accuracy(accuracy_by_workers(stored), "Does scaling change accuracy? (Figure 8)")


def flops_of_layers(stored: Stored) -> Figure:
    return flops_points(counted_table(stored.table(FLOPS)), beside_table2(table4()), "FLOP of each layer")


FIGURES: Mapping[str, Recipe] = {
    "scaling": speedup_against_workers,
    "cluster": cluster,
    "model": lambda stored: model_parity(checked_model(stored), "The cost model beside measured steps"),
    "table3": times_of_table3,
    "accuracy": accuracy_against_workers,
    "flops": flops_of_layers,
}
