"""Recall of each class, and its share of the predictions, from the traced table `confusion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.seeds import mean_of, percent_columns

_COUNTED = ("split", "actual", "predicted", "count", "round", "seed")


def _keys(confusion: pd.DataFrame) -> list[str]:
    """The columns that distinguish the cells of the table."""
    return [name for name in confusion.columns if name not in _COUNTED]


def _cell_rows(confusion: pd.DataFrame, cell: Mapping[str, Any]) -> pd.DataFrame:
    keep = pd.Series(True, index=confusion.index)
    for name in _keys(confusion):
        if name in cell:
            keep &= confusion[name] == cell[name]
    return confusion[keep]


def right_of(confusion: pd.DataFrame | None, cell: Mapping[str, Any], seed: int) -> tuple[int, int] | None:
    """How many images of the test split one run got right, and how many there are; None where it was not counted."""
    if confusion is None or confusion.empty:
        return None
    rows = _cell_rows(confusion, cell)
    rows = rows[(rows["split"] == "test") & (rows["seed"] == seed)]
    if rows.empty:
        return None
    return int(rows.loc[rows["actual"] == rows["predicted"], "count"].sum()), int(rows["count"].sum())


_CALLED = {"cnn": "CNN", "convlstm": "ConvLSTM", "convlstm2d": "ConvLSTM2D"}
ONE_CLASS = 0.95
"""Share of a run's predictions from which on it has learnt to name one class alone."""


def one_class_note(confusion: pd.DataFrame | None, experiment: str) -> str:
    """In how many runs a network names one class whatever the image, which makes intervals over seeds wide: by network,
    batch, updates and rule; empty for none."""
    own = pd.DataFrame() if confusion is None or confusion.empty else confusion
    own = own[(own["experiment"] == experiment) & (own["split"] == "test")] if len(own) else own
    if own.empty:
        return ""
    runs = [*_keys(own), "round"]
    named = own.groupby([*runs, "predicted"], dropna=False)["count"].sum()
    each = named.groupby(runs, dropna=False)
    share = (each.max() / each.sum()).reset_index(name="share")
    found = []
    trained = ["use_case", "network", "global_batch_size", "learning_rate_rule", "updates"]
    for (case, network, batch, rule, updates), rows in share.groupby(trained, sort=False):
        if stuck := int((rows["share"] >= ONE_CLASS).sum()):
            how = f"batch {batch}{f', {updates} updates' if updates else ''}"
            how += "" if rule == "constant" else f", {rule} rule"
            found.append(f"{_CALLED.get(network, network)} on {case}, {how}: {stuck} of {len(rows)} runs")
    wide = f"Wide intervals are of runs that name one class for {ONE_CLASS:.0%} of the images or more"
    return f"{wide}: {'; '.join(found)}" if found else ""


def class_table(confusion: pd.DataFrame | None, experiment: str) -> pd.DataFrame:
    """Per cell, split and class: recall (%), mean over seeds with its 95 % interval; and the class's share among the
    images (`actual_share`) and among the predictions (`predicted_share`), in %.

    A network that is trained where a class is frequent predicts it too often where it is not: `predicted_share` over
    `actual_share` is that error of calibration, and recall says which class pays for it.
    """
    table = []
    for key, split, cell in _each(confusion, experiment):
        total = cell.groupby("round")["count"].sum()
        for name in dict.fromkeys(cell["actual"]):
            own = cell[cell["actual"] == name]
            actual = own.groupby("round")["count"].sum()
            right = own[own["predicted"] == name].groupby("round")["count"].sum().reindex(actual.index, fill_value=0)
            predicted = cell[cell["predicted"] == name].groupby("round")["count"].sum()
            predicted = predicted.reindex(total.index, fill_value=0)
            row: dict[str, Any] = dict(key) | {"split": split, "class": name, "images": int(actual.median())}
            row |= percent_columns(mean_of(right / actual) if (actual > 0).all() else None, "recall")
            row |= {"actual_share": 100 * float((actual / total).mean())}
            row |= {"predicted_share": 100 * float((predicted / total).mean()), "seeds": len(actual)}
            table.append(row)
    return pd.DataFrame(table)


def matrix_table(confusion: pd.DataFrame | None, experiment: str, split: str = "test") -> pd.DataFrame:
    """Per cell the confusion matrix over all seeds: actual, predicted, images (mean per seed), share of the actual
    class (%)."""
    table = []
    for key, own_split, cell in _each(confusion, experiment):
        if own_split != split:
            continue
        counts = cell.groupby(["actual", "predicted"], sort=False)["count"].sum() / cell["round"].nunique()
        of_class = counts.groupby(level="actual").sum()
        for (actual, predicted), count in counts.items():
            share = 100 * count / of_class[actual] if of_class[actual] else float("nan")
            table.append(dict(key) | {"actual": actual, "predicted": predicted, "images": count, "share": share})
    return pd.DataFrame(table)


def _each(confusion: pd.DataFrame | None, experiment: str) -> list[tuple[dict[str, Any], str, pd.DataFrame]]:
    if confusion is None or confusion.empty:
        return []
    own = confusion[confusion["experiment"] == experiment]
    keys = _keys(confusion)
    found = []
    for key, rows in own.groupby([*keys, "split"], sort=False, dropna=False):
        found.append((dict(zip(keys, key[:-1], strict=True)), str(key[-1]), rows))
    return found
