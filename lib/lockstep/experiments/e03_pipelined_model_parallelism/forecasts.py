"""How long a pipeline's step should take, from its stages timed alone, and how good the cuts between its stages are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.statistics import Estimate, interval_of, median_or_nan, ratio_or_reason
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import ratio_columns
from lockstep.engine.pipelines.order import Action, from_table
from lockstep.engine.pipelines.partition import LayerCost, equal_layers, equal_parameters, slowest_stage_seconds
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import (
    STAGE_TIMES,
    TABLE_CELL,
    images_per_micro_batch,
    table_cells,
)
from lockstep.predict.layer_costs import WITHIN, layer_costs
from lockstep.predict.pipeline_model import Prediction, predict

PREDICTED = ("schedules", "stages", "partition")
"""Experiments whose step times are predicted from those of their stages."""
RULES = {"equal_layers": equal_layers, "equal_parameters": equal_parameters}
"""What a balanced partition is compared with."""
_PLACE = ["rank", "stage", "round", "partition", "first_layer", "last_layer"]
_KINDS = ("forward", "backward", "input_backward", "weight_backward")
_TIMES = (*(f"{kind}_seconds" for kind in _KINDS), "send_seconds", "update_seconds")

Tables = Mapping[str, pd.DataFrame]


# Layers


def best_seconds(costs: Sequence[LayerCost], stages: int) -> float:
    """Seconds of the slowest stage under the best of all contiguous splits, every one of which is tried."""
    ends = np.cumsum([0.0, *(cost.seconds for cost in costs)])
    splits = combinations(range(1, len(costs)), stages - 1)
    return min(float(np.diff(ends[[0, *cuts, len(costs)]]).max()) for cuts in splits)


def cut_table(stages: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """A row per use case, number of stages, rule and micro-batch size: how good the cuts that ran are, by layers alone.

    Columns: use_case, stages, partition, micro_batch_size, first_layers (the most frequent cuts), slowest_seconds (of a
    micro-batch, sum over the layers of the slowest stage), best_seconds (`best_seconds`), ratio, low, high (slowest /
    best, per round), simple_seconds (the better of RULES), over_simple (median of slowest / simple), rounds. Layers'
    seconds are medians over all rounds, those of cuts that are made from the measurements of a round are not.
    """
    table = []
    trained = stages[(stages["experiment"] != STAGE_TIMES) & (stages["replica"] == 0)] if len(stages) else stages
    if trained.empty or layers.empty:
        return pd.DataFrame()
    trained = trained.assign(micro_batch_size=[images_per_micro_batch(row) for row in trained.to_dict("records")])
    keys = ["use_case", "stages", "partition", "micro_batch_size"]
    for key, rows in trained.groupby(keys):
        cell = dict(zip(keys, key, strict=True))
        costs = layer_costs(layers, str(cell["use_case"]), int(cell["micro_batch_size"]))
        if costs:
            table.append(cell | _quality(rows, costs, int(cell["stages"])))
    return pd.DataFrame(table)


def _quality(rows: pd.DataFrame, costs: list[LayerCost], stages: int) -> dict[str, Any]:
    """The worst cut of one kind in each round."""
    runs = rows.groupby(["round", *TABLE_CELL])["first_layer"].apply(lambda own: tuple(sorted(map(int, own))))
    times = runs.map(lambda cuts: slowest_stage_seconds(costs, cuts)).groupby("round").max()
    best, simple = (
        best_seconds(costs, stages),
        min(slowest_stage_seconds(costs, rule(costs, stages)) for rule in RULES.values()),
    )
    return {
        "first_layers": ", ".join(map(str, runs.mode().iloc[0])),
        "slowest_seconds": float(times.median()),
        "best_seconds": best,
        **ratio_columns(interval_of(times / best), "ratio"),
        "simple_seconds": simple,
        "over_simple": float((times / simple).median()),
        "rounds": len(times),
    }


def partition_table(records: pd.DataFrame, tables: Tables, experiment: str = "partition") -> pd.DataFrame:
    """A row per cell of an experiment that compares partitions: its cuts (`cut_table`) and its measured step.

    Columns: use_case, strategy, partition, activations, first_layers, slowest_over_best, step_seconds, ratio, low, high
    (step / that of the balanced partition with activations kept, paired per round), rounds, status, reason.
    """
    cuts = cut_table(tables.get("stages", pd.DataFrame()), tables.get("layers", pd.DataFrame()))
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        same = ("use_case", "stages", "partition")
        own = cuts[(cuts[list(same)] == [cell[name] for name in same]).all(axis=1)] if len(cuts) else cuts
        own = own[own["micro_batch_size"] == images_per_micro_batch(cell)] if len(own) else own
        row = {name: cell[name] for name in (*TABLE_CELL, "data_source")}
        row |= {"first_layers": own["first_layers"].iloc[0] if len(own) else ""}
        row |= {"slowest_over_best": float(own["ratio"].iloc[0]) if len(own) else np.nan}
        ratio = _over_balanced(records, cell)
        row |= {"step_seconds": median_of(rows, "step_seconds")} | ratio_columns(ratio, "ratio")
        table.append(row | {"rounds": ratio.rounds if ratio else 0, "status": status, "reason": reason})
    return pd.DataFrame(table)


partitions_of: Callable[[Stored], pd.DataFrame] = once(lambda stored: partition_table(stored.records, stored.tables))
"""`partition_table` of all that is stored."""


def _over_balanced(records: pd.DataFrame, cell: dict[str, Any]) -> Estimate | None:
    base = cell | {"partition": "balanced", "activations": "kept", "variant": "a"}
    return ratio_or_reason(records, cell, base, "step_seconds")[0]


# Steps


def prediction_table(records: pd.DataFrame, tables: Tables, experiments: Sequence[str] = PREDICTED) -> pd.DataFrame:
    """The step that each pipeline's stages should take, by playing through the order of actions that ran, against the
    step that was measured.

    Seconds of a stage are those of experiment `stage_times` in the same round (over all rounds where that one has
    none), for the same ranks and micro-batch size. A stage that was cut elsewhere there is scaled by its layers' times.
    Columns: TABLE_CELL, data_source, pipeline_ranks, step_seconds (measured), predicted_step_seconds, predicted_bubble,
    ratio, low, high (predicted / measured, paired per round), rounds, within (bool: the median is within WITHIN of 1),
    status, reason.
    """
    actions, stages, layers = (tables.get(name, pd.DataFrame()) for name in ("actions", "stages", "layers"))
    ran, cut = ({tuple(cell.values()): rows for cell, rows in table_cells(frame)} for frame in (actions, stages))
    table = []
    for experiment in experiments:
        for cell, rows in cells(records, experiment):
            if cell["schedule"] == "none":
                continue
            key = tuple(cell[name] for name in TABLE_CELL)
            status, reason = outcome(rows)
            found = {}
            if key in ran and key in cut:
                costs = layer_costs(layers, cell["use_case"], images_per_micro_batch(cell))
                found = _predictions(ran[key], cut[key], _timed(stages, cell), costs)
            row = {name: cell[name] for name in (*TABLE_CELL, "data_source")}
            row |= {"pipeline_ranks": cell["stages"] // cell["stages_per_rank"]} | _against(rows, found)
            if status == "ok" and not row["rounds"]:
                reason = "; ".join(filter(None, (reason, "its stages were not timed")))
            table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


predictions_of: Callable[[Stored], pd.DataFrame] = once(lambda stored: prediction_table(stored.records, stored.tables))
"""`prediction_table` of all that is stored."""


def _timed(stages: pd.DataFrame, cell: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of `stage_times` that can stand for the stages of `cell`."""
    rows = stages[stages["experiment"] == STAGE_TIMES]
    for name in ("use_case", "device", "workers", "stages", "stages_per_rank", "activations"):
        rows = rows[rows[name] == cell[name]]
    same = [images_per_micro_batch(row) == images_per_micro_batch(cell) for row in rows.to_dict("records")]
    return rows[np.array(same, dtype=bool)]


