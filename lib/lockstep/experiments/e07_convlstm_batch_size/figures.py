"""Notebook 07's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import of_one_session
from lockstep.analysis.seeds import ABLATION, LEARNING, SELECTED, SPEED
from lockstep.analysis.sentences import listed
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
    note = f"{ALL_SEEDS}\n{one_class_note(stored.tables.get('confusion'), LEARNING)}".strip()
    return accuracy_lines(learning_accuracy(stored), "Accuracy against batch size", published_accuracies(), note)


def training_time(stored: Stored) -> Figure:
    """Of one session: a mean over several machines beside another one's contradicts speedups, which are paired."""
    shown, note = of_one_session(
        stored, SPEED, lambda found: [own for own in found if own[0]["variant"] == "a" and not extras(own[0])]
    )
    table = timed_ways(shown)
    absent = sorted(set(timed_ways(stored).get("global_batch_size", ())) - set(table.get("global_batch_size", ())))
    note += f"\nThat session has no steps of batch {listed(map(str, absent))}." if absent else ""
    return time_lines(table, f"Training time against batch size\n{note}".strip())


def candidates(stored: Stored) -> Figure:
    found = choices(stored).to_dict("records")
    chosen = [(row["network"], row["chosen"]) for row in found if row["consistent"] == "yes"]
    return setting_points(candidate_accuracy(stored), "Settings, chosen on held-out training images", chosen)


def pooling_and_dropout(stored: Stored) -> Figure:
    title = "Pooling and dropout\nMarks: all seeds of a setting; differences in the text: only the seeds that both have"
    title = f"{title}\n{one_class_note(stored.tables.get('confusion'), ABLATION)}".strip()
    return setting_points(seed_accuracy_table(stored.records, ABLATION), title)


def prices(stored: Stored) -> Figure:
    title, sides = "What the LSTM, dropout and L2 do to a step", ("a shorter step", "a longer step")
    table = timed_prices(stored)
    table = table.sort_values("global_batch_size", kind="stable") if len(table) else table
    return ratio_points(table, title, "this step / the plain CNN's", sides)


MATRICES = "Confusion matrices of the test split (the chosen settings, mean over seeds)"
FASTER = ("TensorFlow is faster", "torch is faster")
FIGURES: Mapping[str, Recipe] = {
    "accuracy": accuracy_by_batch,
    "gap": lambda stored: gap_lines(
        learning_accuracy(stored), f"Generalization gap: train minus test accuracy\n{ALL_SEEDS}"
    ),
    "time": training_time,
    "candidates": candidates,
    "confusion": lambda stored: confusion_maps(matrix_table(quoted_confusion(stored), SELECTED), MATRICES),
    "ablation": pooling_and_dropout,
    "heads": lambda stored: head_points(lstm_and_heads(stored), "What the LSTM gives over other heads"),
    "scores": score_figure,
    "paired": lambda stored: paired_difference_points(paired_accuracy(stored), "Does distributing cost accuracy?"),
    "frameworks": lambda stored: ratio_points(
        timed_frameworks(stored), "torch and TensorFlow", "TensorFlow's step / torch's", FASTER
    ),
    "operators": lambda stored: operator_stacks(
        framework_operator_table(stored.records, stored.table("operators")), "Where a step of each framework goes"
    ),
    "prices": prices,
}
