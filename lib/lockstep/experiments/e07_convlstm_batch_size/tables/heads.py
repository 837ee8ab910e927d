"""What the LSTM gives over other heads of the same network, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from lockstep.analysis.cells import CELL, cells, outcome
from lockstep.analysis.seeds import HEADS, LEARNING, mean_columns, mean_or_none, paired_points, percent_columns, scored
from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.models.layers import Network
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import budget

Cell = dict[str, Any]
CALLED = {
    "cnn": "the CNN",
    "lstm": "the LSTM",
    "dense": "a dense head of equal size",
    "one_step": "one of a single step",
    "shuffled": "one over shuffled positions",
    "frozen": "one with random weights",
    "long": "one of 512 steps",
}
"""What sentences and figures call the heads, in the order of tables."""
COLUMNS = ["use_case", "training", "head", "head_parameters", "learning_rate", "accuracy", "accuracy_low"]
COLUMNS += ["accuracy_high", "points", "points_low", "points_high", "seeds", "status", "reason"]


def head_table(records: pd.DataFrame) -> pd.DataFrame:
    """One row per way to train and head: its mean test accuracy over seeds (%) with a 95 % interval, and `points`: the
    LSTM minus this head, trained alike and paired by seed, in percentage points.

    `training`: how long and with which batch; "tuned" ones have the learning rate that gave the head the lowest mean
    loss on held-out training images, and were not trained on these. `head_parameters`: weights and biases behind the
    convolutions, for two classes.
    """
    found = list(_trained_alike(records))
    lstm = {(cell["use_case"], training): cell for cell, training, _ in found if name_of(cell) == "lstm"}
    table = []
    for cell, training, own in found:
        status, reason = outcome(own)
        base, points = lstm.get((cell["use_case"], training)), None
        try:
            points = paired_points(records, base, cell) if base is not None and base != cell else None
        except AnalysisError as error:
            reason = reason or str(error)
        row: Cell = {"use_case": cell["use_case"], "training": training, "head": name_of(cell)}
        row |= {"head_parameters": _head_parameters(cell), "learning_rate": cell["learning_rate"] or float("nan")}
        row |= percent_columns(mean_or_none(scored(own)["test_accuracy"]), "accuracy")
        row |= mean_columns(points, "points") | {"seeds": points.rounds if points else len(scored(own))}
        table.append(row | {"status": status, "reason": reason})
    order = {name: place for place, name in enumerate(CALLED)}
    table.sort(key=lambda row: order[row["head"]])
    return pd.DataFrame(table, columns=COLUMNS).sort_values(["use_case", "training"], key=_place, kind="stable")


def learning_of_all_seeds(records: pd.DataFrame) -> pd.DataFrame:
    """The rows of LEARNING, and those that HEADS adds: the CNN and the LSTM are trained alike in both, from seeds of
    which one may have more."""
    own = records[records["experiment"] == LEARNING]
    also = records[(records["experiment"] == HEADS) & (records["head"] == "default") & (records["scored_on"] == "test")]
    return pd.concat([own, also.assign(experiment=LEARNING)]).drop_duplicates([*CELL, "seed"])


def name_of(cell: Cell) -> str:
    """cnn | lstm | the name of a control."""
    if cell["network"] == "cnn":
        return "cnn"
    return "lstm" if cell["head"] == "default" else str(cell["head"])


def _head_parameters(cell: Cell) -> int:
    given = (name for name in ("lstm_units", "dense_units", "convolutions") if cell[name])
    sizes: dict[str, Any] = {name: int(cell[name]) for name in given}
    return Network(cell["network"], pooling="max", head=cell["head"], **sizes).head_parameters


def _trained_alike(records: pd.DataFrame) -> Iterator[tuple[Cell, str, pd.DataFrame]]:
    """Each cell with its way to train and its rows; of those scored on held-out images, each head's best rate."""
    best: dict[tuple[str, str], tuple[float, Cell, pd.DataFrame]] = {}
    for cell, own in cells(records, HEADS):
        if cell["scored_on"] != "validation":
            yield cell, f"batch {cell['global_batch_size']}, {budget(cell)}", own
            continue
        loss = float(scored(own)["validation_loss"].astype(float).mean())
        key = (cell["use_case"], name_of(cell))
        if loss == loss and (key not in best or loss < best[key][0]):
            best[key] = (loss, cell, own)
    for _, cell, own in best.values():
        yield cell, f"tuned, batch {cell['global_batch_size']}, {budget(cell)}", own


def _place(column: pd.Series) -> pd.Series:
    """The place of each value in the column: tables keep the order in which cells were asked for."""
    return pd.Series(pd.factorize(column)[0], index=column.index)
