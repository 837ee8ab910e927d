"""What Lockstep sets out to reach, from records paired per round; the bars of our own house, not a paper's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lockstep.analysis import (
    MIN_ROUNDS,
    AnalysisError,
    Ratio,
    best_strategy,
    interval_of,
    per_round,
    ratio_with_interval,
    select,
)
from lockstep.summaries import input_table, outcome
from lockstep.verdicts import NOT_MEASURABLE, NOT_YET

_TABLE1 = {"experiment": "table1", "use_case": "SimpleBig", "variant": "a", "device": "cpu"}
TOO_FEW = "too few rounds"
BEST = "best"
"""As a numerator's strategy: the one with the highest median, among those that ran."""


@dataclass(frozen=True)
class Target:
    """numerator / denominator of `measure`, which should be at least `bar`; without a denominator `measure` itself."""

    name: str
    bar: float
    numerator: dict[str, Any]
    denominator: dict[str, Any] | None
    measure: str = "images_per_second"
    shared: dict[str, Any] = field(default_factory=lambda: dict(_TABLE1))


def _strategy(name: str, precision: str = "float32") -> dict[str, Any]:
    return {"strategy": name, "precision": precision}


def _best_setting(use_case: str, bar: float, precision: list[str]) -> Target:
    shared = {"experiment": "ladder", "use_case": use_case, "variant": "a", "device": "cpu"}
    name = f"{use_case}: best setting over the sequential baseline" + (", in bfloat16" if len(precision) == 1 else "")
    return Target(name, bar, {"strategy": BEST, "precision": precision}, {"strategy": "sequential"}, shared=shared)


def _of_peak(precision: str, strategy: str) -> Target:
    return Target(
        f"VGG16's convolutions over the measured {precision} matrix peak",
        0.45,
        {"experiment": "profile", "use_case": "ComplexSmall", "strategy": strategy},
        {"experiment": "machine", "strategy": "roof"},
        "flops_per_second",
        {"precision": precision, "device": "cpu"},
    )


TARGETS: dict[str, tuple[Target, ...]] = {
    "01_single_node_baselines": (
        _best_setting("ComplexSmall", 5.0, ["bfloat16"]),
        _best_setting("SimpleBig", 4.0, ["bfloat16", "float32"]),
        _of_peak("bfloat16", "copies"),
        _of_peak("float32", "channels_last"),
        Target(
            "photos decoded per second and core",
            350.0,
            {"experiment": "decode", "use_case": "SimpleBig"},
            None,
            shared={},
        ),
    ),
    "02_threads_vs_processes": (
        Target("processes over the sequential baseline", 1.85, _strategy("processes"), _strategy("sequential")),
        Target("threads over the sequential baseline", 1.60, _strategy("threads"), _strategy("sequential")),
        Target("shared memory over DDP, float32", 1.10, _strategy("processes"), _strategy("ddp")),
        Target(
            "shared memory over DDP, bfloat16", 1.18, _strategy("processes", "bfloat16"), _strategy("ddp", "bfloat16")
        ),
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
    ),
}


def target_table(records: pd.DataFrame, notebook: str) -> pd.DataFrame:
    """One row per target of a notebook: its bar, the measured ratio with its 95 % interval, and whether the median
    reaches it: yes, no, or TOO_FEW.

    A target whose cells were skipped is NOT_MEASURABLE, one whose cells failed or are missing NOT_YET; both say why
    instead of a number. Raises KeyError for a notebook without targets.
    """
    rows = [_row(target.name, target.bar, *_measure(records, target)) for target in TARGETS[notebook]]
    if notebook == "02_threads_vs_processes":
        rows.append(_bound_row(records))
    return pd.DataFrame(rows)


def _measure(records: pd.DataFrame, target: Target) -> tuple[Ratio | None, str, str]:
    """The ratio, or None and in its place a word and a reason."""
    above = target.shared | target.numerator
    below = None if target.denominator is None else target.shared | target.denominator
    if above.get("strategy") == BEST:
        rest = {name: value for name, value in above.items() if name != "strategy"}
        best = best_strategy(records, rest)
        above = rest if best is None else {**rest, "strategy": best}
    try:
        if below is None:
            values = per_round(records, above, target.measure)
            if values.empty:
                raise AnalysisError("no ok row")
            return interval_of(values), "", ""
        return ratio_with_interval(records, above, below, target.measure), "", ""
    except AnalysisError as error:
        sides = [select(records, side, status=None) for side in (above, below) if side is not None]
        return None, *_why_not(sides, str(error))


def _why_not(sides: list[pd.DataFrame], otherwise: str) -> tuple[str, str]:
    """The word and the reason for a target without a number, from the rows that each of its sides has."""
    # Of what did not run only: an ok row's remark explains nothing.
    lacking = [outcome(rows) if len(rows) else ("missing", "") for rows in sides if not (rows["status"] == "ok").any()]
    reasons = dict(reversed(lacking))  # of several with the same status, the first one's
    if "skipped" in reasons:
        return NOT_MEASURABLE, reasons["skipped"]
    if "failed" in reasons:
        return NOT_YET, reasons["failed"]
    return NOT_YET, "not in these records" if lacking else otherwise


def _bound_row(records: pd.DataFrame) -> dict[str, Any]:
    name = "JPEG over 1 / (compute + decode), all cores busy"
    rows = records[(records["experiment"] == "input") & (records["use_case"] == "SimpleBig")]
    try:
        table = input_table(rows)
    except AnalysisError:
        table = pd.DataFrame()
    busy = table[table["of_bound"].notna()] if len(table) else table
    if busy.empty:
        rows = rows[rows["threads_per_worker"] >= rows["cores_per_worker"]]
        return _row(name, 0.95, None, *_why_not([rows], "no round holds JPEG and memory"))
    worst = busy.sort_values("of_bound").iloc[0]
    ratio = Ratio(worst["of_bound"], worst["of_bound_low"], worst["of_bound_high"], int(worst["rounds"]))
    return _row(name, 0.95, ratio)


def _row(name: str, bar: float, ratio: Ratio | None, reached: str = "", reason: str = "") -> dict[str, Any]:
    if ratio is not None and ratio.rounds < MIN_ROUNDS:
        reached, reason = TOO_FEW, f"{ratio.rounds} of at least {MIN_ROUNDS}"
    elif ratio is not None:
        reached = "yes" if ratio.median >= bar else "no"
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
