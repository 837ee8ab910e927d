"""What notebook 13 shows as tables, and the quantiles and shares that its figures, findings and targets read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.advisor.errors import ANOTHER_BATCH, AS_CALIBRATED, read_errors
from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.noise import IMAGES_PER_SECOND
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.sentences import way_name
from lockstep.analysis.statistics import paired_ratios
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e13_advisor.checking import PARTS, judged, memories, of_one_host, predictions, ranges_at
from lockstep.experiments.e13_advisor.earlier import earlier_speedups
from lockstep.experiments.e13_advisor.errors_file import further_cell
from lockstep.experiments.e13_advisor.picks import picks

NAMES: Mapping[str, str] = {
    "SmallResNet": "a small ResNet",
    "MLPMixer": "an MLP-Mixer",
    "TextLSTM": "an LSTM",
    "TextTransformer": "a transformer",
    "ComplexSmall": "VGG16",
}
"""What sentences and figures call the models."""
NOISE = "what noise allows"
"""The row of the figure of errors that shows `noise_floor`."""
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Shares that ranges should hold, of the calibration curve."""
DRAWS = 2000
_MISS = 0.05


def model_name(use_case: str) -> str:
    return NAMES.get(use_case, use_case)


def quantile_of(errors: pd.Series, part: float) -> Estimate:
    """A quantile over cells, with what it is in 95 % of so many cells drawn anew from these (percentile bootstrap).

    Open for fewer than MIN_ROUNDS cells. Raises AnalysisError for none.
    """
    known = errors.dropna().to_numpy(dtype=float)
    if not len(known):
        raise AnalysisError("no cell was both measured and predicted")
    value = float(np.quantile(known, part))
    if len(known) < MIN_ROUNDS:
        return Estimate(value, -math.inf, math.inf, len(known), logarithmic=False)
    drawn = np.random.default_rng(0).choice(known, (DRAWS, len(known)))
    low, high = np.quantile(np.quantile(drawn, part, axis=1), [_MISS / 2, 1 - _MISS / 2])
    return Estimate(value, min(value, float(low)), max(value, float(high)), len(known), logarithmic=False)


def share_of(held: pd.Series) -> Estimate:
    """A share of cells with its 95 % interval (Clopper and Pearson 1934). Raises AnalysisError for no cell."""
    from scipy.special import betaincinv

    count, hits = len(held), int(held.sum())
    if not count:
        raise AnalysisError("no cell was both measured and predicted")
    low = float(betaincinv(hits, count - hits + 1, _MISS / 2)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - _MISS / 2)) if hits < count else 1.0
    return Estimate(hits / count, low, high, count, logarithmic=False)


@once
def noise_floor(stored: Stored) -> pd.DataFrame:
    """A row per cell that was measured twice in a round: use_case, strategy, workers, apart (|b / a - 1| of its steps'
    mean over rounds), one_round (the median over rounds), log_error (log(b / a) of that mean)."""
    records, table = on_one_processor(stored)[0], []
    again = records[(records["variant"] == "b") & (records["status"] == "ok")]
    for cell, _ in cells(again):
        try:
            ratios = 1 / paired_ratios(records, cell, {**cell, "variant": "a"}, IMAGES_PER_SECOND)
        except AnalysisError:
            continue
        row = {name: cell[name] for name in ("use_case", "strategy", "workers")} | {"rounds": len(ratios)}
        mean = float(np.log(ratios).mean())
        row |= {"apart": abs(math.exp(mean) - 1), "one_round": float((ratios - 1).abs().median())}
        table.append(row | {"log_error": mean})
    return pd.DataFrame(table)


