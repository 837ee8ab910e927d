"""What notebook 07's figures of settings, classes and ways show, in sentences computed from its records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.seeds import ABLATION, MARGIN, SELECTED
from lockstep.analysis.sentences import counted, finding, in_words, listed, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e07_convlstm_batch_size.answer import (
    CALLED,
    by_sign,
    largest_batch,
    none_or,
    points_of,
    points_text,
)
from lockstep.experiments.e07_convlstm_batch_size.tables import (
    candidate_accuracy,
    choices,
    learning_accuracy,
    lstm_and_heads,
    paired_accuracy,
    quoted_confusion,
)
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import gain_table, setting_text
from lockstep.experiments.e07_convlstm_batch_size.tables.classes import class_table
from lockstep.experiments.e07_convlstm_batch_size.tables.heads import CALLED as NAMES_OF_HEADS
from lockstep.experiments.fixed_batch import PLAIN_BATCH


def required_rows(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """The rows that rest on as many seeds as an interval needs. Raises NotNow where there are none."""
    known = table[table["seeds"] >= MIN_ROUNDS] if len(table) else table
    if known.empty:
        raise NotNow("", f"{what} needs {MIN_ROUNDS} seeds")
    return known


@finding
def gap(stored: Stored) -> str:
    """What a larger batch does to train minus test accuracy on the first use case, and how large that is with the
    smallest and the largest batch."""
    table = required_rows(learning_accuracy(stored), "the gap")
    table = table[(table["framework"] == "torch") & (table["way"] == "data parallel") & (table["updates"] == 0)]
    table = required_rows(table[table["rule"] == "constant"], "the gap of Table 2's settings")
    case, parts, said = table["use_case"].iloc[0], [], []
    table = table[table["use_case"] == case]
    try:
        most, found = largest_batch(stored, "gap")
        named = ((CALLED[cell["network"]], points) for cell, points in found if cell["use_case"] == case)
        change = by_sign(named, "grows for", "shrinks for", "shows no difference for")
        alike = "at as many epochs and with the same seeds"
        said.append(f"with batch {most} instead of {PLAIN_BATCH}, {alike}, the gap on {case} {change}")
    except NotNow:
        pass  # the gaps stand all the same
    for network, own in table.groupby("network", sort=False):
        ends = own.sort_values("global_batch_size").iloc[[0, -1] if len(own) > 1 else [0]]
        texts = [
            f"{row['gap']:.3g} points [{row['gap_low']:.3g}, {row['gap_high']:.3g}] with batch "
            f"{row['global_batch_size']}"
            for row in ends.to_dict("records")
        ]
        parts.append(f"{CALLED[str(network)]}'s gap is {listed(texts)}")
    each = f"Over all seeds, {'; '.join(parts)}"
    return " ".join(sentence(text) for text in [*said, each])


@finding
def candidates(stored: Stored) -> str:
    """What validation's choice comes to on held-out images, as it is drawn, and whether its lead is chance."""
    table, said = candidate_accuracy(stored), []
    for row in (row for row in choices(stored).to_dict("records") if row["consistent"] == "yes"):
        own = table[(table["use_case"] == row["use_case"]) & (table["network"] == row["network"])].to_dict("records")
        drawn = next(each for each in own if setting_text(each) == row["chosen"])
        if drawn["seeds"] < MIN_ROUNDS or pd.isna(row["lead_low"]):
            continue
        lead = Estimate(row["lead"], row["lead_low"], row["lead_high"], MIN_ROUNDS, logarithmic=False)
        chance = "which may be chance" if lead.low <= 0 <= lead.high else "which is more than chance"
        reached = f"{drawn['validation']:.3g} % [{drawn['validation_low']:.3g}, {drawn['validation_high']:.3g}]"
        said.append(
            f"validation's setting of {CALLED[row['network']]} reaches {reached} on held-out images; it leads the next "
            f"one by {points_text(lead)}, {chance}"
        )
    if not said:
        raise NotNow("", f"validation's choice needs {MIN_ROUNDS} seeds, and every candidate as many")
    return " ".join(sentence(text) for text in [*said, *_left_out(stored)])


def _left_out(stored: Stored) -> list[str]:
    """Networks whose choice is not quoted, and why: as the targets say it."""
    found = [row for row in choices(stored).to_dict("records") if row["consistent"] != "yes"]
    reasons = {"no": "the setting that validation data chose is no finalist"}
    return [
        f"for {CALLED[row['network']]} no setting is quoted: {reasons.get(row['consistent'], row['consistent'])}"
        for row in found
    ]


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
            f"{CALLED[str(network)]}'s lowest recall on {use_case} is {recall}, of class {least['class']}; "
            f"it predicts that class for {least['predicted_share']:.3g} % of images, and "
            f"{least['actual_share']:.3g} % have it"
        )
    return " ".join(sentence(text) for text in [*said, *_left_out(stored)])


