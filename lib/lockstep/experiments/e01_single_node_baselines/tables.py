"""Notebook 01's tables: what each ingredient gains, and how close operators come to the machine's roofs.

    ceiling = matrix peak of the cores used / (FLOP per image x baseline's images/s)

is the speedup that a setting would reach if every FLOP ran as fast as our matrix product. Convolutions can be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import of_one_session, undisturbed_by_speed
from lockstep.analysis.published import read_claims
from lockstep.analysis.statistics import (
    BASELINE,
    SESSION,
    Estimate,
    interval_of,
    is_difference,
    per_round,
    ratio_or_reason,
    select,
    sessions_column,
)
from lockstep.analysis.stored import Stored, once
from lockstep.engine.job.strategies import RUNGS
from lockstep.experiments.e01_single_node_baselines.findings_roofs import operators_of, profiled, roof_of
from lockstep.experiments.e01_single_node_baselines.grid import EXPERIMENT

PARTS = ("input_seconds", "forward_seconds", "backward_seconds", "update_seconds")
"""What a step of one worker is made of."""


@once
def ladder_table(records: pd.DataFrame, noise: float | None = None) -> pd.DataFrame:
    """One row per use case and rung: its speedup over the baseline and its gain over the rung before it that ran.

    Columns: use_case, strategy, label, variant, images_per_second (1/s), step_seconds and PARTS (s), epoch_seconds (s,
    derived), speedup, low, high, gain, gain_low, gain_high (dimensionless, 95 % intervals), difference (bool: may the
    gain be called one, beyond `noise` or that of `records`), of_peak (share of the measured matrix peak), ceiling
    (dimensionless), train_loss, rounds, status, reason, and what a figure needs to name the data. Of a rung that was
    measured twice, the gain of the second (variant b) is over the first.
    """
    table: list[dict[str, Any]] = []
    noise = aa_noise(records) if noise is None else noise
    before: dict[str, dict[str, Any]] = {}
    for cell, rows in _rungs(records):
        status, reason = outcome(rows)
        base = {"experiment": EXPERIMENT, "use_case": cell["use_case"], **BASELINE}
        row = {name: cell[name] for name in _NAMED_BY} | {"label": RUNGS[cell["strategy"]].label}
        row |= {name: median_of(rows, name) for name in _MEDIAN_COLUMNS}
        speedup = _ratio(records, cell, base)
        gain = _gain(records, cell, before.get(cell["use_case"]), base)
        row |= _columns(speedup, "speedup", "low", "high") | _columns(gain, "gain", "gain_low", "gain_high")
        row |= {"difference": gain is not None and is_difference(gain, noise)}
        row |= _against_peak(records, cell, base)
        row |= {"rounds": speedup.rounds if speedup else 0, "status": status, "reason": reason}
        table.append(row)
        if status == "ok" and cell["variant"] == "a" and cell["device"] == "cpu":
            before[cell["use_case"]] = cell
    return pd.DataFrame(table)


def _gain(
    records: pd.DataFrame, cell: dict[str, Any], below: dict[str, Any] | None, base: dict[str, Any]
) -> Estimate | None:
    """Over the rung below, which stood beside it; if that one did not run, over the one below it by their speedups."""
    if cell["variant"] == "b":
        return _ratio(records, cell, {**cell, "variant": "a"})
    # A GPU is no ingredient: it replaces the CPU, so it is not compared with the rung below it.
    if below is None or cell["device"] != "cpu":
        return None
    direct = _ratio(records, cell, below)
    speedups = [_ratio(records, each, base) for each in (cell, below)]
    return direct or (speedups[0].over(speedups[1]) if speedups[0] and speedups[1] else None)


def _rungs(records: pd.DataFrame) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """The cells of all ladders from the bottom up; records have them in the order in which they were measured."""
    found = cells(records, EXPERIMENT)
    names, use_cases = list(RUNGS), list(dict.fromkeys(cell["use_case"] for cell, _ in found))

    def place(cell: dict[str, Any]) -> tuple[int, int, str]:
        return use_cases.index(cell["use_case"]), names.index(cell["strategy"]), cell["variant"]

    return sorted(found, key=lambda each: place(each[0]))


_NAMED_BY = (
    "use_case", "strategy", "variant", "device", "precision", "workers", "threads_per_worker", "environment",
    "optimiser", "memory_format", "copies", "global_batch_size", "data_source", "input",
)  # fmt: skip
_MEDIAN_COLUMNS = ("images_per_second", "step_seconds", *PARTS, "epoch_seconds", "train_loss")


def _ratio(records: pd.DataFrame, above: dict[str, Any], below: dict[str, Any]) -> Estimate | None:
    return ratio_or_reason(records, above, below, "images_per_second")[0]


def _columns(ratio: Estimate | None, *names: str) -> dict[str, Any]:
    values = ratio.columns if ratio else (np.nan,) * 3
    return dict(zip(names, values, strict=True)) | sessions_column(ratio, names[0])


def _against_peak(records: pd.DataFrame, cell: dict[str, Any], base: dict[str, Any]) -> dict[str, float]:
    """Share of the matrix peak of the cell's own cores and precision, and the ceiling that this peak sets: NaN where no
    session measured both sides."""
    flops = flops_of_use_case(records, cell["use_case"]) or np.nan
    peak = _by_session(records, roof_of(cell), "flops_per_second")
    ours, theirs = (_by_session(records, side, "images_per_second") for side in (cell, base))
    return {"of_peak": float(np.exp((ours - peak).mean())) * flops,
            "ceiling": float(np.exp((peak - theirs).mean())) / flops}  # fmt: skip


def _by_session(records: pd.DataFrame, conditions: dict[str, Any], measure: str) -> pd.Series:
    """The mean logarithm over the rounds of each session: pooled over several machines, a rate is none of theirs."""
    return np.log(per_round(records, conditions, measure)).groupby(level=SESSION).mean()


def flops_of_use_case(records: pd.DataFrame, use_case: str) -> float | None:
    """Counted FLOP of a forward and a backward pass for one image; None where no profile was recorded."""
    found = select(records, {"experiment": "profile", "use_case": use_case})["flops_per_image"].dropna()
    return None if found.empty else float(found.iloc[0])


def roof_table(records: pd.DataFrame) -> pd.DataFrame:
    """The machine's measured roofs: strategy, precision, device, cores, flops_per_second (1/s) and
    bandwidth_bytes_per_second (B/s), each the mean over rounds with its interval, ridge (FLOP per byte), status,
    reason.
    """
    table = []
    found = cells(records, "machine")
    for cell, rows in sorted(found, key=lambda each: (each[0]["device"], each[0]["precision"] != "float32",
                                                      each[0]["threads_per_worker"])):  # fmt: skip
        status, reason = outcome(rows)
        row = {name: cell[name] for name in ("strategy", "precision", "device")}
        row |= {"cores": cell["threads_per_worker"]}
        for name, short in (("flops_per_second", "flops"), ("bandwidth_bytes_per_second", "bandwidth")):
            found = per_round(records, cell, name)
            row |= _columns(interval_of(found) if len(found) else None, name, f"{short}_low", f"{short}_high")
        row |= {"ridge": row["flops_per_second"] / row["bandwidth_bytes_per_second"]}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


def decode_table(records: pd.DataFrame) -> pd.DataFrame:
    """Photos that one core decodes per second, with its interval, and how many cores' training that feeds."""
    table = []
    for cell, rows in cells(records, "decode"):
        status, reason = outcome(rows)
        found = per_round(records, cell, "images_per_second")
        row = {"use_case": cell["use_case"], "data_source": cell["data_source"]}
        row |= _columns(interval_of(found) if len(found) else None, "photos_per_second", "low", "high")
        base = {"experiment": EXPERIMENT, "use_case": cell["use_case"], **BASELINE}
        fed = _ratio(records, cell, base)
        row |= {"cores_fed": fed.value if fed else np.nan}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


