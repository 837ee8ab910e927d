"""Notebook 03's tables, as the notebook shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from lockstep.analysis.stored import Stored
from lockstep.experiments.e03_pipelined_model_parallelism.forecasts import partitions_of, predictions_of
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import (
    largest_table,
    rank_memory_table,
    shown_cells,
)
from lockstep.predict.pipeline_speedups import NAIVE, pipeline_speedup_table

_CELL_OF_MEMORY = ("strategy", "stages", "pipeline_ranks", "micro_batches", "activations")


def _speedup(stored: Stored) -> pd.DataFrame:
    cell = ["use_case", "strategy", "variant", "device", "workers", "stages", "micro_batches", "global_batch_size"]
    columns = [*cell, "speedup", "low", "high", "step_seconds", "bubble", "status", "reason"]
    return pipeline_speedup_table(stored.records, "speedup").reindex(columns=columns).round(3)


def _schedules(stored: Stored) -> pd.DataFrame:
    cell = ["strategy", "variant", "stages", "stages_per_rank", "micro_batches"]
    bubbles = ["bubble", "bubble_low", "bubble_high", "ideal_bubble"]
    columns = [*cell, "speedup", "low", "high", "step_seconds", *bubbles, "status", "reason"]
    return pipeline_speedup_table(stored.records, "schedules", NAIVE).reindex(columns=columns).round(3)


def _actions(stored: Stored) -> pd.DataFrame:
    """How often each rank performs each action in the steps of the diagram, and for how many seconds."""
    shown = shown_cells(stored.table("actions"))
    if shown.empty:
        return shown
    return shown.groupby(["strategy", "rank", "action"], sort=False)["seconds"].agg(["count", "sum"]).round(3)


def _predicted(stored: Stored) -> pd.DataFrame:
    cell = ["experiment", "strategy", "micro_batches", "pipeline_ranks", "partition", "activations"]
    seconds = ["step_seconds", "predicted_step_seconds", "predicted_bubble"]
    columns = [*cell, *seconds, "ratio", "low", "high", "within", "status"]
    return predictions_of(stored).reindex(columns=columns).round(3)


def _memory(stored: Stored) -> pd.DataFrame:
    table = rank_memory_table(stored.table("stages"))
    sizes = table.filter(like="_bytes") / 2**20
    sizes.columns = [name.replace("_bytes", "_MiB") for name in sizes.columns]
    columns = [*_CELL_OF_MEMORY, "rank", "share", "in_flight", "ratio", "of_all"]
    return table.reindex(columns=columns).join(sizes).round(2)


def _largest(stored: Stored) -> pd.DataFrame:
    columns = [*_CELL_OF_MEMORY, "one_device_bytes", "largest_rank_bytes", "times", "at_least"]
    return largest_table(stored.table("stages")).reindex(columns=columns).round(2)


def _partition(stored: Stored) -> pd.DataFrame:
    quality = ["first_layers", "slowest_over_best", "step_seconds", "ratio", "low", "high"]
    columns = ["use_case", "partition", "activations", *quality, "rounds", "status", "reason"]
    return partitions_of(stored).reindex(columns=columns).round(3)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "speedup": _speedup,
    "schedules": _schedules,
    "actions": _actions,
    "predicted": _predicted,
    "memory": _memory,
    "largest": _largest,
    "partition": _partition,
}
