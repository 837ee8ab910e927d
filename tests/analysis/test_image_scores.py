"""Scores of images: the measures are scikit-learn's, thresholds are those of validation, and draws take patients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score, roc_auc_score

from fake_scores import IMAGES, SEEDS, SHIFTED, scored
from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.image_draws import PatientDraws
from lockstep.analysis.image_scores import (
    DecisionRule,
    SplitScores,
    accuracies,
    areas,
    balanced_accuracies,
    best_balanced_accuracies,
    recalls,
    scores_of_cell,
    shares_of,
)
from lockstep.analysis.stored import Stored

OWN = DecisionRule.of_network(SEEDS)


def splits(stored: Stored, network: str = "cnn") -> dict[str, SplitScores]:
    rows = stored.records[stored.records["network"] == network]
    return scores_of_cell(stored.records, stored.table("scores"), rows)


@pytest.fixture(scope="module")
def stored() -> Stored:
    return scored()


@pytest.fixture(scope="module")
def test(stored: Stored) -> SplitScores:
    return splits(stored)["test"]


def test_a_cell_gets_its_own_rows_of_rounds_that_hold_several(stored: Stored, test: SplitScores) -> None:
    other = splits(stored, "convlstm")["test"]
    assert test.scores.shape == (SEEDS, IMAGES) and test.seeds == tuple(range(SEEDS))
    rising = test.labels == 1
    assert (other.scores - test.scores)[:, rising] == pytest.approx(0.25)
    assert (other.scores - test.scores)[:, ~rising] == pytest.approx(-0.25)


def test_without_weights_the_measures_are_those_of_scikit_learn(test: SplitScores) -> None:
    rounded = replace(test, scores=np.round(test.scores, 1))  # with ties
    for split in (test, rounded):
        guesses = split.scores > 0
        assert areas(split)[0] == pytest.approx([roc_auc_score(split.labels, own) for own in split.scores])
        for ours, theirs in (
            (accuracies(split, OWN), accuracy_score),
            (balanced_accuracies(split, OWN), balanced_accuracy_score),
            (recalls(split, OWN, 1), recall_score),
            (recalls(split, OWN, 0), partial(recall_score, pos_label=0)),
        ):
            assert ours[0] == pytest.approx([theirs(split.labels, own) for own in guesses])


def test_a_weight_of_two_is_the_image_twice(test: SplitScores) -> None:
    random = np.random.default_rng(3)
    weights = random.integers(0, 3, (4, IMAGES)).astype(float)
    for draw in range(4):
        again = np.repeat(np.arange(IMAGES), weights[draw].astype(int))
        drawn = replace(test, scores=test.scores[:, again], labels=test.labels[again])
        assert areas(test, weights)[draw] == pytest.approx(areas(drawn)[0])
        assert balanced_accuracies(test, OWN, weights)[draw] == pytest.approx(balanced_accuracies(drawn, OWN)[0])
        assert accuracies(test, OWN, weights)[draw] == pytest.approx(accuracies(drawn, OWN)[0])


def test_a_draw_without_a_class_has_no_area(test: SplitScores) -> None:
    weights = np.stack([np.ones(IMAGES), (test.labels == 0).astype(float)])
    assert np.isnan(areas(test, weights)).tolist() == [[False] * SEEDS, [True] * SEEDS]
    assert np.isnan(recalls(test, OWN, 1, weights)[1]).all() and (recalls(test, OWN, 0, weights)[1] > 0).all()


def test_a_threshold_is_of_validation_alone_and_moves_with_the_expected_shares(stored: Stored) -> None:
    found = splits(stored)
    validation, test = found["validation"], found["test"]
    even = DecisionRule.fitted(validation, (0.5, 0.5))
    assert shares_of(validation.labels) == (0.5, 0.5)
    # Classes at -1 and 1 with the same spread: the threshold lies about the middle, and test scores are shifted.
    assert -even.intercepts / even.slopes == pytest.approx([0.0] * SEEDS, abs=0.6)
    more_of_1 = DecisionRule.fitted(validation, (0.1, 0.9))
    # Bayes: log odds rise by log(0.9 / 0.1), so that all of validation is given to class 1 more often.
    assert (recalls(test, more_of_1, 1) >= recalls(test, even, 1)).all()
    assert (recalls(test, more_of_1, 0) < recalls(test, even, 0)).all()
    rising = more_of_1.intercepts - even.intercepts
    assert rising == pytest.approx([np.log(9)] * SEEDS, rel=0.35)
    moved = DecisionRule.fitted(replace(validation, scores=validation.scores + SHIFTED), (0.5, 0.5))
    assert (balanced_accuracies(test, moved) >= balanced_accuracies(test, even) - 0.05).all()
    with pytest.raises(AnalysisError, match="needs validation images of both classes"):
        DecisionRule.fitted(replace(validation, labels=np.zeros_like(validation.labels)), (0.5, 0.5))


def test_no_threshold_beats_the_one_that_is_chosen_on_the_images(test: SplitScores) -> None:
    best = best_balanced_accuracies(test)[0]
    for threshold in np.linspace(-3, 4, 15):
        rule = DecisionRule(np.ones(SEEDS), np.full(SEEDS, -threshold))
        assert (balanced_accuracies(test, rule)[0] <= best + 1e-12).all()


def test_images_of_one_patient_do_not_count_as_independent(test: SplitScores) -> None:
    """Every image ten times: with patients told the interval stays as it was, without it shrinks by sqrt(10)."""
    ten = np.repeat(np.arange(IMAGES), 10)
    copied = replace(test, scores=test.scores[:, ten], labels=test.labels[ten], shared=test.shared[ten])
    alone = replace(test, groups=np.arange(IMAGES))
    widths = []
    for split in (alone, replace(copied, groups=ten), replace(copied, groups=np.arange(10 * IMAGES))):
        one = split.of_seeds([0])  # a single network: no spread over seeds
        found = PatientDraws.of(one).estimate(partial(areas, one))
        widths.append(found.high - found.low)
    assert widths[1] == pytest.approx(widths[0], rel=1e-9) and widths[2] == pytest.approx(widths[0] / 10**0.5, rel=0.2)


def test_seeds_that_differ_widen_the_interval_and_equal_ones_do_not(test: SplitScores) -> None:
    same = replace(test, scores=np.repeat(test.scores[:1], SEEDS, axis=0))
    apart = replace(test, scores=test.scores + 2 * np.arange(-2.5, 3)[:, None])
    widths = []
    for split in (same.of_seeds([0]), same, apart):
        rule = DecisionRule.of_network(len(split.seeds))
        found = PatientDraws.of(split).estimate(lambda w, split=split, rule=rule: recalls(split, rule, 1, w))
        assert found.low <= found.value <= found.high and found.rounds == len(split.seeds)
        widths.append(found.high - found.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.1) and widths[2] > 1.3 * widths[0]


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """120 worlds of 4 seeds and 40 patients with 3 images each, who share most of what makes an image hard: of 95 % at
    least 88 % hold; drawing images would hold the truth far less often."""
    random, held, narrow = np.random.default_rng(5), 0, 0
    for _ in range(120):
        patient = np.repeat(random.normal(size=40), 3)
        right = patient + 0.3 * random.normal(size=(4, 120)) + 0.3 * random.normal(size=(4, 1)) > 0
        labels, groups = np.ones(120, np.int64), np.repeat(np.arange(40), 3)
        split = SplitScores(np.where(right, 1.0, -1.0), labels, groups, np.zeros(120, bool), (0, 1, 2, 3))
        rule = DecisionRule.of_network(4)
        for apart in (False, True):
            own = replace(split, groups=np.arange(120)) if apart else split
            found = PatientDraws.of(own, draws=200).estimate(lambda w, own=own, rule=rule: recalls(own, rule, 1, w))
            inside = found.low <= 0.5 <= found.high
            held, narrow = held + (inside and not apart), narrow + (inside and apart)
    assert held / 120 >= 0.88 and narrow < held - 10


def test_a_seed_without_some_scores_is_no_mean_over_the_others(stored: Stored) -> None:
    table = stored.table("scores")
    lost = table.assign(score=table["score"].mask((table["seed"] == 2) & (table["image"] == 5)))
    with pytest.raises(AnalysisError, match="1 of 6 seeds lack scores of some images"):
        splits(Stored(stored.records, {"scores": lost}))
    assert splits(Stored(stored.records, {"scores": table.iloc[:0]})) == {}
