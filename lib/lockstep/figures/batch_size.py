"""The figures of notebook 07, by file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
from matplotlib.figure import Figure

from lockstep import learning_tables
from lockstep.figures.learning import accuracy_lines, gap_lines, published_accuracies, time_lines
from lockstep.figures.settings import confusion_maps, operator_stacks, paired_points, ratio_points, setting_points

Tables = Mapping[str, pd.DataFrame]


def _batches(records: pd.DataFrame, tables: Tables) -> Figure:
    table = learning_tables.accuracy_table(records, learning_tables.LEARNING)
    return accuracy_lines(table, "Accuracy against batch size", published_accuracies())


def _gap(records: pd.DataFrame, _: Tables) -> Figure:
    return gap_lines(learning_tables.accuracy_table(records, learning_tables.LEARNING), "What is learnt by heart")


def _training_time(records: pd.DataFrame, _: Tables) -> Figure:
    return time_lines(learning_tables.speed_table(records), "Training time against batch size")


def _candidates(records: pd.DataFrame, _: Tables) -> Figure:
    choice = learning_tables.choice_table(records)
    chosen = list(zip(choice["network"], choice["chosen"], strict=True)) if len(choice) else []
    table = learning_tables.accuracy_table(records, learning_tables.CANDIDATES)
    return setting_points(table, "Settings, chosen on held-out training images", chosen)


def _ablation(records: pd.DataFrame, _: Tables) -> Figure:
    table = learning_tables.accuracy_table(records, learning_tables.ABLATION)
    return setting_points(table, "Pooling and dropout")


def _paired(records: pd.DataFrame, _: Tables) -> Figure:
    return paired_points(learning_tables.paired_table(records), "Does distributing cost accuracy?")


def _confusion(records: pd.DataFrame, tables: Tables) -> Figure:
    counted = learning_tables.quoted(records, tables.get("confusion"))
    matrix = learning_tables.matrix_table(counted, learning_tables.SELECTED)
    return confusion_maps(matrix, "Test split: who was taken for whom (the chosen settings, mean over seeds)")


def _frameworks(records: pd.DataFrame, _: Tables) -> Figure:
    table = learning_tables.framework_table(records)
    return ratio_points(table, "torch and TensorFlow", "TensorFlow's step / torch's")


def _prices(records: pd.DataFrame, _: Tables) -> Figure:
    table = learning_tables.price_table(records)
    return ratio_points(table, "What the LSTM, dropout and L2 do to a step", "step of the plain CNN / this step")


def _operators(records: pd.DataFrame, tables: Tables) -> Figure:
    table = learning_tables.operator_table(records, tables.get("operators"))
    return operator_stacks(table, "Where a step of torch and of TensorFlow goes")


BATCH_SIZE: Mapping[str, Callable[[pd.DataFrame, Tables], Figure]] = {
    "accuracy": _batches,
    "gap": _gap,
    "time": _training_time,
    "candidates": _candidates,
    "confusion": _confusion,
    "ablation": _ablation,
    "paired": _paired,
    "frameworks": _frameworks,
    "operators": _operators,
    "prices": _prices,
}
