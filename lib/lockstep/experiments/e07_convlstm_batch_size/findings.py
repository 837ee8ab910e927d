"""What notebook 07's figure of accuracies shows, in sentences computed from its records."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.sentences import Finding, finding, listed, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e07_convlstm_batch_size.tables import learning_accuracy, lstm_difference
from lockstep.experiments.fixed_batch import PLAIN_BATCH


@finding
def accuracy(stored: Stored) -> str:
    """What the LSTM behind the CNN does, and whether the threshold or the ranking is what accuracy lacks."""
    return f"{_lstm(lstm_difference(stored))} {_ranking(learning_accuracy(stored))}".strip()


def _lstm(table: pd.DataFrame) -> str:
    known = table[table["seeds"] >= MIN_ROUNDS] if len(table) else table
    if len(known):  # other ways train the same parameters, and the table has them
        known = known[(known["framework"] == "torch") & (known["way"] == "data parallel")]
    if known.empty:
        raise NotNow("", f"the ConvLSTM minus the CNN needs {MIN_ROUNDS} seeds that both were trained with")
    worse = [_cell(row) for _, row in known[known["points_high"] < 0].iterrows()]
    better = [_cell(row) for _, row in known[known["points_low"] > 0].iterrows()]
    alike = [_cell(row) for _, row in known[(known["points_low"] <= 0) & (known["points_high"] >= 0)].iterrows()]
    parts = [(worse, "is less accurate than the CNN alone with"), (better, "is more accurate than the CNN alone with"),
             (alike, "cannot be told apart from the CNN alone with")]  # fmt: skip
    return " ".join(sentence(f"the ConvLSTM {text} {listed(cells)}") for cells, text in parts if cells)


def _cell(row: pd.Series) -> str:
    points = f"{row['points']:.3g} points [{row['points_low']:.3g}, {row['points_high']:.3g}]"
    return f"{row['setting']} ({points}, {row['use_case']})"


def _ranking(table: pd.DataFrame) -> str:
    """AUC beside accuracy, of Table 2's plain settings."""
    kept = table[(table["global_batch_size"] == PLAIN_BATCH) & (table["updates"] == 0) & table["auc"].notna()]
    kept = kept[(kept["way"] == "data parallel") & (kept["framework"] == "torch") & (kept["rule"] == "constant")]
    parts = [
        f"{row['auc']:.3f} at {row['accuracy']:.3g} % ({row['network']}, {row['use_case']})"
        for _, row in kept.iterrows()
    ]
    if not parts:
        return ""
    return sentence(
        f"areas under the curve stand at {listed(parts)}: images are ranked better than accuracy tells, for the "
        "threshold was learnt where both classes are as frequent"
    )


FINDINGS: Mapping[str, Finding] = {"accuracy": accuracy}
