"""Notebook 07's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import of_one_session
from lockstep.analysis.seeds import ABLATION, LEARNING, SELECTED, SPEED
from lockstep.analysis.stored import Stored
from lockstep.experiments.e07_convlstm_batch_size.accuracy_drawings import (
    accuracy_lines,
    gap_lines,
    published_accuracies,
    time_lines,
)
from lockstep.experiments.e07_convlstm_batch_size.answer import ALL_SEEDS
from lockstep.experiments.e07_convlstm_batch_size.score_drawings import score_figure
from lockstep.experiments.e07_convlstm_batch_size.setting_drawings import (
    confusion_maps,
    head_points,
    operator_stacks,
    paired_difference_points,
    ratio_points,
    setting_points,
)
from lockstep.experiments.e07_convlstm_batch_size.tables import (
    candidate_accuracy,
    choices,
    learning_accuracy,
    lstm_and_heads,
    paired_accuracy,
    quoted_confusion,
    timed_frameworks,
    timed_prices,
    timed_ways,
)
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import extras, seed_accuracy_table
from lockstep.experiments.e07_convlstm_batch_size.tables.classes import matrix_table, one_class_note
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import framework_operator_table


def accuracy_by_batch(stored: Stored) -> Figure:
    runs = one_class_note(stored.tables.get("confusion"), LEARNING)
    note = f"{ALL_SEEDS}\nWide intervals are of runs that {runs}" if runs else ALL_SEEDS
    return accuracy_lines(learning_accuracy(stored), "Accuracy against batch size", published_accuracies(), note)


def generalisation_gap(stored: Stored) -> Figure:
    return gap_lines(learning_accuracy(stored), f"Generalization gap: train minus test accuracy\n{ALL_SEEDS}")


def training_time(stored: Stored) -> Figure:
    """Of one session: a mean over several machines beside another one's contradicts speedups, which are paired."""
    shown, note = of_one_session(
        stored, SPEED, lambda found: [own for own in found if own[0]["variant"] == "a" and not extras(own[0])]
    )
    return time_lines(timed_ways(shown), f"Training time against batch size\n{note}".strip())


def candidates(stored: Stored) -> Figure:
    choice = choices(stored)
    choice = choice[choice["consistent"] == "yes"] if len(choice) else choice
    chosen = list(zip(choice["network"], choice["chosen"], strict=True)) if len(choice) else []
    return setting_points(candidate_accuracy(stored), "Settings, chosen on held-out training images", chosen)


def pooling_and_dropout(stored: Stored) -> Figure:
    runs = one_class_note(stored.tables.get("confusion"), ABLATION)
    title = f"Pooling and dropout\nWide intervals are of runs that {runs}" if runs else "Pooling and dropout"
    return setting_points(seed_accuracy_table(stored.records, ABLATION), title)


def confusion_matrices(stored: Stored) -> Figure:
    matrix = matrix_table(quoted_confusion(stored), SELECTED)
    return confusion_maps(matrix, "Confusion matrices of the test split (the chosen settings, mean over seeds)")


def frameworks(stored: Stored) -> Figure:
    sides = ("TensorFlow is faster", "torch is faster")
    return ratio_points(timed_frameworks(stored), "torch and TensorFlow", "TensorFlow's step / torch's", sides)


def prices(stored: Stored) -> Figure:
    title, sides = "What the LSTM, dropout and L2 do to a step", ("a shorter step", "a longer step")
    return ratio_points(timed_prices(stored), title, "this step / the plain CNN's", sides)


def framework_operators(stored: Stored) -> Figure:
    table = framework_operator_table(stored.records, stored.table("operators"))
    return operator_stacks(table, "Where a step of torch and of TensorFlow goes")


FIGURES: Mapping[str, Recipe] = {
    "accuracy": accuracy_by_batch,
    "gap": generalisation_gap,
    "time": training_time,
    "candidates": candidates,
    "confusion": confusion_matrices,
    "ablation": pooling_and_dropout,
    "heads": lambda stored: head_points(lstm_and_heads(stored), "What the LSTM gives over other heads"),
    "scores": score_figure,
    "paired": lambda stored: paired_difference_points(paired_accuracy(stored), "Does distributing cost accuracy?"),
    "frameworks": frameworks,
    "operators": framework_operators,
    "prices": prices,
}
