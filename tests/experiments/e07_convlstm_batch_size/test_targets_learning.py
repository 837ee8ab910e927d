"""What notebook 07 aims at: each target reads its own cells, can be missed, and says why where there is no number."""

from __future__ import annotations

import pandas as pd
import pytest

from fake_distribution import not_run, scaled, without
from fake_learning import DROPOUT, GAINS, LARGE_GAIN, NO_TENSORFLOW, TENSORFLOW, records
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.targets import TOO_FEW
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET
from lockstep.engine.training.scores import DIVERGED
from lockstep.experiments.e07_convlstm_batch_size.targets import TARGETS
from lockstep.experiments.report import targets_table
from read_targets import ReadTargets

CNN, CNN_AIM, LSTM, LSTM_AIM, PAIRED, BALANCED, AREA, FRAMEWORKS, SPEED = (target.name for target in TARGETS)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def read(frame: pd.DataFrame) -> ReadTargets:
    return ReadTargets(TARGETS, Stored(frame))


def test_the_targets_are_those_of_the_issue() -> None:
    found = [(target.aim, target.threshold) for target in TARGETS]
    scores = [("≥", 88), ("≥", 0.965)]
    assert found == [("≥", 86), ("≥", 90), ("≥", 86), ("≥", 90), ("≤", 2), *scores, ("≥", 1), ("≥", 1.7)]


def test_every_target_reads_its_own_cells(frame: pd.DataFrame) -> None:
    rows = {name: row for name, row in read(frame).whole().items() if name not in (BALANCED, AREA)}
    found = {name: row["ratio"] for name, row in rows.items()}
    cnn, lstm = 84 + 60 * DROPOUT, 86 + 60 * DROPOUT
    expected = {CNN: cnn, CNN_AIM: cnn, LSTM: lstm, LSTM_AIM: lstm, PAIRED: 0.0, FRAMEWORKS: 1 / TENSORFLOW}
    assert found == pytest.approx(expected | {SPEED: GAINS["processes"] * LARGE_GAIN})
    reached = {name: row["reached"] for name, row in rows.items()}
    assert reached == {
        CNN: "no", CNN_AIM: "no", LSTM: "yes", LSTM_AIM: "no", PAIRED: "yes", FRAMEWORKS: "yes", SPEED: "yes"
    }  # fmt: skip
    assert rows[LSTM]["reason"] == "batch 32, 10 epochs, dropout 0.3; one of 3 candidates"


def test_a_setting_that_validation_did_not_choose_reaches_nothing(frame: pd.DataFrame) -> None:
    other = scaled(frame, "validation_accuracy", 1.1, network="convlstm", class_weights="balanced")
    found = read(other)
    row = found[LSTM]
    assert pd.isna(row["ratio"]) and row["reason"] == "the setting that validation data chose is no finalist"
    assert found[CNN]["ratio"] > 0
    assert read(without(frame, experiment="candidates"))[CNN]["reason"] == "no candidate was measured"


def test_accuracy_on_the_stand_in_reaches_nothing(frame: pd.DataFrame) -> None:
    row = read(frame.assign(data_source="synthetic"))[LSTM]
    assert pd.isna(row["ratio"]) and row["reached"] == NOT_YET and "stand-in" in row["reason"]


def test_the_interval_of_a_pair_must_lie_within(frame: pd.DataFrame) -> None:
    """A mean of 0 with seeds that differ by 5 points either way is not within ± 2."""
    wide = frame.copy()
    hit = (wide["experiment"] == "paired") & (wide["workers"] == 4) & (wide["network"] == "cnn")
    wide.loc[hit, "test_accuracy"] += 0.05 * (wide.loc[hit, "round"] - 2) / 2
    row = read(wide)[PAIRED]
    assert row["reached"] == "no" and row["ratio"] > 2 and "the worst of 4 (" in row["reason"]
    assert "cnn, 4 workers, processes" in row["reason"]


def test_a_pair_that_is_missing_is_not_left_out(frame: pd.DataFrame) -> None:
    """The worst of those that ran was read as the worst of all."""
    failed = read(not_run(frame, "failed", "out of memory", experiment="paired", network="convlstm", workers=4))[PAIRED]
    assert pd.isna(failed["ratio"]) and failed["reached"] == NOT_YET
    assert failed["reason"] == "1 of 4 pairs have no difference: convlstm, 4 workers, processes: out of memory"
    two = read(without(frame, experiment="paired", network="convlstm", workers=4))[PAIRED]
    assert pd.isna(two["ratio"]) and two["reason"] == "convlstm: no data-parallel pair with 4 workers"
    stand_in = read(frame.assign(data_source="synthetic"))[PAIRED]
    assert pd.isna(stand_in["ratio"]) and "stand-in" in stand_in["reason"]
    assert "(cnn and convlstm; 10 epochs)" in read(frame)[PAIRED]["reason"]


@pytest.mark.slow
def test_speed_is_judged_where_it_is_lowest(frame: pd.DataFrame) -> None:
    slow = scaled(
        frame, "images_per_second", 0.85, experiment="speed", network="convlstm", global_batch_size=128, workers=2
    )
    row = read(slow)[SPEED]
    assert row["reached"] == "no" and "convlstm, batch 128" in row["reason"]
    small = scaled(frame, "images_per_second", 0.5, experiment="speed", global_batch_size=32, workers=2)
    assert read(small)[SPEED]["reached"] == "yes", "batches below 128 are no part of the target"
    without_large = frame[(frame["experiment"] != "speed") | (frame["global_batch_size"] < 128)]
    assert read(without_large)[SPEED]["reason"] == "no batch of 128 or more was timed"
    slow = scaled(frame, "step_seconds", 0.7, experiment="speed", framework="tensorflow", strategy="sequential",
                  network="convlstm")  # fmt: skip
    assert read(slow)[FRAMEWORKS]["reached"] == "no"


def test_a_target_says_why_it_has_no_number(frame: pd.DataFrame) -> None:
    missing = read(not_run(frame, "skipped", NO_TENSORFLOW, framework="tensorflow"))
    assert (missing[FRAMEWORKS]["reached"], missing[FRAMEWORKS]["reason"]) == (NEEDS_HARDWARE, NO_TENSORFLOW)
    assert missing[SPEED]["reached"] == "yes"
    failed = read(not_run(frame, "failed", "out of memory", experiment="paired"))
    assert (failed[PAIRED]["reached"], failed[PAIRED]["reason"]) == (NOT_YET, "out of memory")
    assert set(targets_table(TARGETS, no_records())["reached"]) == {NOT_YET}


@pytest.mark.parametrize(("name", "experiment"), [(LSTM, "selected"), (PAIRED, "paired")])
def test_no_target_is_read_without_the_seeds_that_diverged(frame: pd.DataFrame, name: str, experiment: str) -> None:
    lost = read(not_run(frame, "failed", DIVERGED, experiment=experiment, network="convlstm", round=3))
    assert pd.isna(lost[name]["ratio"]) and lost[name]["reached"] == NOT_YET and "diverged" in lost[name]["reason"]
    assert lost[CNN]["ratio"] > 0


@pytest.mark.slow
def test_too_few_seeds_reach_nothing() -> None:
    found = {name: row["reached"] for name, row in read(records(rounds=4)).whole().items()}
    assert found == dict.fromkeys(found, TOO_FEW) | dict.fromkeys((BALANCED, AREA), NOT_YET)
