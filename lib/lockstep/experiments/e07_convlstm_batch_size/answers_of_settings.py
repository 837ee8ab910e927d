"""What notebook 07's figures of settings, classes and ways show, in sentences computed from its records."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.seeds import ABLATION, MARGIN, SELECTED
from lockstep.analysis.sentences import counted, finding, listed, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e07_convlstm_batch_size.answer import CALLED, by_sign, points_of, points_text
from lockstep.experiments.e07_convlstm_batch_size.tables import (
    choices,
    learning_accuracy,
    lstm_and_heads,
    paired_accuracy,
    quoted_confusion,
)
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import gain_table
from lockstep.experiments.e07_convlstm_batch_size.tables.classes import class_table
from lockstep.experiments.e07_convlstm_batch_size.tables.heads import CALLED as NAMES_OF_HEADS


def required_rows(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """The rows that rest on as many seeds as an interval needs. Raises NotNow where there are none."""
    known = table[table["seeds"] >= MIN_ROUNDS] if len(table) else table
    if known.empty:
        raise NotNow("", f"{what} needs {MIN_ROUNDS} seeds")
    return known


@finding
def gap(stored: Stored) -> str:
    """Train minus test accuracy with the smallest and the largest batch, on the first use case."""
    table = required_rows(learning_accuracy(stored), "the gap")
    table = table[(table["framework"] == "torch") & (table["way"] == "data parallel") & (table["updates"] == 0)]
    table = required_rows(table[table["rule"] == "constant"], "the gap of Table 2's settings")
    table, parts = table[table["use_case"] == table["use_case"].iloc[0]], []
    for network, own in table.groupby("network", sort=False):
        ends = own.sort_values("global_batch_size").iloc[[0, -1] if len(own) > 1 else [0]]
        texts = [
            f"{row['gap']:.3g} points [{row['gap_low']:.3g}, {row['gap_high']:.3g}] with batch "
            f"{row['global_batch_size']}"
            for row in ends.to_dict("records")
        ]
        parts.append(f"{CALLED[str(network)]}, {listed(texts)}")
    where = f"train minus test accuracy on {table['use_case'].iloc[0]}, at as many epochs, is of"
    return sentence(f"{where} {'; of '.join(parts)}")


@finding
def candidates(stored: Stored) -> str:
    """What validation's choice comes to on the test split, and whether its lead is chance."""
    table, said = choices(stored), []
    for row in table[table["seeds"] >= MIN_ROUNDS].to_dict("records") if len(table) else ():
        lead = Estimate(row["lead"], row["lead_low"], row["lead_high"], MIN_ROUNDS, logarithmic=False)
        chance = "which may be chance" if lead.low <= 0 <= lead.high else "which is more than chance"
        test = f"{row['accuracy']:.3g} % [{row['accuracy_low']:.3g}, {row['accuracy_high']:.3g}]"
        said.append(
            f"validation's setting of {CALLED[row['network']]} reaches {test} on the test split; on validation data it "
            f"leads the next one by {points_text(lead)}, {chance}"
        )
    if not said:
        raise NotNow("", f"validation's choice needs {MIN_ROUNDS} seeds on the test split")
    return " ".join(sentence(text) for text in said)


@finding
def confusion(stored: Stored) -> str:
    """Recall of each class on the test split, and how often it is predicted beside how often it is there."""
    table = class_table(quoted_confusion(stored), SELECTED)
    table = required_rows(table[table["split"] == "test"] if len(table) else table, "recall on the test split")
    said = []
    for (network, use_case), own in table.groupby(["network", "use_case"], sort=False):
        least = own.loc[own["recall"].idxmin()]
        recall = f"{least['recall']:.3g} % [{least['recall_low']:.3g}, {least['recall_high']:.3g}]"
        said.append(
            f"{CALLED[str(network)]} finds {recall} of the images of class {least['class']} on {use_case}, its least; "
            f"it predicts that class for {least['predicted_share']:.3g} % of images, and "
            f"{least['actual_share']:.3g} % have it"
        )
    return " ".join(sentence(text) for text in said)


@finding
def ablation(stored: Stored) -> str:
    """Accuracy with other pooling and with dropout, minus that of max-pooling without."""
    table = required_rows(gain_table(stored.records, ABLATION), "pooling and dropout")
    known = table[table["points"].notna()].to_dict("records")
    named = ((f"{row['pooling']} pooling and dropout {row['dropout']:g}", points_of(row)) for row in known)
    parts = by_sign(named, "accuracy rises with", "accuracy falls with", "no difference shows for")
    return sentence(f"compared with max-pooling without dropout, {parts}")


@finding
def heads(stored: Stored) -> str:
    """What the LSTM gives over a dense head of its size, however they are trained, and over all others in the way that
    stands first."""
    table = required_rows(lstm_and_heads(stored), "the LSTM beside other heads")
    table = table[table["points"].notna()]
    if table.empty:
        raise NotNow("", "no other head was trained beside the LSTM")
    dense, said = table[table["head"] == "dense"].to_dict("records"), []
    if dense:
        gains = listed(f"{points_text(points_of(row))} ({row['training']})" for row in dense)
        said.append(f"over a dense head of equal size the LSTM gains {gains}")
    others = table[(table["head"] != "dense") & (table["training"] == table["training"].iloc[0])]
    if len(others):
        found = ((NAMES_OF_HEADS[row["head"]], points_of(row)) for row in others.to_dict("records"))
        parts = by_sign(found, "is more accurate than", "is less accurate than", "cannot be told from")
        said.append(f"with {others['training'].iloc[0]}, it {parts}")
    return " ".join(sentence(text) for text in said)


@finding
def paired(stored: Stored) -> str:
    """How many of the distributed trainings are surely as accurate as sequential ones, and which is the furthest."""
    table = required_rows(paired_accuracy(stored), "distributed minus sequential training")
    alike, whole = int(table["within"].sum()), counted(len(table), "cell")
    many = f"all {whole}" if alike == len(table) else f"{alike or 'none'} of {whole}"
    furthest = table.loc[table["points"].abs().idxmax()]
    return sentence(
        f"in {many} several workers are surely as accurate as one to within {MARGIN:g} points; the mean furthest "
        f"off is {points_text(points_of(furthest.to_dict()))}, of {CALLED[furthest['network']]} with "
        f"{counted(int(furthest['workers']), 'worker')}, {furthest['way']}"
    )
