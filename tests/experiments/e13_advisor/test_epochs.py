"""From how long an epoch on a second worker pays."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import fake_advisor
from lockstep.analysis.stored import Stored
from lockstep.experiments.e13_advisor.epochs import epochs_table, paying_seconds
from lockstep.experiments.readme import fill_tables


def test_a_start_of_two_seconds_is_paid_back_by_what_the_epochs_save() -> None:
    """Of a worker's 6 s, one half as quick again saves 2 s; of four epochs of 1.5 s half a second each."""
    assert paying_seconds(2.0, 1.5, 1) == pytest.approx(6.0)
    assert paying_seconds(2.0, 1.5, 4) == pytest.approx(1.5)
    assert paying_seconds(2.0, 1.0, 1) == math.inf == paying_seconds(2.0, 0.8, 10)


def test_what_was_measured_takes_the_place_of_the_prediction() -> None:
    """Cells that follow the model of costs to the last digit: both say the same, and the measured gain is the surer."""
    table = epochs_table(fake_advisor.stored(rounds=8, off=0.0, noise=0.01))
    row = table[table["model"] == "an MLP-Mixer"].iloc[0]  # as the notebook calls it
    predicted, measured = (float(row[f"{name} gain"].split()[0]) for name in ("predicted", "measured"))
    assert measured == pytest.approx(predicted, rel=0.02)
    start = float(row["start"].removesuffix(" s"))
    assert float(row["pays from, 1 epoch"].split()[0]) == pytest.approx(paying_seconds(start, measured, 1), rel=0.05)


def test_nothing_is_known_before_anything_is_stored(tmp_path: Path) -> None:
    empty = fake_advisor.stored(rounds=1)
    assert epochs_table(Stored(empty.records.iloc[:0], {})).empty
    text = "<!-- table:epochs -->\n<!-- /table -->"
    assert "not measured yet" in fill_tables(text, tmp_path)