# What the notebook shows of them


def roofs_of(stored: Stored) -> pd.DataFrame:
    """`roof_table` of the session whose profiles are shown, which the column `processor` names."""
    one, where = profiled(stored)
    return roof_table(one.records).assign(processor=where)


@once
def drawn_ladder(stored: Stored) -> pd.DataFrame:
    """The ladder as it is shown: where several kinds of processors multiplied bfloat16, a row for each of them, also of
    a rung that stood beside the next one alone, whose gain is over it."""
    table, rungs = ladder_table(stored.records), stored.of(EXPERIMENT)
    own = rungs[(rungs["precision"] == "bfloat16") & (rungs["status"] == "ok")]
    if len(kinds := undisturbed_by_speed(stored, own)) < 2:
        return table
    parts = [table[(table["precision"] != "bfloat16") | (table["status"] != "ok")].assign(processor="all")]
    for name, records in kinds.items():
        each = ladder_table(records, aa_noise(stored.records))
        each = each[(each["precision"] == "bfloat16") & (each["status"] == "ok")]
        parts.append(each.assign(label=each["label"] + f", {name}", processor=name))
    return pd.concat(parts, ignore_index=True)


def _claims(stored: Stored) -> pd.DataFrame:
    claims = read_claims()
    own = claims[claims["notebook"] == "01_single_node_baselines"]
    return own[["place", "statement", "note"]]


