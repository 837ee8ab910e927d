"""Tables of notebook 08 on what was measured: strong and weak scaling, accuracy against workers, Table 3.

What the cost model says stands in `lockstep.costs` and `lockstep.scaling_forecasts`, in columns of other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from lockstep.analysis import AnalysisError, amdahl, amdahl_fit
from lockstep.flops import exascale
from lockstep.learning_tables.cells import mean_or_none, named, paired_points, same_but, scored
from lockstep.pipelines.hybrids import SHARED_CORES, cores_of_machine
from lockstep.summaries import cells, outcome, summary_table

SCALING = ("strong", "weak")
LEARNING = "learning"
BATCH_OF = {"strong": "global_batch_size", "weak": "per_worker_batch_size"}
"""What stays while workers are added."""
_ALSO = ("network", "sync", "launcher", "servers", "per_worker_batch_size", "model_parallel")


def scaling_table(records: pd.DataFrame, experiment: str) -> pd.DataFrame:
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
        table = summary_table(own, experiment)
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
        table[name] = table[column] / table["cores"]
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


def accuracy_table(records: pd.DataFrame) -> pd.DataFrame:
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
        row |= named(mean_or_none(scored(rows)["test_accuracy"]), "accuracy", 100.0) | {"seeds": len(ok)}
        difference = None
        if cell["workers"] > 1:
            try:
                difference = paired_points(records, cell, base_of(cell))
            except AnalysisError as error:
                reason = reason or str(error)
        row |= named(difference, "points") | {"training_seconds": float(ok["training_seconds"].median())}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def base_of(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell of one worker that trains the same: whatever launches it, and however it would agree with others."""
    free = ("strategy", "launcher", "sync", "servers", "shards", "policy", "per_worker_batch_size", "bucket", "overlap")
    return same_but(cell, *free, workers=1)


# Table 3


def published_times(table3: pd.DataFrame) -> pd.DataFrame:
    """Table 3 and what its numbers say of each other; one of the nodes is the parameter server (section 4).

    Columns: nodes, published_seconds, published_accuracy (%), published_times (seconds on the fewest nodes / seconds),
    nodes_times and workers_times (how many times as many nodes, and workers, that is). The paper tells neither images
    nor epochs of this table, so there is no rate.
    """
    table = table3.sort_values("nodes")
    first = table.iloc[0]
    return pd.DataFrame(
        {
            "nodes": table["nodes"].astype(int),
            "published_seconds": table["time_seconds"],
            "published_accuracy": table["accuracy_percent"],
            "published_times": first["time_seconds"] / table["time_seconds"],
            "nodes_times": table["nodes"] / first["nodes"],
            "workers_times": (table["nodes"] - 1) / (first["nodes"] - 1),
        }
    ).reset_index(drop=True)


def measured_times(table: pd.DataFrame) -> pd.DataFrame:
    """Of a `scaling_table` of `strong`: seconds of a step on more and more workers, and times as fast as on the fewest.

    Columns: network, strategy, global_batch_size, workers, servers, time_shared, step_seconds, measured_times (step on
    one worker / step), workers_times, low, high.
    """
    if table.empty:
        return table
    own = table[(table["variant"] == "a") & (table["model_parallel"] == "none") & table["speedup"].notna()]
    kept = ["network", "strategy", "global_batch_size", "workers", "servers", "time_shared", "step_seconds"]
    found = own[kept].assign(measured_times=own["speedup"], low=own["low"], high=own["high"])
    return found.assign(workers_times=own["workers"]).reset_index(drop=True)


def modelled_times(forecast: pd.DataFrame, nodes: Sequence[int], fewest: int) -> pd.DataFrame:
    """Of a `scaling_forecasts.forecast_table`: what the model says of Table 3's nodes (strong scaling, with a server).

    Columns: network, nodes, modelled_step_seconds, modelled_times (step on the fewest nodes / step).
    """
    if forecast.empty:
        return forecast
    own = forecast[(forecast["scaling"] == "strong") & (forecast["way"] == "parameter server")]
    own = own[own["nodes"].isin(nodes)]
    first = own[own["nodes"] == fewest].set_index("network")["modelled_step_seconds"]
    times = own["network"].map(first) / own["modelled_step_seconds"]
    return own[["network", "nodes", "modelled_step_seconds"]].assign(modelled_times=times).reset_index(drop=True)


def superlinear_table(nodes: int, speedup: float) -> pd.DataFrame:
    """What a published speedup on so many nodes takes, if every node trains and if one of them is the server.

    Columns: trains (what), workers, ideal (their number), published_speedup, per_worker (speedup / workers: how many
    times as fast per image a worker must be as the node alone), saved (share of an image's seconds that must vanish).
    """
    rows = []
    for text, workers in (("all nodes", nodes), ("all but the parameter server", nodes - 1)):
        row = {"trains": text, "workers": workers, "ideal": workers, "published_speedup": speedup}
        rows.append(row | {"per_worker": speedup / workers, "saved": 1 - workers / speedup})
    return pd.DataFrame(rows)


def exascale_table(records: pd.DataFrame) -> pd.DataFrame:
    """What EXA FLOP per second would take with each network at the rate that one core trains it here.

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