def _predictions(
    ran: pd.DataFrame, cut: pd.DataFrame, timed: pd.DataFrame, costs: Sequence[LayerCost]
) -> dict[int, Prediction]:
    """The predicted seconds of a step, by round. Empty where a stage was not timed."""
    found: dict[int, Prediction] = {}
    for number, actions in ran[ran["replica"] == 0].groupby("round"):
        own = cut.loc[(cut["round"] == number) & (cut["replica"] == 0), _PLACE].to_dict("records")
        seconds = {int(row["stage"]): _stage_seconds(row, timed, costs) for row in own}
        if not seconds or any(each is None for each in seconds.values()):
            continue
        known = {stage: each for stage, each in seconds.items() if each is not None}
        ranks = {int(row["stage"]): int(row["rank"]) for row in own}
        updates: dict[int, float] = {}
        for stage, each in known.items():
            updates[ranks[stage]] = max(updates.get(ranks[stage], 0.0), each["update_seconds"])
        sends = {stage: each["send_seconds"] for stage, each in known.items()}

        def of(action: Action, known: dict[int, dict[str, float]] = known) -> float:
            return known[action.stage][f"{action.kind}_seconds"]

        found[int(str(number))] = predict(from_table(actions), of, sends, updates)
    return found


def _stage_seconds(row: Mapping[str, Any], timed: pd.DataFrame, costs: Sequence[LayerCost]) -> dict[str, float] | None:
    """Seconds of one micro-batch through the stage of `row`; None where no such stage was timed."""
    same = timed[timed["stage"].eq(row["stage"])]
    chosen, scale = _of_layers(same, row), 1.0
    if chosen.empty and costs:
        same = same[same["partition"].eq(row["partition"])]
        if len(same):
            other = same.iloc[0].to_dict()
            chosen, scale = _of_layers(same, other), _sum(costs, row) / _sum(costs, other)
    if chosen.empty:
        return None
    now = chosen[chosen["round"] == row["round"]]
    medians = {name: median_or_nan((now if len(now) else chosen)[name]) for name in _TIMES}
    return medians | {f"{kind}_seconds": medians[f"{kind}_seconds"] * scale for kind in _KINDS}


