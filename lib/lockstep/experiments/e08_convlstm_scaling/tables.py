"""What notebook 08 shows as tables. Here: strong and weak scaling, accuracy against workers, exascale.

Table 3 has a module of its own. What the cost model says stands in `lockstep.predict.cost_model` and, of clusters, in
`forecasts`, in columns that say `modelled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.seeds import mean_columns, mean_or_none, paired_points, percent_columns, same_but, scored
from lockstep.analysis.statistics import AnalysisError, amdahl, amdahl_fit
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import SHARED_CORES, cores_of_machine, summary_table
from lockstep.experiments.e08_convlstm_scaling.bounds import bounds_table
from lockstep.experiments.e08_convlstm_scaling.flops import EXPERIMENT as FLOPS
from lockstep.experiments.e08_convlstm_scaling.flops import (
    beside_table2,
    counted_table,
    exascale,
    recomputed,
    table4,
    totals,
)
from lockstep.experiments.e08_convlstm_scaling.forecasts import busy_table, cluster_forecast, cluster_of
from lockstep.experiments.e08_convlstm_scaling.table3 import (
    FIVE_NODES,
    modelled_times,
    published_times,
    speedup_on_five_nodes,
    superlinear_table,
    table3,
)
from lockstep.predict.cost_check import check_table, error_table
from lockstep.predict.cost_model import calibrated, fewest_rounds, parameter_table, recalibrated

SCALING = ("strong", "weak")
LEARNING = "learning"
BATCH_OF = {"strong": "global_batch_size", "weak": "per_worker_batch_size"}
"""What stays while workers are added."""
_ALSO = ("network", "sync", "launcher", "servers", "per_worker_batch_size", "model_parallel")


def worker_scaling_table(records: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """A row per cell of `strong` or `weak`, with its speedup over sequential training of the same network: in strong
    scaling on the same global batch, in weak scaling on the batch of one worker.

    Columns: those of `summary_table`, and network, sync, launcher, servers, per_worker_batch_size, model_parallel,
    time_shared (ranks take turns on cores), cores (that train at once: workers, or stages, at most the machine's),
    efficiency, efficiency_low, efficiency_high (speedup / cores), amdahl_serial (share; fitted to the strategy's cells
    that take no turns) and amdahl_speedup (what the fit gives; NaN without one).
    """
    rows = records[records["experiment"] == experiment]
    parts = []
    for _, own in rows.groupby(["use_case", "network", BATCH_OF[experiment]], sort=False):
        table = summary_table(own, experiment, noise=aa_noise(records))
        found = cells(own, experiment)
        for name in _ALSO:
            table[name] = [cell[name] for cell, _ in found]
        shared = [bool(each["reason"].astype(str).str.contains(SHARED_CORES).any()) for _, each in found]
        parts.append(table.assign(time_shared=shared))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    table["cores"] = table["workers"].clip(upper=cores_of_machine(records[records["status"] == "ok"]))
    for name, column in (("efficiency", "speedup"), ("efficiency_low", "low"), ("efficiency_high", "high")):
        table[name] = (table[column] / table["cores"]).where(table["variant"] == "a")  # the others' base is themselves
    return _with_amdahl(table, experiment)


def _with_amdahl(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Amdahl's law speaks of a fixed amount of work: of weak scaling there is no fit."""
    table[["amdahl_serial", "amdahl_speedup"]] = float("nan")
    if experiment != "strong":
        return table
    keys = ["use_case", "network", "global_batch_size", "strategy"]
    for _, own in table[(table["variant"] == "a") & (table["model_parallel"] == "none")].groupby(keys, sort=False):
        fitted = own[own["speedup"].notna() & ~own["time_shared"] & (own["cores"] > 1)]
        if fitted.empty:
            continue
        serial = amdahl_fit(fitted["cores"].tolist(), fitted["speedup"].tolist())
        table.loc[own.index, "amdahl_serial"] = serial
        table.loc[own.index, "amdahl_speedup"] = [amdahl(count, serial) for count in own["cores"]]
    return table


def worker_accuracy_table(records: pd.DataFrame) -> pd.DataFrame:
    """Figure 8: test accuracy against the number of workers and the global batch, means over seeds.

    Columns: use_case, network, strategy, workers, servers, global_batch_size, epochs, data_source, accuracy,
    accuracy_low, accuracy_high (%), seeds, points, points_low, points_high (minus one worker's of the same seed and
    batch, percentage points; NaN for one worker), training_seconds, status, reason.
    """
    table = []
    for cell, rows in cells(records, LEARNING):
        if cell["variant"] != "a":
            continue
        status, reason = outcome(rows)
        kept = ("use_case", "network", "strategy", "workers", "servers", "global_batch_size", "epochs", "data_source")
        row: dict[str, Any] = {name: cell[name] for name in kept}
        ok = rows[rows["status"] == "ok"]
        row |= percent_columns(mean_or_none(scored(rows)["test_accuracy"]), "accuracy") | {"seeds": len(ok)}
        difference = None
        if cell["workers"] > 1:
            try:
                difference = paired_points(records, cell, one_worker_of(cell))
            except AnalysisError as error:
                reason = reason or str(error)
        row |= mean_columns(difference, "points") | {"training_seconds": float(ok["training_seconds"].median())}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def one_worker_of(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell of one worker that trains the same, whatever its launcher and sync."""
    free = ("strategy", "launcher", "sync", "servers", "shards", "policy", "per_worker_batch_size", "bucket", "overlap")
    return same_but(cell, *free, workers=1)


def exascale_table(records: pd.DataFrame) -> pd.DataFrame:
    """How many cores EXA FLOP per second would take with each network, at the rate at which one core trains it here.

    Columns: network, flops_per_image (counted, both passes), images_per_second (sequential, the largest batch),
    measured_flops_per_second, images_per_second_needed, cores_needed, batch_of_32_per_core.
    """
    table = []
    for network, own in records[records["status"] == "ok"].groupby("network", sort=False):
        counted = own.loc[own["experiment"] == "flops", "flops_per_image"].dropna()
        alone = own[(own["strategy"] == "sequential") & own["images_per_second"].notna() & (own["variant"] == "a")]
        alone = alone[alone["experiment"].isin(SCALING)]
        if counted.empty or alone.empty:
            continue
        alone = alone[alone["global_batch_size"] == alone["global_batch_size"].max()]
        rate = float(alone["images_per_second"].median())
        row = {"network": network, "flops_per_image": float(counted.iloc[0]), "images_per_second": rate}
        table.append(row | exascale(rate, float(counted.iloc[0])))
    return pd.DataFrame(table)


# What figures and tables both read
strong_scaling = once(lambda stored: worker_scaling_table(stored.records, "strong"))
weak_scaling = once(lambda stored: worker_scaling_table(stored.records, "weak"))
accuracy_by_workers = once(lambda stored: worker_accuracy_table(stored.records))
checked_model = once(lambda stored: check_table(on_one_processor(stored)[0]))


# What the notebook shows


def _shown_scaling(table: pd.DataFrame) -> pd.DataFrame:
    cell = ["network", "strategy", "variant", "workers", "servers", "global_batch_size", "time_shared"]
    measured = ["speedup", "low", "high", *table.columns.intersection(["speedup_sessions"]), "efficiency", "difference"]
    return table.reindex(columns=[*cell, *measured, "status", "reason"]).round(3)


def _held_out(stored: Stored) -> pd.DataFrame:
    table = checked_model(stored)
    table = table[table["part"] == "held out"] if len(table) else table
    cell = ["network", "strategy", "hosts", "workers", "servers", "global_batch_size", "time_shared"]
    seconds = ["step_seconds", "modelled_step_seconds", "ratio", "low", "high", "rounds"]
    return table.reindex(columns=[*cell, *seconds, "status", "reason"]).round(4)


def _cluster(stored: Stored) -> pd.DataFrame:
    """Modelled speedup, a column per number of nodes."""
    table = cluster_forecast(stored)
    if table.empty:
        return table
    rows = ["network", "scaling", "way"]
    return table.pivot_table(index=rows, columns="nodes", values="modelled_speedup", sort=False).round(2)


def _busy(stored: Stored) -> pd.DataFrame:
    cluster = cluster_of(stored)
    return busy_table(on_one_processor(stored)[0], cluster.nodes, cluster.link, cluster.epoch_images).round(3)


def _link_bounds(stored: Stored) -> pd.DataFrame:
    """Of the paper's network: Table 3 relative to its fewest nodes, and five nodes, as verdicts have them."""
    table = published_times(table3()).iloc[1:].to_dict("records")
    wanted = [(f"{FIVE_NODES} to {row['nodes']} nodes", row["published_times"], FIVE_NODES - 1, row["nodes"] - 1)
              for row in table]  # fmt: skip
    wanted.append((f"1 to {FIVE_NODES} nodes, all of which train", speedup_on_five_nodes(), 1, FIVE_NODES))
    try:
        sides = (on_one_processor(stored.quiet)[0], "Pneumonia", "convlstm")
        model = calibrated(*sides), recalibrated(*sides), fewest_rounds(*sides)
    except AnalysisError:
        return pd.DataFrame()
    return bounds_table(*model, wanted, cluster_of(stored).epoch_images).round(3)


def _modelled_times(stored: Stored) -> pd.DataFrame:
    nodes = published_times(table3())["nodes"].tolist()
    return modelled_times(cluster_forecast(stored), nodes, nodes[0]).round(4)


def _accuracy(stored: Stored) -> pd.DataFrame:
    cell = ["network", "workers", "global_batch_size", "epochs", "data_source"]
    measured = ["accuracy", "accuracy_low", "accuracy_high", "seeds", "points", "points_low", "points_high"]
    columns = [*cell, *measured, "training_seconds", "status", "reason"]
    return accuracy_by_workers(stored).reindex(columns=columns).round(2)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "published_times": lambda stored: published_times(table3()).round(3),
    "superlinear": lambda stored: superlinear_table(FIVE_NODES, speedup_on_five_nodes()).round(3),
    "strong": lambda stored: _shown_scaling(strong_scaling(stored)),
    "weak": lambda stored: _shown_scaling(weak_scaling(stored)),
    "cost_model": lambda stored: parameter_table(on_one_processor(stored)[0]).round(6),
    "model_errors": lambda stored: error_table(checked_model(stored)).round(4),
    "held_out": _held_out,
    "cluster": _cluster,
    "busy": _busy,
    "link_bounds": _link_bounds,
    "modelled_times": _modelled_times,
    "accuracy": _accuracy,
    "table4": lambda stored: recomputed(table4()),
    "table4_totals": lambda stored: totals(table4()),
    "table4_beside_table2": lambda stored: beside_table2(table4()),
    "flops": lambda stored: counted_table(stored.table(FLOPS)),
    "exascale": lambda stored: exascale_table(on_one_processor(stored)[0]),
}