@once
def strips(stored: Stored) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the figure of errors draws: `predictions` and `kinds`, in whose first row the cells of `noise_floor` stand
    beside themselves instead of beside a prediction."""
    table, rows, twice = predictions(stored), kinds(stored), noise_floor(stored)
    if table.empty or twice.empty:
        return table, rows
    first: dict[str, Any] = {"kind": NOISE, "cells": len(twice)}
    if len(twice) > 1:
        first |= dict(zip(("low", "high"), (100 * np.expm1(further_cell(twice["log_error"]))), strict=True))
    marks = pd.concat([table[table["kind"] != AS_CALIBRATED], twice.assign(kind=NOISE)], ignore_index=True)
    return marks, pd.concat([pd.DataFrame([first]), rows[rows["kind"] != AS_CALIBRATED]], ignore_index=True)


@once
def kinds(stored: Stored) -> pd.DataFrame:
    """A row per kind of cell: kind, cells, median, p90 (error in %, with median_low, median_high, p90_low, p90_high),
    bias (% by which measured steps are longer than predicted), low and high (% that a further one stays within)."""
    table = predictions(stored)
    rows: list[dict[str, Any]] = []
    for name, own in table.groupby("kind") if len(table) else ():
        row: dict[str, Any] = {"kind": name, "cells": len(own), "bias": 100 * math.expm1(own["log_error"].mean())}
        for column, part in (("median", 0.5), ("p90", 0.9)):
            found = quantile_of(100 * own["error"], part)
            row |= dict(zip((column, f"{column}_low", f"{column}_high"), found.columns, strict=True))
        if len(own) > 1:
            row |= dict(zip(("low", "high"), (100 * np.expm1(further_cell(own["log_error"]))), strict=True))
        rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.sort_values("kind", key=lambda names: names.map(_place), ignore_index=True) if len(frame) else frame


def _place(kind: str) -> tuple[int, str]:
    order = (AS_CALIBRATED, "one worker", "a core each", "turns", "several hosts")
    return next((place for place, name in enumerate(order) if kind.startswith(name)), len(order)), kind


@once
def coverage(stored: Stored) -> pd.DataFrame:
    """A row per level of LEVELS: level, held (share of held-out cells whose range holds the measured step, with low and
    high), cells. Ranges come from the errors on other models."""
    table = []
    for level in LEVELS:
        found = ranges_at(stored, level)
        own = found[found["kind"] != AS_CALIBRATED] if len(found) else found
        if len(own):
            held = share_of(own["holds"])
            table.append({"level": level, "held": held.value, "low": held.low, "high": held.high, "cells": len(own)})
    return pd.DataFrame(table)


@once
def farthest(stored: Stored) -> pd.DataFrame:
    """Of each kind of cell the prediction that is farthest off, with `part`, the part of the step that is, and
    part_seconds, by how much that was longer than predicted."""
    table = predictions(stored)
    table = table[table["kind"] != AS_CALIBRATED] if len(table) else table
    if table.empty:
        return table
    worst = table.loc[table.groupby("kind")["error"].idxmax()].copy()
    away = pd.DataFrame({name: worst[f"measured_{name}"] - worst[f"predicted_{name}"] for name in PARTS})
    worst["part"] = away.abs().idxmax(axis=1)
    worst["part_seconds"] = [away.loc[at, name] for at, name in worst["part"].items()]
    return worst.sort_values("error", ascending=False, ignore_index=True)


# What the notebook shows of them


def _shown_kinds(stored: Stored) -> pd.DataFrame:
    table = kinds(stored)
    if table.empty:
        return table
    columns = ["kind", "cells", "median", "median_low", "median_high", "p90", "p90_low", "p90_high", "bias"]
    percent = {"median": "median_error_percent", "p90": "nine_in_ten_below_percent", "bias": "measured_longer_percent"}
    ends = {f"{name}_{end}": f"{percent[name]}_{end}" for name in ("median", "p90") for end in ("low", "high")}
    shown = table[columns].round(1).rename(columns={"kind": "kind_of_cell"} | percent | ends)
    known = [read_errors().get(kind) for kind in table["kind"]]
    shown["cells_on_all_processors"] = [one.cells if one else "" for one in known]
    shown["their_median_error_percent"] = [round(100 * one.median_error, 1) if one else "" for one in known]
    return shown.replace({np.nan: ""})


def _shown_predictions(stored: Stored) -> pd.DataFrame:
    table = judged(stored)
    if table.empty:
        return table
    columns = ["use_case", "strategy", "hosts", "workers", "batch", "kind", "step_seconds", "predicted_seconds"]
    shown = table[[*columns, "range_low", "range_high", "holds", "error", "rounds"]].round(4)
    shown = shown.rename(columns={"kind": "kind_of_cell"})
    return shown.assign(kind_of_cell=shown["kind_of_cell"].str.replace(ANOTHER_BATCH, ", another batch"))


def _shown_picks(stored: Stored) -> pd.DataFrame:
    table = picks(stored)
    if table.empty:
        return table
    columns = ["use_case", "global_batch_size", "ways", "best", "pick", "loss", "low", "high", "decided", "good"]
    shown = table[[*columns, "advised", "advised_loss", "advised_good"]].round(3)
    return shown.rename(columns={"pick": "predicted quickest", "advised": "recommended", "loss": "it is slower by"})


def _shown_farthest(stored: Stored) -> pd.DataFrame:
    table = farthest(stored)
    columns = ["kind", "use_case", "strategy", "workers", "batch", "step_seconds", "predicted_seconds", "error", "part"]
    if table.empty:
        return table
    return table[[*columns, "part_seconds"]].round(3).rename(columns={"kind": "kind_of_cell"})


def _shown_memory(stored: Stored) -> pd.DataFrame:
    table = memories(stored)
    if table.empty:
        return table
    of = ["processor"] if "processor" in table else []
    shown = table[[*of, "use_case", "strategy", "workers", "batch", "ratio"]].round(3)
    mib = (table[["peak_bytes", "predicted_bytes"]] / 2**20).round(0).astype(int)
    return shown.assign(peak_MiB=mib["peak_bytes"], predicted_MiB=mib["predicted_bytes"])


def _shown_earlier(stored: Stored) -> pd.DataFrame:
    del stored
    table = earlier_speedups()
    columns = ["notebook", "experiment", "use_case", "strategy", "hosts", "workers", "batch", "speedup", "low", "high"]
    return table[[*columns, "predicted_speedup", "error", "reason"]].round(3) if len(table) else table


def cell_words(row: Mapping[str, Any]) -> str:
    """A cell as a sentence names it: VGG16, shared memory, two workers, batch 2."""
    way = f"{way_name(str(row['strategy']))}, {row['workers']} workers" if row["workers"] > 1 else "one worker"
    way += f" of {row['threads']} threads" if row["threads"] > 1 else ""
    hosts = f" on {row['hosts']} hosts" if row["hosts"] > 1 else ""
    return f"{model_name(str(row['use_case']))}, {way}{hosts}, batch {row['batch']} per worker"


def held_out_errors(stored: Stored, hosts: bool = False) -> pd.Series:
    """The errors (%) of the held-out cells on one host, or on several."""
    table = of_one_host(predictions(stored), hosts)
    return 100 * table["error"] if len(table) else pd.Series(dtype=float)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "kinds": _shown_kinds,
    "predictions": _shown_predictions,
    "noise": lambda stored: noise_floor(stored).drop(columns="log_error", errors="ignore").round(4),
    "coverage": lambda stored: coverage(stored).round(3),
    "picks": _shown_picks,
    "farthest": _shown_farthest,
    "memory": _shown_memory,
    "earlier": _shown_earlier,
}