def _of_layers(timed: pd.DataFrame, row: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the same layers."""
    return timed[timed["first_layer"].eq(row["first_layer"]) & timed["last_layer"].eq(row["last_layer"])]


def _sum(costs: Sequence[LayerCost], row: Mapping[str, Any]) -> float:
    return sum(cost.seconds for cost in costs[int(row["first_layer"]) : int(row["last_layer"]) + 1])


def _against(rows: pd.DataFrame, found: Mapping[int, Prediction]) -> dict[str, Any]:
    """The prediction for each round beside its measurement."""
    ok = rows[rows["status"] == "ok"].set_index("round")["step_seconds"].astype(float)
    predicted = pd.Series({number: each.step_seconds for number, each in found.items()}, dtype=float)
    bubbles = pd.Series({number: each.bubble for number, each in found.items()}, dtype=float)
    ratios = (predicted / ok).dropna()
    ratio = interval_of(ratios) if len(ratios) else None
    return {
        "step_seconds": median_or_nan(ok),
        "predicted_step_seconds": median_or_nan(predicted),
        "predicted_bubble": median_or_nan(bubbles),
        **ratio_columns(ratio, "ratio"),
        "rounds": ratio.rounds if ratio else 0,
        "within": ratio is not None and abs(ratio.value - 1) <= WITHIN,
    }
