"""Accuracy over seeds: against batch size, of settings, of pooling and dropout, and seed by seed beside another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis import AnalysisError, Ratio, per_round
from lockstep.job import Job
from lockstep.learning_tables.cells import (
    ABLATION,
    CANDIDATES,
    LEARNING,
    MARGIN,
    PAIRED,
    SELECTED,
    SETTING,
    mean_or_none,
    named,
    paired_points,
    same_but,
    scored,
    way,
    wilson,
)
from lockstep.learning_tables.classes import right_of
from lockstep.summaries import cells, median_of, outcome

_WHERE = ("use_case", "data_source", "framework", "strategy", "workers")
_SCORES = {
    "test_balanced_accuracy": "balanced",
    "test_auc": "auc",
    "train_accuracy": "train",
}
_TRAINED = ("training_seconds", "epochs_trained", "updates_done")
_DEFAULTS = {field.name: field.default for field in fields(Job)}
_SHORT = {"global_batch_size": "batch", "rate_warmup_epochs": "warm-up", "early_stopping_epochs": "early stopping"}
_SHORT |= {"standardise": "standardised"}
PARALLEL: tuple[str, ...] = ("strategy", "launcher", "sync", "bucket", "overlap", "policy", "shards", "workers")
PARALLEL += ("servers", "model_parallel")
PARALLEL += ("stages", "stages_per_rank", "micro_batches", "schedule", "partition", "activations")
PARALLEL += ("opt_weight", "exchange_every", "state_averaged", "per_worker_batch_size", "cores_per_worker")
PARALLEL += ("memory_format",)
"""Of a distributed row, what its sequential one of the same training differs in."""


def accuracy_table(records: pd.DataFrame, experiment: str, confusion: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per cell: mean test accuracy over seeds (%), its 95 % interval over seeds, and what belongs to it.

    `balanced`, `auc`, `train`: means over seeds (%; auc 0-1), `validation` with its interval. `gap`: train minus test
    accuracy, paired by seed (percentage points). `run_low`, `run_high`: Wilson's interval of the seed with the median
    accuracy alone, from the table `confusion`; the interval over seeds says nothing about other test images. Seconds
    are of training as it ran, of cells that were not timed against each other. Where a seed diverged, no mean is given:
    `reason` says how many did, `seeds` how many did not.
    """
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        ok = scored(rows)
        row: dict[str, Any] = {
            name: cell[name] for name in (*_WHERE, *SETTING, "scored_on", "selected") if name in cell
        }
        row |= {"selected": bool(rows["selected"].any()), "way": way(cell), "budget": budget(cell), "rule": rule(cell)}
        row |= named(mean_or_none(ok["test_accuracy"]), "accuracy", 100)
        for name, short in _SCORES.items():
            row[short] = float(ok[name].astype(float).mean()) * (1 if short == "auc" else 100)
        row |= named(mean_or_none(ok["validation_accuracy"]), "validation", 100)
        row |= named(mean_or_none(ok["train_accuracy"] - ok["test_accuracy"]), "gap", 100)
        row |= dict(zip(("run_low", "run_high"), _one_run(ok, cell, confusion), strict=True))
        row |= {name: median_of(rows, name) for name in _TRAINED}
        seeds = int(rows.loc[rows["status"] == "ok", "test_accuracy"].notna().sum())
        row |= {"seeds": seeds, "status": status, "reason": reason}
        table.append(row)
    return pd.DataFrame(table)