@finding
def ablation(stored: Stored) -> str:
    """In how many settings accuracy differs from that of max-pooling without dropout, and by how much in each."""
    table = required_rows(gain_table(stored.records, ABLATION), "pooling and dropout")
    known = table[table["points"].notna()]
    named = ((f"{_other_than_plain(row)} in {CALLED[row['network']]}", points_of(row))
             for row in known.to_dict("records"))  # fmt: skip
    parts = by_sign(named, "accuracy rises with", "accuracy falls with", "no difference shows for")
    rises, falls = (none_or(int(side.sum())) for side in (known["points_low"] > 0, known["points_high"] < 0))
    many = f"rises in {rises} of {counted(len(known), 'other setting')} and falls in {falls}"
    return f"{sentence(f'compared with max-pooling without dropout, accuracy {many}')} {sentence(parts)}"


def _other_than_plain(row: Mapping[Hashable, Any]) -> str:
    """Average pooling; dropout 0.5; average pooling with dropout 0.5."""
    pooling = str(row["pooling"]).replace("none", "no")
    parts = {f"{pooling} pooling": row["pooling"] != "max", f"dropout {row['dropout']:g}": row["dropout"] > 0}
    return " with ".join(part for part, other in parts.items() if other)


@finding
def heads(stored: Stored) -> str:
    """Whether the LSTM is more accurate than another head; beside a dense head of its size, however they are trained,
    and the largest difference from the others, or without one all of the way that stands first."""
    table = required_rows(lstm_and_heads(stored), "the LSTM beside other heads")
    table = table[table["points"].notna()]
    if table.empty:
        raise NotNow("", "no other head was trained beside the LSTM")
    more, less = (none_or(int(side.sum())) for side in (table["points_low"] > 0, table["points_high"] < 0))
    many = f"{more} of {counted(len(table), 'comparison')}, and less accurate in {less}"
    said = [f"the LSTM is shown to be more accurate than another head in {many}"]
    dense = [(row["training"], points_of(row)) for row in table[table["head"] == "dense"].to_dict("records")]
    if dense:
        parts = by_sign(dense, "is more accurate with", "is less accurate with", "cannot be told apart with")
        said.append(f"beside a dense head of equal size it {parts}")
    others = table[table["head"] != "dense"]
    shown = (others["points_low"] > 0) | (others["points_high"] < 0)
    if shown.any():
        row = others.loc[others["points"].where(shown).abs().idxmax()].to_dict()
        largest = f"{NAMES_OF_HEADS[row['head']]} with {row['training']} ({points_text(points_of(row))})"
        many = f"{in_words(int(shown.sum()))} of {in_words(len(others))}"
        said.append(f"of the differences from the others that are shown ({many}), the largest is from {largest}")
    elif len(first := others[others["training"] == table["training"].iloc[0]]):
        found = ((NAMES_OF_HEADS[row["head"]], points_of(row)) for row in first.to_dict("records"))
        than = ("is more accurate than", "is less accurate than", "cannot be told apart from")
        said.append(f"with {first['training'].iloc[0]}, it {by_sign(found, *than)}")
    return " ".join(sentence(text) for text in said)


@finding
def paired(stored: Stored) -> str:
    """How many of the distributed trainings are as accurate as sequential ones, after how long, and which is the
    furthest."""
    table = required_rows(paired_accuracy(stored), "distributed minus sequential training")
    alike, whole = int(table["within"].sum()), counted(len(table), "cell")
    many = f"all {whole}" if alike == len(table) else f"{none_or(alike)} of {whole}"
    furthest = table.loc[table["points"].abs().idxmax()]
    settings = zip(table["budget"], table["global_batch_size"], strict=True)
    long = listed(dict.fromkeys(f"{budget} with batch {batch}" for budget, batch in settings))
    return sentence(
        f"after {long}, several workers are within {MARGIN:g} points of one's accuracy with 95 % confidence in {many} "
        f"({counted(int(table['seeds'].min()), 'seed')} or more); the mean furthest off is "
        f"{points_text(points_of(furthest.to_dict()))}, of {CALLED[furthest['network']]} with "
        f"{counted(int(furthest['workers']), 'worker')}, {furthest['way']}"
    )
