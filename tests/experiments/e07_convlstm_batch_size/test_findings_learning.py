"""What notebook 07 says: on the stored reference, and on made-up records where the answer flips."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fake_learning import confusion, head_records, operators, records
from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.stored import Stored
from lockstep.experiments.e07_convlstm_batch_size import EXPERIMENT
from lockstep.experiments.e07_convlstm_batch_size.answer import batch_differences
from lockstep.experiments.e07_convlstm_batch_size.tables import lstm_difference
from stored_reference import stored_reference

NOT_YET = ("heads",)
"""Findings whose cells the reference records do not hold yet."""


@pytest.fixture(scope="module")
def made() -> Stored:
    frame = pd.concat([records(), head_records()], ignore_index=True)
    return Stored(frame, {"confusion": confusion(), "operators": operators()})


@pytest.fixture(scope="module")
def reference(root: Path) -> Stored:
    return stored_reference(root / "results" / "reference" / EXPERIMENT.name)


def said(name: str, stored: Stored) -> str:
    return EXPERIMENT.findings[name](stored)


def answer(stored: Stored) -> str:
    assert EXPERIMENT.answer is not None
    return EXPERIMENT.answer(stored)


def moved(stored: Stored, points: float, column: str = "test_accuracy", **where: object) -> Stored:
    """The same records with one column of some cells changed by so many percentage points."""
    frame = stored.records.copy()
    rows = pd.Series(True, index=frame.index)
    for name, value in where.items():
        rows &= frame[name] == value
    assert rows.any()
    frame.loc[rows, column] += points / 100
    return Stored(frame, stored.tables)


@pytest.mark.parametrize("name", EXPERIMENT.findings)
def test_findings_are_short_sentences_with_numbers(made: Stored, reference: Stored, name: str) -> None:
    for stored in (made, *([] if name in NOT_YET else [reference])):
        text = said(name, stored)
        assert text[0].isupper() and text.endswith(".") and "nan" not in text and "inf]" not in text
        assert re.search(r"\d", text) and "not answer" not in text
    assert len(text.split()) <= 105, "a longer one is not read"


def test_the_answer_of_the_reference_is_that_of_the_records(reference: Stored) -> None:
    text = answer(reference)
    found = [(cell, points) for cell, points in batch_differences(reference.shown) if points.rounds >= MIN_ROUNDS]
    most = max(cell["global_batch_size"] for cell, _ in found)
    assert text.startswith(f"With batch {most} instead of 32, at as many epochs and over the seeds that both have, ")
    for cell, points in found:
        told = f"on {cell['use_case']} ({points.value:+.3g} points [{points.low:.3g}, {points.high:.3g}]"
        assert told in text or cell["global_batch_size"] < most
    table = lstm_difference(reference.shown)
    plain = table[(table["setting"] == "batch 32, 10 epochs") & (table["way"] == "data parallel")]
    known = plain[(plain["framework"] == "torch") & (plain["seeds"] >= MIN_ROUNDS)].to_dict("records")
    for row in known:
        unsure = row["points_low"] <= 0 <= row["points_high"]
        does = "makes no difference that shows" if unsure else f"{'raises' if row['points'] > 0 else 'lowers'} accuracy"
        points = re.escape(f"{row['points']:+.3g} points")
        assert re.search(rf"{does}[^;]* on {row['use_case']} \({points}", text)
    assert known and re.search(r"Batches up to \d+ were timed: an epoch of the CNN in two processes", text)


def test_the_figure_of_accuracy_tells_first_what_the_batch_does(made: Stored) -> None:
    text = said("accuracy", made)
    assert text.startswith("With batch 512 instead of 32, ") and " Accuracy and area under the curve with batch" in text
    small = made.records[made.records["global_batch_size"] == 32]
    assert said("accuracy", Stored(small)).startswith("Accuracy and area under the curve with batch 32 are: ")
    assert "do not answer this yet" in said("accuracy", Stored(records(2)))


def test_a_larger_batch_that_costs_accuracy_is_said_to_cost(made: Stored) -> None:
    assert "accuracy falls for the CNN on Pneumonia (-2 points" in answer(made)
    gains = moved(made, 5, experiment="learning", network="cnn", global_batch_size=512, use_case="Pneumonia")
    assert "accuracy rises for the CNN on Pneumonia (+3 points" in answer(gains)
    alike = moved(made, 2, experiment="learning", network="cnn", global_batch_size=512, use_case="Pneumonia")
    assert re.search(r"no difference shows for the CNN on Pneumonia", answer(alike))


def test_an_lstm_that_gains_or_loses_is_said_to(made: Stored) -> None:
    plain = {"experiment": "learning", "network": "convlstm", "global_batch_size": 32, "updates": 0}
    assert "the LSTM behind the CNN raises accuracy on" in answer(made)
    assert "the LSTM behind the CNN lowers accuracy on" in answer(moved(made, -5, **plain))
    assert "the LSTM behind the CNN makes no difference that shows on" in answer(moved(made, -2, **plain))


def test_an_lstm_that_learns_more_slowly_is_said_to_once_an_interval_shows_it(made: Stored) -> None:
    slow = moved(made, -10, experiment="learning", network="convlstm")
    lower = r"its mean accuracy is lower in all \w+ settings? \(.*?\), by the whole interval in [1-9]\d* of them\."
    assert re.search(lower, answer(slow)) and "learns more slowly" not in answer(slow)
    assert "learns more slowly is open" in answer(made), "there its mean is higher"


def test_time_that_is_saved_is_said_to_be(made: Stored) -> None:
    assert "what that saves is not known yet" not in answer(made)
    frame = made.records.copy()
    large = (frame["experiment"] == "speed") & (frame["global_batch_size"] == 128)
    frame.loc[large, "epoch_seconds"] *= 0.1
    assert re.search(r"with batch 128 takes 0\.0\d+ times as long as with 32", answer(Stored(frame)))
    assert "Batches up to 128 were timed: " in answer(made)


def test_few_seeds_are_not_an_answer() -> None:
    text = answer(Stored(records(2)))
    assert text.count("Not known yet") == 2 and "raises accuracy" not in text


def test_distributing_that_costs_accuracy_is_not_alike(made: Stored) -> None:
    assert re.match(r"In all \w+ cells? several workers are surely as accurate", said("paired", made))
    worse = moved(made, -9, experiment="paired", strategy="processes")
    assert not said("paired", worse).startswith("In all") and "mean furthest off is -9" in said("paired", worse)


def test_pooling_that_costs_accuracy_is_said_to(made: Stored) -> None:
    worse = moved(made, -9, experiment="ablation", pooling="average")
    assert "accuracy falls with average pooling" in said("ablation", worse)
