"""Notebook 04's tables: what the cost model predicts for this machine's rows, and where a hybrid should pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, outcome
from lockstep.analysis.statistics import AnalysisError, interval_of, median_or_nan, per_round
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import cores_of_machine, ratio_columns
from lockstep.engine.job import Job, JobError
from lockstep.engine.pipelines.partition import PartitionError
from lockstep.experiments.e04_hybrid_parallelism.grid import ONE_PROCESS
from lockstep.predict.layer_costs import WITHIN, layer_costs
from lockstep.predict.layout_model import Cost, Hardware, LayerTime, Layout, map_table, step_cost
from lockstep.predict.link_model import AlphaBeta, exchange_seconds, fit
from lockstep.predict.pipeline_speedups import OPTIONS, pipeline_speedup_table

MAP_RANKS, MAP_BATCH = (4, 8, 16), 256
MAP_RATES = tuple(float(rate) for rate in np.geomspace(1e8, 1e12, 81))  # bit/s
_SHORTEST = 1e-9  # seconds of a layer that does nothing


def layer_times(layers: pd.DataFrame, use_case: str) -> list[LayerTime]:
    """Layer times, fitted over micro-batch sizes of the table `layers`; those without parameters join the one before.

    Raises AnalysisError for fewer than two sizes.
    """
    own = layers[layers["use_case"] == use_case] if len(layers) else layers
    sizes = sorted(int(size) for size in own["micro_batch_size"].unique()) if len(own) else []
    if len(sizes) < 2:
        raise AnalysisError(f"layers of {use_case} were measured for micro-batches of {sizes}: two sizes are needed")
    measured = [layer_costs(own, use_case, size) for size in sizes]
    found: list[LayerTime] = []
    for same in zip(*measured, strict=True):
        line = fit(sizes, [max(cost.seconds, _SHORTEST) for cost in same])
        output = same[-1].output_bytes / sizes[-1]
        time = LayerTime(same[0].parameters, line.alpha_seconds, line.beta_seconds_per_byte, output)
        if found and not time.parameters:
            last = found.pop()
            fixed, each = last.fixed_seconds + time.fixed_seconds, last.image_seconds + time.image_seconds
            time = LayerTime(last.parameters, fixed, each, output)
        found.append(time)
    return found


def link_of_ranks(records: pd.DataFrame, experiment: str = "collective") -> AlphaBeta:
    """The link between two ranks of this machine, from all-reduces of messages of several sizes between them: two
    messages, each half of it. Raises AnalysisError without such rows."""
    timed = exchange_seconds(records)
    rows = timed[(timed["experiment"] == experiment) & (timed["sync"] == "allreduce") & (timed["workers"] == 2)]
    rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise AnalysisError(f"experiment {experiment!r} holds no all-reduce between two ranks: the link is not known")
    middle = rows.groupby("message_bytes")["seconds"].median()
    found = fit(middle.index.to_numpy(dtype=float), middle.to_numpy(dtype=float))
    return replace(found, alpha_seconds=found.alpha_seconds / 2)


def update_seconds_per_parameter(records: pd.DataFrame, experiment: str, use_case: str, parameters: int) -> float:
    """The optimiser's seconds per parameter on one core, from the sequential rows.

    Raises AnalysisError as `per_round` does.
    """
    sequential = {"experiment": experiment, "use_case": use_case, "strategy": "sequential", "variant": "a"}
    values = per_round(records, sequential | {"device": "cpu"}, "update_seconds")
    return median_or_nan(values) / parameters


def measured_hardware(records: pd.DataFrame, layers: Sequence[LayerTime], use_case: str) -> Hardware:
    """This machine, as experiments `collective` and `hybrid` measured it. Raises AnalysisError where they did not."""
    parameters = sum(layer.parameters for layer in layers)
    update = update_seconds_per_parameter(records, "hybrid", use_case, parameters)
    return Hardware(link_of_ranks(records), update, cores_of_machine(records[records["status"] == "ok"]))


def cost_table(records: pd.DataFrame, layers: pd.DataFrame, experiment: str = "hybrid") -> pd.DataFrame:
    """A row per cell that the model describes (one device, all-reduce, pipelines, and both): predicted and measured.

    Columns: use_case, strategy, workers, OPTIONS, replicas, way, step_seconds (measured), predicted_step_seconds and
    its parts, ratio, low, high (predicted / measured, per round), rounds, within, status, reason. A use case whose
    layers, link or sequential row are missing has no prediction, and its reason says so.
    """
    table = []
    for cell, rows in cells(records, experiment):
        modelled = cell["sync"] in ("local", "allreduce") and cell["strategy"] not in ("head_parallel", ONE_PROCESS)
        if not modelled or cell["variant"] == "b" or cell["device"] != "cpu":  # layers were timed on the CPU
            continue
        status, reason = outcome(rows)
        replicas = cell["workers"] * cell["stages_per_rank"] // cell["stages"]
        layout, cost = Layout(replicas, cell["stages"], cell["micro_batches"]), None
        try:
            times = layer_times(layers, cell["use_case"])
            hardware = measured_hardware(records, times, cell["use_case"])
            cost = step_cost(times, layout, cell["global_batch_size"], hardware) if status == "ok" else None
        except (AnalysisError, PartitionError) as error:
            reason = "; ".join(filter(None, (reason, str(error))))
        row = {name: cell[name] for name in ("experiment", "use_case", "strategy", "device", "workers", "data_source")}
        row |= {name: cell[name] for name in (*OPTIONS, "global_batch_size", "variant")}
        row |= {"replicas": replicas, "way": layout.kind} | _beside(rows, cost)
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def _beside(rows: pd.DataFrame, cost: Cost | None) -> dict[str, Any]:
    measured = rows.loc[rows["status"] == "ok", "step_seconds"].astype(float)
    parts = {f"predicted_{name}": value for name, value in vars(cost).items()} if cost else {}
    ratio = interval_of(cost.step_seconds / measured) if cost and len(measured) else None
    row = {"step_seconds": median_or_nan(measured), "predicted_step_seconds": cost.step_seconds if cost else np.nan}
    row |= parts | ratio_columns(ratio, "ratio") | {"rounds": ratio.rounds if ratio else 0}
    return row | {"within": ratio is not None and abs(ratio.value - 1) <= WITHIN}


def layout_names(table: pd.DataFrame) -> list[str]:
    """A label for each row of `cost_table`."""
    names = []
    for row in table.to_dict("records"):
        stages = f"{row['stages']} stages, M = {row['micro_batches']}"
        by_way = {
            "one device": "one device",
            "data": f"data parallel, {row['workers']} ranks",
            "model": f"model parallel, {stages}",
            "hybrid": f"{row['replicas']} replicas x {stages}",
        }
        names.append(by_way[row["way"]])
    return names


def hybrid_map_table(records: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """`map_table` of every use case that was measured, for MAP_RANKS, MAP_RATES and MAP_BATCH. Empty where none was."""
    parts = []
    for name in layers["use_case"].unique() if len(layers) else ():
        try:
            times = layer_times(layers, str(name))
            hardware = measured_hardware(records, times, str(name))
            if np.isnan(hardware.update_seconds_per_parameter):
                continue
            parts.append(map_table(times, str(name), hardware, MAP_BATCH, MAP_RANKS, MAP_RATES))
        except AnalysisError:  # a part of it was not measured: `cost_table` says which
            continue
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def hybrid_wins_table(table: pd.DataFrame) -> pd.DataFrame:
    """For each use case and number of ranks of a `map_table`, the link rates at which the hybrid is predicted fastest.

    Columns: use_case, ranks, hybrid_from and hybrid_to (bit/s, among the rates of the map; NaN: never), gain (its
    largest predicted speedup over the best other choice, one device included) and gain_at (bit/s), replicas, stages
    there.
    """
    rows = []
    for (use_case, ranks), own in table.groupby(["use_case", "ranks"], sort=False) if len(table) else ():
        speeds = own.pivot(index="link_bits_per_second", columns="kind", values="predicted_speedup")
        row = {"use_case": use_case, "ranks": ranks, "hybrid_from": np.nan, "hybrid_to": np.nan}
        gain = pd.Series(dtype=float)  # where a prediction lacks a measurement, there is no gain to tell
        if "hybrid" in speeds:
            gain = (speeds["hybrid"] / speeds.drop(columns="hybrid").max(axis=1).clip(lower=1.0)).dropna()
        if len(gain):
            at = float(gain.idxmax())
            ahead = gain.index[gain > 1]
            if len(ahead):
                row |= {"hybrid_from": float(ahead.min()), "hybrid_to": float(ahead.max())}
            best = own[(own["kind"] == "hybrid") & (own["link_bits_per_second"] == at)].iloc[0]
            row |= {"gain": float(gain.max()), "gain_at": at}
            row |= {name: int(best[name]) for name in ("replicas", "stages", "micro_batches")}
        rows.append(row)
    return pd.DataFrame(rows)


# What the notebook shows of them


costs_of: Callable[[Stored], pd.DataFrame] = once(lambda stored: cost_table(stored.records, stored.table("layers")))
"""`cost_table` of all that is stored."""
map_of: Callable[[Stored], pd.DataFrame] = once(lambda stored: hybrid_map_table(stored.records, stored.table("layers")))
"""`hybrid_map_table` of all that is stored."""


UNEVEN = ((4, 2, 64), (3, 2, 64), (6, 4, 64), (4, 2, 60), (6, 2, 64))
"""Ranks, stages and images per step; only the first of these can be divided."""


def _speedup(stored: Stored) -> pd.DataFrame:
    table = pipeline_speedup_table(stored.records, "hybrid")
    if len(table):
        table["peak_pss_GiB"] = table["peak_pss_bytes"] / 2**30
    cell = ["use_case", "strategy", "variant", "device", "workers", "replicas", "stages", "micro_batches"]
    spent = ["step_seconds", "bubble", "wait_seconds", "exchange_seconds", "peak_pss_GiB"]
    columns = [*cell, "speedup", "low", "high", *spent, "status", "reason"]
    return table.reindex(columns=columns).round(3)


def _uneven(stored: Stored) -> pd.DataFrame:
    """The error messages of jobs whose numbers of replicas and stages do not divide."""
    rows = []
    for workers, stages, batch in UNEVEN:
        numbers = {"workers": workers, "stages": stages, "global_batch_size": batch}
        try:
            Job.of("1f1b", sync="allreduce", **numbers)
            answer = "runs"
        except JobError as error:
            answer = str(error)
        rows.append({**numbers, "answer": answer})
    return pd.DataFrame(rows)


def _predicted(stored: Stored) -> pd.DataFrame:
    cell = ["use_case", "way", "workers", "replicas", "stages", "micro_batches"]
    seconds = ["step_seconds", "predicted_step_seconds", "ratio", "low", "high"]
    columns = [*cell, *seconds, "within", "status", "reason"]
    return costs_of(stored).reindex(columns=columns).round(3)


def _map(stored: Stored) -> pd.DataFrame:
    table = hybrid_wins_table(map_of(stored))
    return table.rename(columns={name: f"{name}_bits_per_second" for name in ("hybrid_from", "hybrid_to", "gain_at")})


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "speedup": _speedup,
    "uneven": _uneven,
    "predicted": _predicted,
    "map": _map,
}
