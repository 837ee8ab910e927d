"""What notebook 07 shows as tables, from its records and the traced tables `confusion` and `operators` alone.

A round of an accuracy cell is a seed: means are over seeds, and two cells are compared seed by seed. Speed cells are
timed as everywhere else: rounds of two cells back to back, and A/A pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from lockstep.analysis.seeds import ABLATION, CANDIDATES, LEARNING, PAIRED, SELECTED
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import (
    coverage_table,
    gain_table,
    lstm_table,
    paired_table,
    seed_accuracy_table,
    setting_text,
)
from lockstep.experiments.e07_convlstm_batch_size.tables.choice import beside_plain, choice_table, quoted, shared_seeds
from lockstep.experiments.e07_convlstm_batch_size.tables.classes import class_table
from lockstep.experiments.e07_convlstm_batch_size.tables.heads import head_table, learning_of_all_seeds
from lockstep.experiments.e07_convlstm_batch_size.tables.scores import SCORE_TABLES
from lockstep.experiments.e07_convlstm_batch_size.tables.scores_unseen import without_test_images, without_test_scores
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import (
    framework_operator_table,
    framework_table,
    price_table,
    speed_table,
)

_CELL = ["use_case", "network", "framework", "way", "global_batch_size", "budget", "rule"]
_ACCURACY = ["accuracy", "accuracy_low", "accuracy_high"]
_POINTS = ["points", "points_low", "points_high"]
_RECALL = ["split", "class", "images", "recall", "recall_low", "recall_high"]
_SHARES = ["actual_share", "predicted_share"]


# What figures and tables both read
learning_accuracy = once(lambda stored: seed_accuracy_table(stored.records, LEARNING, stored.table("confusion")))
candidate_accuracy = once(
    lambda stored: seed_accuracy_table(shared_seeds(without_test_scores(stored.records)), CANDIDATES)
)
choices = once(lambda stored: choice_table(stored.records, stored.table("confusion")))
timed_ways = once(lambda stored: speed_table(stored.records))
timed_frameworks = once(lambda stored: framework_table(stored.records))
timed_prices = once(lambda stored: price_table(stored.records))
lstm_difference = once(lambda stored: lstm_table(learning_of_all_seeds(stored.records), (LEARNING,)))
paired_accuracy = once(lambda stored: paired_table(stored.records))
lstm_and_heads = once(lambda stored: head_table(stored.records))
quoted_confusion = once(lambda stored: quoted(stored.records, without_test_images(stored.table("confusion"))))


def _accuracy(stored: Stored) -> pd.DataFrame:
    columns = [*_CELL, *_ACCURACY, "run_low", "run_high", "balanced", "auc"]
    columns += ["updates_done", "training_seconds", "seeds", "status", "reason"]
    return learning_accuracy(stored).reindex(columns=columns).round(2)


def _gap(stored: Stored) -> pd.DataFrame:
    columns = [*_CELL, "train", "accuracy", "gap", "gap_low", "gap_high", "seeds"]
    return learning_accuracy(stored).reindex(columns=columns).round(2)


def _time(stored: Stored) -> pd.DataFrame:
    cell = ["use_case", "network", "framework", "strategy", "variant", "workers", "global_batch_size"]
    cell += ["dropout", "weight_decay"]
    measured = ["speedup", "low", "high", "difference", "images_per_second", "step_seconds", "training_seconds"]
    columns = [*cell, *measured, "exchange_seconds", "status", "reason"]
    return timed_ways(stored).reindex(columns=columns).round(4)


def _operators(stored: Stored) -> pd.DataFrame:
    cell = ["network", "framework", "global_batch_size", "operators"]
    columns = [*cell, "seconds", "share", "step_seconds", "rounds", "reason"]
    return framework_operator_table(stored.records, stored.table("operators")).reindex(columns=columns).round(4)


def _choice(stored: Stored) -> pd.DataFrame:
    """A column per use case and network, for a choice has more properties than there are networks."""
    table = choices(stored).round(2)
    return table.set_index(["use_case", "network"]).T if len(table) else table


def _candidates(stored: Stored) -> pd.DataFrame:
    table = candidate_accuracy(stored)
    table = table.assign(setting=[setting_text(row) for _, row in table.iterrows()])
    validation = ["validation", "validation_low", "validation_high"]
    return table.reindex(columns=["network", "setting", *validation, "validation_loss", "seeds", "reason"]).round(4)


def _classes(stored: Stored) -> pd.DataFrame:
    """Without finalists that validation data did not choose."""
    columns = ["use_case", "network", *_RECALL, *_SHARES, "seeds"]
    return class_table(quoted_confusion(stored), SELECTED).reindex(columns=columns).round(1)


def _candidate_classes(stored: Stored) -> pd.DataFrame:
    columns = ["network", "dropout", "class_weights", "augmentation", *_RECALL, *_SHARES]
    return class_table(quoted_confusion(stored), CANDIDATES).reindex(columns=columns).round(1)


def _ablation(stored: Stored) -> pd.DataFrame:
    columns = ["network", "images", "pooling", "dropout", *_ACCURACY, *_POINTS, "gap"]
    columns += ["training_seconds", "seeds", "reason"]
    return gain_table(stored.records, ABLATION).reindex(columns=columns).round(2)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "coverage": lambda stored: coverage_table(stored.records),
    "accuracy": _accuracy,
    "lstm": lambda stored: pd.concat(
        [lstm_difference(stored), lstm_table(stored.records, (PAIRED, SELECTED))]
    ).drop(columns=["global_batch_size", "updates"], errors="ignore").round(2),
    "gap": _gap,
    "time": _time,
    "frameworks": lambda stored: timed_frameworks(stored).round(4),
    "prices": lambda stored: timed_prices(stored).round(4),
    "operators": _operators,
    "choice": _choice,
    "beside_plain": lambda stored: beside_plain(stored.records).round(2),
    "candidates": _candidates,
    "classes": _classes,
    "candidate_classes": _candidate_classes,
    "paired": lambda stored: paired_accuracy(stored).round(3),
    "ablation": _ablation,
    "heads": lambda stored: lstm_and_heads(stored).round(4),
    **SCORE_TABLES,
}
