"""Speedups of models in stages, with the share of time that ranks wait: shared by notebooks 03 and 04."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, median_of
from lockstep.analysis.statistics import BASELINE, Conditions, interval_of
from lockstep.analysis.tables import PHASES, summary_table
from lockstep.predict.pipeline_model import ideal_bubble

NAIVE: Conditions = {"strategy": "naive_pipeline", "variant": "a"}
"""Model parallelism without micro-batches: one stage works at a time."""

OPTIONS = ("model_parallel", "schedule", "stages", "stages_per_rank", "micro_batches", "partition", "activations")

_MEASURED = ("idle_seconds", *PHASES, "peak_pss_bytes")


def pipeline_speedup_table(records: pd.DataFrame, experiment: str, base: Conditions = BASELINE) -> pd.DataFrame:
    """`summary_table` with how the model is split, and how long a pipeline's ranks wait.

    Added columns: OPTIONS, pipeline_ranks, replicas, idle_seconds and each phase (medians, s), peak_pss_bytes, bubble
    with bubble_low and bubble_high (idle time / (ranks x step time), paired per round), ideal_bubble (see
    `ideal_bubble_of`). The last four are NaN for rows that are not a pipeline.
    """
    table = summary_table(records, experiment, base)
    if table.empty:
        return table
    found = cells(records, experiment)
    for name in OPTIONS:
        table[name] = [cell[name] for cell, _ in found]
    for name in _MEASURED:
        table[name] = [median_of(rows, name) for _, rows in found]
    table["pipeline_ranks"] = table["stages"] // table["stages_per_rank"]
    table["replicas"] = table["workers"] // table["pipeline_ranks"]
    bubbles = [_bubble(rows) for _, rows in found]
    for name in ("bubble", "bubble_low", "bubble_high"):
        table[name] = [each[name] for each in bubbles]
    table["ideal_bubble"] = [ideal_bubble_of(cell) for cell, _ in found]
    # The second half of an A/A pair stands beside the first one; beside the base it need not stand.
    again = (table["variant"] == "b") & (table["status"] == "ok") & table["speedup"].isna()
    return table[~again].reset_index(drop=True)


def _bubble(rows: pd.DataFrame) -> dict[str, float]:
    ok = rows[(rows["status"] == "ok") & rows["idle_seconds"].notna()]
    found = interval_of(ok["idle_seconds"] / ok["step_seconds"]) if len(ok) else None
    values = found.columns if found else (np.nan,) * 3
    return dict(zip(("bubble", "bubble_low", "bubble_high"), values, strict=True))


def ideal_bubble_of(cell: Mapping[str, Any]) -> float:
    """(S-1)/(M+S-1) of S ranks and M micro-batches. With v stages on each rank a stage takes a v-th of the time, so M
    counts v times (Narayanan et al. 2021, section 2.2.2). NaN for what is no pipeline, and where the backward pass is
    split (zero bubble), which has no such formula."""
    if cell["schedule"] not in ("naive", "gpipe", "1f1b", "interleaved_1f1b"):
        return float("nan")
    ranks = cell["stages"] // cell["stages_per_rank"]
    return ideal_bubble(ranks, cell["micro_batches"] * cell["stages_per_rank"])
