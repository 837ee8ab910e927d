"""What we aim at in notebook 02: several workers on one machine."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.statistics import AnalysisError, Estimate
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import Read, Reading, Target, compared, lacking
from lockstep.experiments.e02_threads_vs_processes.tables import input_table

_TABLE1 = {"experiment": "table1", "use_case": "SimpleBig", "variant": "a", "device": "cpu"}


def _table1(above: str, below: str, precision: str = "float32") -> Read:
    sides = [{"strategy": name, "precision": precision} for name in (above, below)]
    return compared(sides[0], sides[1], shared=_TABLE1)


def _of_bound(stored: Stored) -> Reading:
    """JPEG input over the bound of `input_table`, in the worst cell where no core is free for decoding."""
    rows = stored.records[(stored.records["experiment"] == "input") & (stored.records["use_case"] == "SimpleBig")]
    try:
        table = input_table(rows)
    except AnalysisError:
        table = pd.DataFrame()
    busy = table[table["of_bound"].notna()] if len(table) else table
    if busy.empty:
        rows = rows[rows["threads_per_worker"] >= rows["cores_per_worker"]]
        return lacking([rows], "no round holds JPEG and memory")
    worst = busy.sort_values("of_bound").iloc[0]
    return Reading(Estimate(worst["of_bound"], worst["of_bound_low"], worst["of_bound_high"], int(worst["rounds"])))


_FREE_CORE: dict[str, Any] = {"experiment": "input", "use_case": "SimpleBig"}
_FREE_CORE |= {"cores_per_worker": 2, "threads_per_worker": 1}

TARGETS: tuple[Target, ...] = (
    Target("processes over the sequential baseline", 1.85, _table1("processes", "sequential")),
    Target("threads over the sequential baseline", 1.60, _table1("threads", "sequential")),
    Target("threads inside operators over the sequential baseline", 1.85, _table1("intra_op", "sequential")),
    Target("shared memory over DDP, float32", 1.10, _table1("processes", "ddp")),
    Target("shared memory over DDP, bfloat16", 1.18, _table1("processes", "ddp", "bfloat16")),
    Target(
        "reduce + update: gloo's seconds over shared memory's",
        4.0,
        compared(
            {"strategy": "processes_allreduce", "precision": "float32"},
            {"strategy": "processes", "precision": "float32"},
            "step_seconds",
            {"experiment": "exchange", "use_case": "SimpleBig"},
        ),
    ),
    Target(
        "JPEG over tensors in memory, a core free for decoding",
        0.95,
        compared({"input": "jpeg"}, {"input": "memory"}, shared=_FREE_CORE),
    ),
    Target("JPEG over 1 / (compute + decode), all cores busy", 0.95, _of_bound),
)