def coverage_table(records: pd.DataFrame) -> pd.DataFrame:
    """Which cells there are: per experiment, use case, network and framework how many, in how many rounds, and how many
    rows are ok."""
    keys = ["experiment", "use_case", "data_source", "images", "network", "framework"]
    good = records.assign(ok=records["status"] == "ok")
    found = good.groupby(keys, sort=False).agg(rounds=("round", "nunique"), rows=("round", "size"), ok=("ok", "sum"))
    return found.reset_index().assign(cells=lambda table: table["rows"] // table["rounds"])


def per_seed(records: pd.DataFrame, experiment: str, measure: str = "test_accuracy") -> pd.DataFrame:
    """Every run's `measure`, a row each, with what tells its cell from others: points behind a mean."""
    rows = records[(records["experiment"] == experiment) & (records["status"] == "ok")]
    return rows[[*_WHERE, *SETTING, "round", measure]].reset_index(drop=True)


def _one_run(ok: pd.DataFrame, cell: Mapping[str, Any], confusion: pd.DataFrame | None) -> tuple[float, float]:
    """Wilson's interval (%) of the seed in the middle; NaN where its images were not counted."""
    accuracies = ok["test_accuracy"].dropna().sort_values()
    if accuracies.empty:
        return float("nan"), float("nan")
    seed = int(accuracies.index[(len(accuracies) - 1) // 2])
    counted = right_of(confusion, cell, seed)
    if counted is None:
        return float("nan"), float("nan")
    low, high = wilson(*counted)
    return 100 * low, 100 * high


def budget(cell: Mapping[str, Any]) -> str:
    """How long training went on: 10 epochs | 630 updates; "" for steps that are timed."""
    if cell["updates"]:
        return f"{cell['updates']} updates"
    if not cell["epochs"]:
        return ""
    return f"{cell['epochs']} epoch{'' if cell['epochs'] == 1 else 's'}"


def rule(cell: Mapping[str, Any]) -> str:
    """Of the learning rate against the batch: constant | linear | linear, 2 epochs warm-up."""
    text = str(cell["learning_rate_rule"])
    epochs = cell["rate_warmup_epochs"]
    return f"{text}, {epochs} epoch{'' if epochs == 1 else 's'} warm-up" if epochs else text


def equal_updates(table: pd.DataFrame, updates: int) -> pd.DataFrame:
    """Of `accuracy_table` what made so many updates at a constant rate, whether it was asked for updates or epochs."""
    return table[(table["updates_done"] == updates) & (table["rule"] == "constant")]


def setting_text(cell: Mapping[str, Any]) -> str:
    """A setting in a line: batch and length, and what else is not the job's default; without the network."""
    parts = [f"batch {cell['global_batch_size']}", budget(cell), *extras(cell)]
    return ", ".join(part for part in parts if part)


def extras(cell: Mapping[str, Any]) -> list[str]:
    """What of a setting, but for network, batch and length, is not the job's default."""
    parts = []
    for name in SETTING:
        if name in ("network", "global_batch_size", "epochs", "updates") or cell[name] == _DEFAULTS[name]:
            continue
        short, value = _SHORT.get(name, name.replace("_", " ")), cell[name]
        told = f"{value:g}" if isinstance(value, float) else str(value)
        parts.append(short if isinstance(value, bool | np.bool_) else f"{short} {told}")
    return parts


def paired_table(records: pd.DataFrame, experiment: str = PAIRED) -> pd.DataFrame:
    """Distributed minus sequential training of the same setting and seed, in percentage points of test accuracy.

    `within`: does the 95 % interval over seeds lie within ± MARGIN; `equal`: seeds with the same accuracy exactly.
    """
    table = []
    for cell, rows in cells(records, experiment):
        if way(cell) == "sequential":
            continue
        status, reason = outcome(rows)
        points, equal = None, 0
        try:
            base = same_but(cell, *PARALLEL, strategy="sequential")
            points = paired_points(records, cell, base)
            equal = _equal_seeds(records, cell, base)
        except AnalysisError as error:
            reason = reason or str(error)
        row: dict[str, Any] = {name: cell[name] for name in (*_WHERE, "network", "global_batch_size")}
        row |= {"way": way(cell), "setting": setting_text(cell), "budget": budget(cell)} | named(points, "points")
        row |= {"within": points is not None and points.low >= -MARGIN and points.high <= MARGIN}
        row |= {"equal": equal, "seeds": points.rounds if points else 0, "status": status, "reason": reason}
        table.append(row)
    return pd.DataFrame(table)


def _equal_seeds(records: pd.DataFrame, cell: dict[str, Any], base: dict[str, Any]) -> int:
    pair = [per_round(records, conditions, "test_accuracy") for conditions in (cell, base)]
    return int((pair[0] - pair[1]).dropna().eq(0).sum())


def gain_table(records: pd.DataFrame, experiment: str = ABLATION, **base: Any) -> pd.DataFrame:
    """`accuracy_table` with `points`: over the cell whose fields `base` say, else the same, paired by seed.

    By default over pooling="max" and dropout=0, so that each row says what pooling and dropout do.
    """
    table = accuracy_table(records, experiment)
    base = base or {"pooling": "max", "dropout": 0.0}
    found = []
    for cell, _ in cells(records, experiment):
        other = same_but(cell, **base)
        try:
            points = None if other == cell else paired_points(records, cell, other)
        except AnalysisError:
            points = None
        found.append(named(points, "points"))
    return table.join(pd.DataFrame(found, index=table.index)) if len(table) else table


def choice_table(records: pd.DataFrame, confusion: pd.DataFrame | None = None) -> pd.DataFrame:
    """Per use case and network the candidate with the highest mean validation accuracy, and what it comes to on the
    test split when it is trained on all training images.

    `finalists`: settings that were trained so, in SELECTED. `consistent`: is validation's choice among them: yes, no,
    or why that can't be said. `accuracy`: of validation's choice, mean over seeds (%), NaN where it is no finalist;
    `best_on_test`: the highest mean of a candidate there, which is no estimate, for the test split chose it. A
    candidate that diverged is not chosen.
    """
    candidates, finals = accuracy_table(records, CANDIDATES), accuracy_table(records, SELECTED, confusion)
    if len(finals):
        finals = finals[finals["selected"]]
    known = candidates[candidates["validation"].notna()] if len(candidates) else candidates
    keys = dict.fromkeys((row["use_case"], row["network"]) for part in (known, finals) for _, row in part.iterrows())
    table = []
    for use_case, network in keys:
        own, final = (_of(part, use_case, network) for part in (known, finals))
        chosen = own.loc[own["validation"].idxmax()] if len(own) else None
        text = "" if chosen is None else setting_text(chosen)
        row: dict[str, Any] = {"use_case": use_case, "network": network, "candidates": len(own), "chosen": text}
        row |= {"validation": float("nan") if chosen is None else chosen["validation"]}
        row |= {"best_on_test": float(own["accuracy"].max()) if len(own) else float("nan")}
        row |= {"finalists": " | ".join(setting_text(each) for _, each in final.iterrows())}
        row |= {"consistent": _consistent(own, text, final)}
        quoted = [each for _, each in final.iterrows() if setting_text(each) == text]
        for name in ("accuracy", "accuracy_low", "accuracy_high", "balanced", "auc", "run_low", "run_high", "seeds"):
            row[name] = quoted[0][name] if quoted else float("nan")
        table.append(row)
    return pd.DataFrame(table)


def quoted(records: pd.DataFrame, frame: pd.DataFrame | None) -> pd.DataFrame:
    """`frame` (records, or the table `confusion`) without finalists that validation data did not choose, by `records`:
    without any where it chose none of them, or where there is nothing to choose by."""
    if frame is None or frame.empty:
        return pd.DataFrame() if frame is None else frame
    table = choice_table(records)
    table = table[table["consistent"] == "yes"] if len(table) else table
    chosen = {(row["use_case"], row["network"]): row["chosen"] for _, row in table.iterrows()}
    finals = frame[frame["experiment"] == SELECTED]
    others = [
        place
        for place, row in finals.iterrows()
        if setting_text(row) != chosen.get((row["use_case"], row["network"]))
    ]
    return frame.drop(index=others)


def beside_plain(records: pd.DataFrame) -> pd.DataFrame:
    """The paper's plain settings beside all finalists, per use case and network: mean test accuracy over seeds (%) with
    its interval, and `points`: over the plain one, paired by seed. `what`: plain, chosen (by validation) or finalist.

    Plain: of LEARNING the cells with nothing but Table 2's batch and epochs, by several workers or by one.
    """
    learnt, finals = (accuracy_table(records, name) for name in (LEARNING, SELECTED))
    choice = choice_table(records)
    chosen = set(zip(choice["use_case"], choice["network"], choice["chosen"], strict=True)) if len(choice) else set()
    table = []
    for final, found in ((False, _plain(learnt)), (True, finals)):
        for _, row in found.iterrows():
            best = (row["use_case"], row["network"], setting_text(row)) in chosen
            what = ("chosen" if best else "finalist") if final else "plain"
            kept = (
                "use_case",
                "data_source",
                "network",
                "accuracy",
                "accuracy_low",
                "accuracy_high",
                "balanced",
                "auc",
            )
            told = {"what": what, "setting": setting_text(row)} | {name: row[name] for name in kept}
            told |= {"seeds": row["seeds"], "status": row["status"], "reason": row["reason"]}
            table.append(told | named(_over_plain(records, row) if final else None, "points"))
    order = ["use_case", "network"]
    return pd.DataFrame(table).sort_values(order, kind="stable").reset_index(drop=True) if table else pd.DataFrame()


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return table
    plain = [not extras(row) and row["global_batch_size"] == 32 and not row["updates"] for _, row in table.iterrows()]
    kept = table[plain]
    kept = kept[(kept["framework"] == "torch") & (kept["way"].isin(["sequential", "data parallel"]))]
    return kept.drop_duplicates(["use_case", "network"])


def _over_plain(records: pd.DataFrame, row: pd.Series) -> Ratio | None:
    """The gain of a finalist; None where no seed has both."""
    base = _plain(accuracy_table(records, LEARNING))
    base = base[(base["use_case"] == row["use_case"]) & (base["network"] == row["network"])] if len(base) else base
    if base.empty:
        return None
    names = ["use_case", "data_source", "framework", "strategy", "workers", *SETTING]
    sides = [{name: side[name] for name in names} for side in (row, base.iloc[0])]
    try:
        return paired_points(records, sides[0] | {"experiment": SELECTED}, sides[1] | {"experiment": LEARNING})
    except AnalysisError:
        return None


def _of(table: pd.DataFrame, use_case: str, network: str) -> pd.DataFrame:
    return table[(table["use_case"] == use_case) & (table["network"] == network)] if len(table) else table


def _consistent(candidates: pd.DataFrame, chosen: str, finals: pd.DataFrame) -> str:
    if candidates.empty:
        return "no candidate was measured"
    if lacking := int((candidates["seeds"] < candidates["seeds"].max()).sum()):
        return f"{lacking} of {len(candidates)} candidates lack seeds that others have"
    if finals.empty:
        return "there is no finalist"
    return "yes" if any(setting_text(row) == chosen for _, row in finals.iterrows()) else "no"
