"""Tables of training on Spark, from records and the traced table `spark` alone: where a step's time goes, what Spark
costs without training, and what more data do to it.

    a step of SparkNet   | broadcast | fetch | read | input | compute | update | exchange |
                           driver      executors: the slowest partition          schedule, add up, collect
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import table_of_one_session
from lockstep.analysis.statistics import (
    BASELINE,
    Conditions,
    Estimate,
    is_difference,
    median_or_nan,
    ratio_by_way_of,
    ratio_or_reason,
    select,
)
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import PHASES, SHOWN, distributed_speedup_table, ratio_columns, start_table
from lockstep.experiments.e06_spark_distribution.without_training import (
    DATA,
    PAPER_STYLE,
    SPEEDUP,
    interval_over_rounds,
    named,
    overhead_table,
    preparation_table,
)

PAIRED = "spark_allreduce"
"""The strategy on Spark that stands twice (variants a and b)."""
BESIDE = "mpi_allreduce"
"""What barrier mode stands beside: the same training on the same cores, started by MPI."""
PARTS: tuple[str, ...] = ("read_seconds", "input_seconds", "compute_seconds", "update_seconds")
PARTS += ("wait_seconds", "broadcast_seconds", "fetch_seconds", "exchange_seconds")
"""Of a step, in seconds: computing and what feeds it, then what it takes to agree."""
AGREEING = PARTS[4:]
_OF_SPARK: tuple[str, ...] = ("experiment", "use_case", "strategy", "workers", "device", "variant")
_OF_SPARK += ("images", "global_batch_size", "exchange_every", "executor_data")
_VARIANT = ("exchange_every", "executor_data")
_STRATEGY = ("experiment", "use_case", "strategy")
_RATE = "images_per_second"
_PART_OF_COLUMN = {
    "read_seconds": "read_seconds",
    "broadcast_seconds": "broadcast_seconds",
    "state_seconds": "fetch_seconds",
}
"""Columns of the table `spark` -> parts of a step that records do not tell apart."""


@once
def variant_table(records: pd.DataFrame) -> pd.DataFrame:
    """`distributed_speedup_table` of SPEEDUP with what tells variants of SparkNet apart (exchange_every, which is tau;
    executor_data), peak_pss_bytes of all processes together (Spark's JVMs count, too), and `over_fewest`: images/s over
    the same variant's with the fewest workers, both over sequential training, with over_fewest_low and
    over_fewest_high. What stood beside BESIDE, and beside sequential training in too few rounds, has its speedup from
    the two ratios.
    """
    table = distributed_speedup_table(records, SPEEDUP)
    if table.empty:
        return table
    found = cells(records, SPEEDUP)
    for index, (cell, _) in enumerate(found):
        few = math.isnan(table.loc[index, "low"]) and cell["variant"] == "a"
        if few and (ratio := speedup_of(records, cell)) is not None:
            values = {**ratio_columns(ratio), "rounds": ratio.rounds, "base": BASELINE["strategy"]}
            values |= {"reason": ""} if math.isnan(table.loc[index, "speedup"]) else {}
            table.loc[index, list(values)] = list(values.values())
    for name in _VARIANT:
        table[name] = [cell[name] for cell, _ in found]
    table["peak_pss_bytes"] = [median_of(rows, "peak_pss_bytes") for _, rows in found]
    more = [named(_over_fewest(records, cell), "over_fewest") for cell, _ in found]
    return table.join(pd.DataFrame(more, index=table.index))


def speedup_of(records: pd.DataFrame, cell: Mapping[str, Any]) -> Estimate | None:
    """Images/s over sequential training: of rounds that hold both; where these are too few for an interval, of those in
    which either stood beside BESIDE, of barrier mode always. None where neither was measured."""
    same = {name: cell[name] for name in ("experiment", "use_case", "device")}
    link = {**same, "strategy": BESIDE, "variant": "a", "workers": cell["workers"]}
    by_link = cell["strategy"].startswith("spark_")
    return ratio_by_way_of(records, (cell, {**same, **BASELINE}), link, _RATE, by_link)


def _over_fewest(records: pd.DataFrame, cell: dict[str, Any]) -> Estimate | None:
    """None for what has the fewest workers itself, of an A/A pair the second, and where one was not measured."""
    if cell["variant"] != "a":
        return None
    names = ("experiment", "use_case", "strategy", "device", "exchange_every")
    same = {name: cell[name] for name in names} | {"variant": "a"}
    fewest = int(select(records, same, status=None)["workers"].min())
    if fewest == cell["workers"]:
        return None
    ratios = [speedup_of(records, side) for side in (cell, same | {"workers": fewest})]
    return ratios[0].over(ratios[1]) if ratios[0] is not None and ratios[1] is not None else None


def parts_table(records: pd.DataFrame, spark: pd.DataFrame | None = None) -> pd.DataFrame:
    """Where a step's time goes in SPEEDUP: medians over rounds, in seconds per step; of each use case sequential
    training, and every variant with the most workers.

    Of SparkNet, `input_seconds` and `exchange_seconds` of the records are split with the table `spark`: `read` is until
    all records of a partition had come, `broadcast` until the driver had handed the parameters to Spark, `fetch` until
    an executor had them; what is left of `exchange` is scheduling, adding up, and what executors wait for each other.
    Without that table, and of all others, these three are NaN, and nothing is split. Of MPI and barrier mode each part
    is that of its slowest rank, so their sum may exceed the step. `agreeing`: share of the step in AGREEING.
    """
    table = []
    for cell, rows in with_most_workers(cells(records, SPEEDUP)):
        status, reason = outcome(rows)
        rounds = parts_by_round(cell, rows, spark)
        row: dict[str, Any] = {name: cell[name] for name in (*SHOWN, *_VARIANT)}
        row |= {name: median_or_nan(rounds[name]) for name in (*PARTS, "step_seconds")}
        table.append(row | {"agreeing": median_or_nan(rounds["agreeing"]), "status": status, "reason": reason})
    return pd.DataFrame(table)


def parts_by_round(cell: dict[str, Any], rows: pd.DataFrame, spark: pd.DataFrame | None) -> pd.DataFrame:
    """PARTS, step_seconds and the share `agreeing` of a cell by round, as `parts_table` has them."""
    rounds = _per_round(rows[rows["status"] == "ok"], _windows(spark, cell))
    return rounds.assign(agreeing=rounds[list(AGREEING)].sum(axis=1) / rounds["step_seconds"])


def with_most_workers(found: list[tuple[dict[str, Any], pd.DataFrame]]) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Sequential training and the cells of as many workers as the use case has at most; of A/A pairs the first."""
    most: dict[str, int] = {}
    for cell, _ in found:
        most[cell["use_case"]] = max(most.get(cell["use_case"], 1), int(cell["workers"]))
    return [
        (cell, rows)
        for cell, rows in found
        if cell["variant"] == "a" and (cell["strategy"] == "sequential" or cell["workers"] == most[cell["use_case"]])
    ]


def _windows(spark: pd.DataFrame | None, cell: dict[str, Any]) -> pd.DataFrame:
    """What the table `spark` tells of a cell: seconds per step by round, each window's of its slowest partition."""
    parts = list(_PART_OF_COLUMN.values())
    if spark is None or spark.empty:
        return pd.DataFrame(columns=parts, dtype=float)
    own = select(spark, {name: cell[name] for name in _OF_SPARK}, status=None).reset_index(drop=True)
    if own.empty:
        return pd.DataFrame(columns=parts, dtype=float)
    slowest = own.loc[own.groupby(["round", "window"])["task_seconds"].idxmax()]
    seconds = slowest[list(_PART_OF_COLUMN)].astype(float).div(slowest["steps"], axis=0).rename(columns=_PART_OF_COLUMN)
    return seconds.groupby(slowest["round"]).mean()


def _per_round(rows: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """PARTS and step_seconds by round."""
    found = rows.groupby("round")[[*PHASES, "step_seconds"]].median().astype(float)
    found = found.join(windows.reindex(found.index))
    split = windows.reindex(found.index).fillna(0.0)
    found["input_seconds"] -= split["read_seconds"]
    found["exchange_seconds"] -= split["broadcast_seconds"] + split["fetch_seconds"]
    return found


UNEVEN = "not compared: fewer images than its steps take, so the last batch is smaller"


def data_table(records: pd.DataFrame) -> pd.DataFrame:
    """Images/s against the number of images that are trained on (experiment DATA), mean and 95 % interval.

    `times_smallest`: over the same strategy's with the fewest images (`times_fewest`), with times_smallest_low and
    times_smallest_high; `difference`: may that be called one. A row per strategy and number of images: sizes that the
    data set did not have became its own size, and are one row.
    """
    table, noise = [], aa_noise(records)
    for _, own in records[records["experiment"] == DATA].groupby(["use_case", "strategy"], sort=False):
        for cell, rows in sorted(cells(own), key=lambda each: each[0]["images"]):
            status, reason = outcome(rows)
            reason = UNEVEN if status == "ok" and uneven(rows).all() else reason
            row: dict[str, Any] = {name: cell[name] for name in ("use_case", "strategy", "workers")}
            row |= {"images": int(cell["images"])} | {name: cell[name] for name in ("global_batch_size", "data_source")}
            row |= ratio_columns(interval_over_rounds(rows, _RATE), _RATE)
            times = times_fewest(records, {name: cell[name] for name in _STRATEGY}, row["images"])
            row |= named(times, "times_smallest") | {"difference": times is not None and is_difference(times, noise)}
            row |= {name: median_of(rows, name) for name in ("step_seconds", "input_seconds", "epoch_seconds")}
            table.append(row | {"rounds": times.rounds if times else 0, "status": status, "reason": reason})
    return pd.DataFrame(table)


def whole_batches(records: pd.DataFrame) -> pd.DataFrame:
    """Without DATA's rows of sets smaller than their steps, which end with a smaller batch, and that is slower whatever
    the size of the set; of a size that stood twice in a round the first."""
    twice = records.duplicated([*_STRATEGY, "images", "round", "status"])
    return records[(records["experiment"] != DATA) | ~(uneven(records) | twice)]


def uneven(rows: pd.DataFrame) -> pd.Series:
    """Did a row's steps take more images than its set holds?"""
    return rows["images"] < rows["global_batch_size"] * (rows["warmup_steps"] + rows["steps"])


def times_fewest(records: pd.DataFrame, ours: Conditions, images: int) -> Estimate | None:
    """Images/s of a strategy of DATA with so many images over those with the fewest, paired per round
    (`whole_batches`); None where no round holds both."""
    kept = whole_batches(records)
    fewest = select(kept, ours)["images"].min()
    return ratio_or_reason(kept, {**ours, "images": images}, {**ours, "images": fewest}, _RATE)[0]


def shown_traces(resources: pd.DataFrame) -> pd.DataFrame:
    """Of the table `resources` the paper's way with the most workers: others would be drawn over them."""
    if resources.empty:
        return resources
    own = resources[(resources["experiment"] == SPEEDUP) & (resources["strategy"] == PAPER_STYLE)]
    return own[own["workers"] == own["workers"].max()]


# What the notebook shows of them


def _speedup(stored: Stored) -> pd.DataFrame:
    table = variant_table(stored.records)
    if len(table):
        table["peak_GiB"] = table["peak_pss_bytes"] / 2**30
    cell = ["use_case", "strategy", "variant", "workers", "exchange_every", "global_batch_size"]
    ratios = ["speedup", "low", "high", "over_fewest", "over_fewest_low", "over_fewest_high"]
    measured = ["images_per_second", "step_seconds", "peak_GiB", "status", "reason"]
    return table.reindex(columns=[*cell, *ratios, *measured]).round(3)


def _parts(stored: Stored) -> pd.DataFrame:
    columns = ["use_case", "strategy", "workers", "exchange_every", "step_seconds", *PARTS, "agreeing"]
    table = parts_table(stored.records, stored.table("spark"))
    return table.reindex(columns=[*columns, "status", "reason"]).round(3).rename(columns={"agreeing": "exchange_share"})


def _overhead(stored: Stored) -> pd.DataFrame:
    cell = ["strategy", "workers", "message_bytes"]
    measured = ["seconds", "low", "high", "of_step", "of_step_low", "of_step_high", "status", "reason"]
    return overhead_table(stored.records).reindex(columns=[*cell, *measured]).round(4)


def _data(stored: Stored) -> pd.DataFrame:
    rate = ["images_per_second", "low", "high", "step_seconds", "input_seconds"]
    times = ["times_smallest", "times_smallest_low", "times_smallest_high", "difference"]
    columns = ["strategy", "images", *rate, *times, "status", "reason"]
    return data_table(stored.records).reindex(columns=columns).round(3)


def _preparation(stored: Stored) -> pd.DataFrame:
    cell = ["strategy", "workers", "images"]
    measured = ["images_per_second", "low", "high", "rounds", "status", "reason"]
    return preparation_table(stored.records).reindex(columns=[*cell, *measured]).round(1)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "speedup": _speedup,
    "parts": table_of_one_session(SPEEDUP, _parts, with_most_workers, PAPER_STYLE),
    "starts": lambda stored: start_table(stored.records).round(1),
    "overhead": _overhead,
    "data": _data,
    "preparation": _preparation,
}
