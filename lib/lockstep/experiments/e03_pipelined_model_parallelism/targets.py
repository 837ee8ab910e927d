"""What we aim at in notebook 03: pipelines of two stages on two cores."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate, highest
from lockstep.analysis.statistics import each_strategy, highest_ratio, interval_of, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_MOST, MISSING, WITHIN, Reading, Target, lacking
from lockstep.analysis.verdicts import NOT_YET
from lockstep.experiments.e03_pipelined_model_parallelism.forecasts import cut_table, predictions_of
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import (
    STAGE_MEMORY,
    TABLE_CELL,
    of_ideal,
    rank_memory_table,
)
from lockstep.predict.pipeline_speedups import NAIVE, OPTIONS

PIPELINED = ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v")
_WITH_FORMULA = list(PIPELINED[:3])  # (S-1)/(M+S-1) speaks of whole backward passes
_SPEEDUP: dict[str, Any] = {"experiment": "speedup", "use_case": "SimpleBig", "variant": "a", "device": "cpu"}


def _over_naive(stored: Stored) -> Reading:
    """The fastest schedule's images/s over naive model parallelism's."""
    naive, shared = {**_SPEEDUP, **NAIVE}, _SPEEDUP | {"strategy": list(PIPELINED)}
    own = each_strategy(stored.records, shared)
    try:
        ratio, place = highest_ratio(stored.records, own, naive, "images_per_second")
    except AnalysisError as error:
        return lacking([select(stored.records, each, status=None) for each in (shared, naive)], str(error))
    return Reading(ratio, reason=_description_of(stored.records, own[place], "fastest", len(own)))


def _description_of(records: pd.DataFrame, best: dict[str, Any], word: str, count: int) -> str:
    among = f"the {word} of {count} schedules: " if count > 1 else ""
    row = select(records, best).iloc[0]
    images = f"images decoded {'meanwhile' if row['input'] == 'jpeg' else 'beforehand'}"
    return f"{among}{row['strategy']}, {row['micro_batches']} micro-batches, batch {row['global_batch_size']}, {images}"


def _of_ideal(stored: Stored) -> Reading:
    """The speedup over the ideal one of the schedule that comes nearest to it, of those for which (S-1)/(M+S-1) holds;
    the interval pays for that choice."""
    naive, shared = {**_SPEEDUP, **NAIVE}, _SPEEDUP | {"strategy": _WITH_FORMULA}
    own, stages = each_strategy(stored.records, shared), stored.table("stages")
    sides = [select(stored.records, each, status=None) for each in (shared, naive)]
    if not own or stages.empty:
        return lacking(sides, "the stages of this run were not stored")
    found = []
    for each in own:
        row = select(stored.records, each).iloc[0]
        cell = each | {name: row[name] for name in (*OPTIONS, "workers", "global_batch_size")}
        try:
            shares = of_ideal(stored.records, stages, cell, naive)
        except AnalysisError as error:
            return lacking(sides, str(error))
        if len(shares):
            found.append((interval_of(shares), each))
    if not found:
        return lacking(sides, "no round holds a pipeline, its stages and naive model parallelism")
    best = max(found, key=lambda one: one[0].value)[1]
    text = _description_of(stored.records, best, "nearest", len(found))
    return Reading(highest([share for share, _ in found]), reason=text)


def _rows_of(records: pd.DataFrame, experiment: str) -> list[pd.DataFrame]:
    return [select(records, {"experiment": experiment, "use_case": "SimpleBig"}, status=None)]


def _worst_prediction(stored: Stored) -> Reading:
    """Predicted over measured step time of the schedule and number of micro-batches that is predicted worst.

    No number while one that ran lacks its prediction: the worst could be that one.
    """
    rows = _rows_of(stored.records, "schedules")
    table = predictions_of(stored)
    judged = select(table, {"experiment": "schedules", "variant": "a"}) if len(table) else table
    if judged.empty:
        return lacking(rows, MISSING)
    missing = judged[judged["ratio"].isna()]
    if len(missing):
        return Reading(None, NOT_YET, f"{_cell(missing.iloc[0])}: {missing.iloc[0]['reason']}")
    worst = judged.loc[(judged["ratio"] - 1).abs().idxmax()]
    count = f"{int(judged['within'].sum())} of {len(judged)} within; the worst: {_cell(worst)}"
    return Reading(_ratio(worst), reason=count)


def _worst_cut(stored: Stored) -> Reading:
    """The slowest stage of a balanced partition over that of the best contiguous split, where it is largest."""
    table = _balanced(stored)
    if table.empty:
        return lacking(_rows_of(stored.records, "schedules"), "no layers or no stages were stored")
    worst = table.loc[table["ratio"].idxmax()]
    return Reading(_ratio(worst), reason=_worst_of(table, worst))


def _over_simple(stored: Stored) -> Reading:
    """The same over the better one of the two simple rules."""
    table = _balanced(stored)
    if table.empty:
        return lacking(_rows_of(stored.records, "schedules"), "no layers or no stages were stored")
    over = table["over_simple"]
    worst = table.loc[over.idxmax()]
    share = worst["over_simple"] / worst["ratio"]  # from "over the best" to "over the simple one", interval and all
    ratio = Estimate(worst["over_simple"], worst["low"] * share, worst["high"] * share, int(worst["rounds"]))
    return Reading(ratio, reason=_worst_of(table, worst))


def _balanced(stored: Stored) -> pd.DataFrame:
    table = cut_table(stored.table("stages"), stored.table("layers"))
    return table[table["partition"] == "balanced"] if len(table) else table


def _worst_of(table: pd.DataFrame, worst: pd.Series) -> str:
    cut = f"{worst['use_case']}, {worst['stages']} stages, micro-batches of {worst['micro_batch_size']}"
    return f"the worst of {len(table)}: {cut}" if len(table) > 1 else cut


def _worst_memory(stored: Stored) -> Reading:
    """Peak bytes of a rank over parameters and activations in flight, where that is largest."""
    table = rank_memory_table(stored.table("stages"))
    known = table[table["ratio"].notna()] if len(table) else table
    if known.empty:
        return lacking(_rows_of(stored.records, STAGE_MEMORY), "no peak memory of a stage was stored")
    worst = known.loc[known["ratio"].idxmax()]
    where = f"the worst of {len(known)}: rank {worst['rank']}, {worst['use_case']}, {_cell(worst)}"
    besides = f"with what a backward pass takes for a moment at most {known['of_all'].max():.2f}"
    return Reading(_ratio(worst), reason=f"{where}; {besides}")


def _cell(row: pd.Series) -> str:
    assert set(TABLE_CELL) <= set(row.index)
    parts = [str(row["strategy"]), f"{row['micro_batches']} micro-batches"]
    if row["stages"] != 2:
        parts.append(f"{row['stages']} stages")
    if row["partition"] != "balanced":
        parts.append(str(row["partition"]))
    if row["activations"] == "recomputed":
        parts.append("recomputed")
    return ", ".join(parts)


def _ratio(row: pd.Series) -> Estimate:
    return Estimate(float(row["ratio"]), float(row["low"]), float(row["high"]), int(row["rounds"]))


TARGETS: tuple[Target, ...] = (
    Target("pipelined over naive model parallelism, 2 stages on 2 cores", 1.50, _over_naive),
    Target("pipelined over the ideal for its bubble and its partition", 0.85, _of_ideal),
    Target(
        "predicted over measured step time, every schedule and number of micro-batches", 0.10, _worst_prediction, WITHIN
    ),
    Target("slowest stage of the balanced partition over the best split", 1.10, _worst_cut, AT_MOST),
    Target("the same over the better of the simple rules", 1.00, _over_simple, AT_MOST),
    Target("peak memory of a stage over its parameters and activations in flight", 1.00, _worst_memory, AT_MOST),
)