def _ladder(stored: Stored) -> pd.DataFrame:
    cell = ["use_case", "strategy", "processor", "variant", "global_batch_size"]
    ratios = ["speedup", "low", "high", "ceiling", "gain", "gain_low", "gain_high", "difference"]
    columns = [*cell, *ratios, "images_per_second", "status", "reason"]
    return drawn_ladder(stored).reindex(columns=columns).round(3)


def _steps(stored: Stored) -> pd.DataFrame:
    table = drawn_ladder(of_one_session(stored, EXPERIMENT)[0])  # seconds of several machines are of none
    ok = table[table["status"] == "ok"] if len(table) else table
    columns = ["use_case", "strategy", "processor", "variant", "step_seconds", *PARTS, "epoch_seconds", "of_peak"]
    return ok.reindex(columns=columns).round(3)


def _roofs(stored: Stored) -> pd.DataFrame:
    table = roofs_of(stored)
    if len(table):
        table["GFLOP_per_s"] = table["flops_per_second"] / 1e9
        table["GB_per_s"] = table["bandwidth_bytes_per_second"] / 1e9
    columns = ["processor", "precision", "cores", "GFLOP_per_s", "GB_per_s", "ridge", "status", "reason"]
    return table.reindex(columns=columns).round(1)


def _operators(stored: Stored) -> pd.DataFrame:
    cell = ["processor", "use_case", "strategy", "precision", "operators"]
    columns = [*cell, "seconds", "share", "of_peak", "of_bandwidth", "intensity"]
    return operators_of(stored).reindex(columns=columns).round(3)


def _losses(stored: Stored) -> pd.DataFrame:
    """How far each rung's loss is from the baseline's, as a share of it: a row per rung, a column per use case."""
    table = ladder_table(stored.records)
    if table.empty:
        return table
    baseline = table[table["strategy"] == BASELINE["strategy"]].set_index("use_case")["train_loss"]
    distance = (table["train_loss"] / table["use_case"].map(baseline) - 1).abs()
    distances = table.assign(distance=distance).pivot_table(
        index="strategy", columns="use_case", values="distance", sort=False
    )
    return distances.map("{:.1e}".format)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "claims": _claims,
    "ladder": _ladder,
    "steps": _steps,
    "roofs": _roofs,
    "operators": _operators,
    "decoding": lambda stored: decode_table(stored.records).round(2),
    "losses": _losses,
}
