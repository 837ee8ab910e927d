"""Honest accuracy in notebook 07: its cells, and what table, finding, figure and target make of every image's score."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.text import Text

from fake_learning import as_older, confusion, records
from fake_scores import IMAGES, SEEDS, SHARED, scored
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET
from lockstep.engine.job import JobError
from lockstep.engine.training.image_scores import SCORED
from lockstep.engine.training.scores import DIVERGED
from lockstep.experiments.e07_convlstm_batch_size import EXPERIMENT
from lockstep.experiments.e07_convlstm_batch_size.score_cells import SCORES, score_cells
from lockstep.experiments.e07_convlstm_batch_size.score_findings import SCORE_TARGETS
from lockstep.experiments.e07_convlstm_batch_size.tables.choice import choice_table
from lockstep.experiments.e07_convlstm_batch_size.tables.scores import (
    AS_TRAINED,
    CORRECTED,
    OF_VALIDATION,
    expected_shares,
    lstm_areas,
    patient_table,
    score_table,
)
from lockstep.experiments.experiment import Parameters
from read_targets import ReadTargets

CHOSEN = {"use_cases": ["Pneumonia"], "compared": ["cnn", "convlstm"], "epochs": 10, "scored_settings": ["plain", "b"]}
CHOSEN |= {"candidates": {"plain": {}, "b": {"batch_norm": True, "epochs": 3}, "c": {}}}


@pytest.fixture(scope="module")
def stored() -> Stored:
    return scored()


def test_settings_that_were_fixed_before_are_scored_on_both_splits() -> None:
    jobs = score_cells(Parameters(**CHOSEN), "processes")
    assert [(job.network, job.epochs, job.strategy) for job in jobs] == [
        ("cnn", 10, "processes"), ("convlstm", 10, "processes"), ("cnn", 3, "sequential"), ("convlstm", 3, "sequential")
    ]  # fmt: skip
    assert {(job.experiment, job.scored_on) for job in jobs} == {(SCORES, "validation")} and SCORES in SCORED
    with pytest.raises(JobError, match="scored_settings has 'd', which is no candidate; there are: plain, b, c"):
        score_cells(Parameters(**CHOSEN | {"scored_settings": ["d"]}), "processes")


def test_the_expected_shares_are_published_and_never_counted() -> None:
    assert expected_shares("Pneumonia") == (234 / 624, 390 / 624)
    assert expected_shares("LeafDisease") is None


def test_each_rule_has_a_row_and_the_area_is_the_same_for_all(stored: Stored) -> None:
    table = score_table(stored)
    assert table["rule"].tolist() == [AS_TRAINED, OF_VALIDATION, CORRECTED] * 2
    assert table.groupby("network")["auc"].nunique().tolist() == [1, 1]
    assert set(table["seeds"]) == {SEEDS} and set(table["images"]) == {IMAGES}
    assert set(table["patients"]) == {IMAGES // 2 + IMAGES // 4}, "30 without a patient, and 15 patients of two images"
    for name in ("auc", "balanced", "accuracy"):
        assert (table[f"{name}_low"] < table[name]).all() and (table[name] < table[f"{name}_high"]).all()
    cnn = table[table["network"] == "cnn"].set_index("rule")
    # Test scores are SHIFTED towards class 1: a threshold of held-out images is off; more of class 1 makes it worse.
    assert cnn["recall_0"][CORRECTED] < cnn["recall_0"][OF_VALIDATION]
    assert cnn["balanced"].max() <= cnn["at_best"].iloc[0]


def test_the_finding_says_what_thresholds_and_patients_change(stored: Stored) -> None:
    told = EXPERIMENT.findings["scores"](stored)
    assert told.startswith(
        "Validation prefers the ConvLSTM (10 epochs): on test images its area under the curve is 0.9"
    )
    for part in (
        "] as trained, ",
        " with a threshold of held-out images, ",
        " for the published class shares. ",
    ):
        assert part in told
    assert "the splits differ by more than class shares" in told and " % of normal images held out and " in told
    assert len(told.split()) <= 102, "a longer one is not read"
    (more,) = lstm_areas(stored).values()
    assert more.low > 0 and f"The ConvLSTM's area minus the CNN's is {more.value:+.3f} [" in told
    assert "Between patient numbers shared with training and others, recall of pneumonia differs by " in told


def test_shared_patients_stand_apart_and_a_difference_is_told(stored: Stored) -> None:
    table = patient_table(stored)
    assert table["images"].tolist() == [SHARED, IMAGES // 2 - SHARED] * 2
    scores = stored.table("scores")
    easy = scores["score"].mask(scores["in_training"] == 1, 5.0)
    easy = easy.mask((scores["in_training"] == 0) & (scores["image"] % 4 == 1), -5.0)
    flattered = Stored(stored.records, {"scores": scores.assign(score=easy)})
    row = patient_table(flattered).iloc[0]
    assert row["recall"] == 100 and row["more_low"] > 0 and row["auc"] > patient_table(flattered).iloc[1]["auc"]
    assert f"differs by {row['more']:+.2f} points [" in EXPERIMENT.findings["scores"](flattered)
    none = Stored(stored.records, {"scores": scores.assign(in_training=0)})
    assert patient_table(none).empty and "patient number" not in EXPERIMENT.findings["scores"](none)


def test_targets_are_of_the_network_that_validation_prefers_on_real_images(stored: Stored) -> None:
    balanced, area = (target.name for target in SCORE_TARGETS)
    table = score_table(stored).set_index(["network", "rule"])
    rows = ReadTargets(SCORE_TARGETS, stored)
    assert rows[balanced]["ratio"] == pytest.approx(table.loc[("convlstm", CORRECTED), "balanced"])
    assert rows[area]["ratio"] == pytest.approx(table.loc[("convlstm", AS_TRAINED), "auc"])
    assert rows[balanced]["reason"].startswith("the ConvLSTM (10 epochs); as trained: ")
    lower = stored.records.assign(validation_loss=stored.records["validation_loss"].mask(
        stored.records["network"] == "cnn", 0.1))  # fmt: skip
    rows = ReadTargets(SCORE_TARGETS, Stored(lower, stored.tables))
    assert rows[area]["ratio"] == pytest.approx(table.loc[("cnn", AS_TRAINED), "auc"])
    rows = ReadTargets(SCORE_TARGETS, scored(("cnn",), "synthetic"))
    assert rows[area]["reached"] == NOT_YET and "stand-in" in rows[area]["reason"]


def test_a_seed_that_diverged_or_lacks_scores_leaves_no_mean(stored: Stored) -> None:
    lost = stored.records["round"] == 2
    failed = stored.records.assign(
        status=stored.records["status"].mask(lost, "failed"), reason=stored.records["reason"].mask(lost, DIVERGED)
    )
    for records_of, table in ((failed, stored.table("scores")), (stored.records, pd.DataFrame())):
        less = Stored(records_of, {"scores": table})
        found = score_table(less)
        assert found["status"].tolist() == ["failed"] * 2 and found["reason"].str.len().gt(0).all()
        told = EXPERIMENT.findings["scores"](less)
        assert told.startswith("These records do not answer this yet: scores of every image need 5 seeds")
        assert EXPERIMENT.figures["scores"](less).axes
    assert "1 of 6 seeds diverged" in score_table(Stored(failed, stored.tables))["reason"].iloc[0]


def test_the_figure_has_a_row_for_each_network_and_one_for_the_paper(stored: Stored) -> None:
    figure = EXPERIMENT.figures["scores"](stored)
    areas, balanced, accuracy = figure.axes
    assert [len(axis.containers) for axis in (areas, balanced, accuracy)] == [2, 6, 6]
    labels = [tick.get_text().split("\n")[0] for tick in areas.get_yticklabels()]
    assert labels == ["CNN", "ConvLSTM (CNN → LSTM)", "published ConvLSTM"]
    said = {found.get_text() for found in figure.findobj(Text)}
    assert {AS_TRAINED, OF_VALIDATION, CORRECTED} <= said


def test_a_candidates_test_scores_are_neither_read_nor_shown() -> None:
    """Older records have them: whatever they were, the choice and all that is shown stay the same."""
    frame, counted = records(5), confusion(5)
    shown = ("candidates", "candidate_classes", "choice")
    new, old = Stored(frame, {"confusion": counted}), Stored(as_older(frame), {"confusion": _with_test_rows(counted)})
    for name in shown:
        now, before = EXPERIMENT.tables[name](new), EXPERIMENT.tables[name](old)
        pd.testing.assert_frame_equal(now, before)
    told = EXPERIMENT.tables["candidates"](old)
    assert "accuracy" not in told and "auc" not in told and len(told) == 6
    assert set(EXPERIMENT.tables["candidate_classes"](old)["split"]) == {"validation"}
    assert EXPERIMENT.findings["candidates"](old) == EXPERIMENT.findings["candidates"](new)
    older = as_older(frame[frame["experiment"] == "candidates"])
    both = pd.concat([older, frame], ignore_index=True)
    assert choice_table(both).equals(choice_table(frame)), "a seed that was trained both ways is one"


def _with_test_rows(counted: pd.DataFrame) -> pd.DataFrame:
    own = counted[counted["experiment"] == "candidates"]
    return pd.concat([counted, own.assign(split="test", count=own["count"] + 1)], ignore_index=True)
