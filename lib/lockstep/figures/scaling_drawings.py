"""Notebook 08's figures from its records and traced tables, with the link that `scaling_forecasts` assumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
from matplotlib.figure import Figure

from lockstep import costs, flops, scaling_tables
from lockstep.figures.scaling import (
    flops_bars,
    forecast_lines,
    model_points,
    scaling_panels,
    table3_lines,
    workers_accuracy,
)
from lockstep.published import read_claims, read_table
from lockstep.scaling_forecasts import ASSUMED, BATCH, NODES, PER_WORKER, forecast_table

Tables = Mapping[str, pd.DataFrame]
PAPER = "convlstm-d-accel"


def published_speedup() -> tuple[int, float]:
    """Nodes, and the abstract's speedup on them."""
    claims = read_claims()
    return 5, float(claims.loc[claims["id"] == "cla-speedup-5", "value"].iloc[0])


def _forecast(records: pd.DataFrame) -> pd.DataFrame:
    return forecast_table(records, NODES, ASSUMED, BATCH, PER_WORKER)


def _scaling(records: pd.DataFrame, _: Tables) -> Figure:
    tables = {f"{name} scaling": scaling_tables.scaling_table(records, name) for name in scaling_tables.SCALING}
    return scaling_panels(tables, "Speedup against workers")


def _cluster(records: pd.DataFrame, _: Tables) -> Figure:
    strong = scaling_tables.scaling_table(records, "strong")
    return forecast_lines(_forecast(records), strong, f"What a cluster should give, {ASSUMED}", published_speedup())


def _model(records: pd.DataFrame, _: Tables) -> Figure:
    return model_points(costs.check_table(records), "The cost model beside measured steps")


def _table3(records: pd.DataFrame, _: Tables) -> Figure:
    published = scaling_tables.published_times(read_table(PAPER, "table3"))
    nodes = published["nodes"].tolist()
    modelled = scaling_tables.modelled_times(_forecast(records), nodes, nodes[0])
    return table3_lines(published, modelled, "Table 3: how much faster than 5 nodes?")


def _accuracy(records: pd.DataFrame, _: Tables) -> Figure:
    return workers_accuracy(scaling_tables.accuracy_table(records), "Does scaling change accuracy? (Figure 8)")


def _flops(_: pd.DataFrame, tables: Tables) -> Figure:
    counted = flops.counted_table(tables.get(flops.EXPERIMENT, pd.DataFrame()))
    beside = flops.beside_table2(read_table(PAPER, "table4"))
    return flops_bars(counted, beside, "FLOP of each layer")


SCALING: Mapping[str, Callable[[pd.DataFrame, Tables], Figure]] = {
    "scaling": _scaling,
    "cluster": _cluster,
    "model": _model,
    "table3": _table3,
    "accuracy": _accuracy,
    "flops": _flops,
}
