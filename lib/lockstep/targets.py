"""What Lockstep sets out to reach, as ratios of records paired per round; the bars of our own house, not a paper's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lockstep.analysis import AnalysisError, Ratio, ratio_with_interval, select
from lockstep.summaries import input_table, outcome

_TABLE1 = {"experiment": "table1", "use_case": "SimpleBig", "variant": "a", "device": "cpu"}


@dataclass(frozen=True)
class Target:
    """numerator / denominator of `measure`, which should be at least `bar`."""

    name: str
    bar: float
    numerator: dict[str, Any]
    denominator: dict[str, Any]
    measure: str = "images_per_second"
    shared: dict[str, Any] = field(default_factory=lambda: dict(_TABLE1))


def _strategy(name: str, precision: str = "float32") -> dict[str, Any]:
    return {"strategy": name, "precision": precision}


TARGETS = (
    Target("processes over the sequential baseline", 1.85, _strategy("processes"), _strategy("sequential")),
    Target("threads over the sequential baseline", 1.60, _strategy("threads"), _strategy("sequential")),
    Target("shared memory over DDP, float32", 1.10, _strategy("processes"), _strategy("ddp")),
    Target("shared memory over DDP, bfloat16", 1.18, _strategy("processes", "bfloat16"), _strategy("ddp", "bfloat16")),
    Target(
        "reduce + update: gloo's seconds over shared memory's",
        4.0,
        _strategy("processes_allreduce"),
        _strategy("processes"),
        "step_seconds",
        {"experiment": "exchange", "use_case": "SimpleBig"},
    ),
    Target(
        "JPEG over tensors in memory, a core free for decoding",
        0.95,
        {"input": "jpeg"},
        {"input": "memory"},
        shared={"experiment": "input", "use_case": "SimpleBig", "cores_per_worker": 2, "threads_per_worker": 1},
    ),
)


def target_table(records: pd.DataFrame) -> pd.DataFrame:
    """One row per target: its bar, the measured ratio with its 95 % interval, and whether the median reaches it.

    A target whose cells are skipped or missing says why instead of a number.
    """
    rows = [_row(target.name, target.bar, *_measure(records, target)) for target in TARGETS]
    return pd.DataFrame([*rows, _bound_row(records)])


def _measure(records: pd.DataFrame, target: Target) -> tuple[Ratio | None, str]:
    above, below = target.shared | target.numerator, target.shared | target.denominator
    try:
        return ratio_with_interval(records, above, below, target.measure), ""
    except AnalysisError:
        held = pd.concat([select(records, side, status=None) for side in (above, below)])
        # Of what did not run only: an ok row's remark explains nothing.
        reasons = [outcome(rows)[1] for _, rows in held[held["status"] != "ok"].groupby("status")]
        return None, next((reason for reason in reasons if reason), "not in these records")


def _bound_row(records: pd.DataFrame) -> dict[str, Any]:
    name = "JPEG over 1 / (compute + decode), all cores busy"
    try:
        table = input_table(records[records["use_case"] == "SimpleBig"])
    except AnalysisError:
        table = pd.DataFrame()
    busy = table[table["of_bound"].notna()] if len(table) else table
    if busy.empty:
        return _row(name, 0.95, None, "not in these records")
    worst = busy.sort_values("of_bound").iloc[0]
    ratio = Ratio(worst["of_bound"], worst["of_bound_low"], worst["of_bound_high"], int(worst["rounds"]))
    return _row(name, 0.95, ratio, "")


def _row(name: str, bar: float, ratio: Ratio | None, reason: str) -> dict[str, Any]:
    reached = "not measurable here" if ratio is None else ("yes" if ratio.median >= bar else "no")
    return {
        "target": name,
        "bar": bar,
        "ratio": ratio.median if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "rounds": ratio.rounds if ratio else 0,
        "reached": reached,
        "reason": reason,
    }
