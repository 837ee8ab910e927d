"""Scores of predictions, by worked examples and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lockstep.engine.training import scores


def two(*logits: float) -> np.ndarray:
    """Outputs of two classes, the first one's logit 0."""
    return np.array([[0.0, logit] for logit in logits], np.float32)


def test_the_area_is_the_share_of_pairs_in_the_right_order_ties_half() -> None:
    """Positives 0.8, 0.4, negatives 0.4, 0.1: of four pairs three are in order and one ties, so 3.5 / 4."""
    assert scores.auc(two(0.8, 0.4, 0.4, 0.1), np.array([1, 1, 0, 0])) == pytest.approx(0.875)
    assert scores.auc(two(0.1, 0.8), np.array([0, 1])) == 1.0
    assert scores.auc(two(0.5, 0.5, 0.5), np.array([0, 1, 1])) == 0.5, "outputs that say nothing"


@settings(max_examples=50, deadline=None)
@given(
    logits=st.lists(st.integers(-4, 4), min_size=2, max_size=30),
    labels=st.lists(st.integers(0, 1), min_size=30, max_size=30),
)
def test_the_area_is_mann_and_whitneys(logits: list[int], labels: list[int]) -> None:
    label = np.array(labels[: len(logits)])
    if len(set(label.tolist())) < 2:
        assert math.isnan(scores.auc(two(*logits), label))
        return
    values = np.array(logits)
    u = stats.mannwhitneyu(values[label == 1], values[label == 0]).statistic
    assert scores.auc(two(*logits), label) == pytest.approx(u / (label.sum() * (1 - label).sum()))


def test_of_more_classes_the_area_is_the_mean_of_each_against_the_rest() -> None:
    outputs = np.array([[9.0, 0, 0], [0, 9, 0], [0, 0, 9], [0, 9, 0]])
    label = np.array([0, 1, 2, 2])  # the last is taken for class 1
    # 0: 3 of 3 pairs. 1: its one sample ties with the wrong one, 2.5 of 3. 2: one sample before both, one ties: 3 of 4.
    assert scores.auc(outputs, label) == pytest.approx((1 + 2.5 / 3 + 3 / 4) / 3)
    assert math.isnan(scores.auc(outputs, np.array([0, 1, 1, 1]))), "class 2 does not occur"


def test_sure_outputs_are_still_ordered() -> None:
    """Probabilities of logits 40 and 50 are both 1 in float64; 50 is the surer one all the same."""
    assert scores.auc(two(40, 50), np.array([0, 1])) == 1.0


def test_outputs_that_are_no_numbers_have_no_area() -> None:
    assert math.isnan(scores.auc(two(float("nan"), 1), np.array([0, 1])))


@pytest.mark.parametrize("logit", [float("nan"), float("inf"), float("-inf")])
def test_a_network_that_diverged_is_right_about_nobody(logit: float) -> None:
    """argmax of [0, nan] is 1: it had the accuracy of one that takes everybody for ill."""
    outputs, label = two(logit, logit, 1), np.array([1, 1, 1])
    for score in (scores.accuracy, scores.balanced_accuracy, scores.mean_cross_entropy, scores.auc):
        assert math.isnan(score(outputs, label)), score.__name__
    rows = scores.confusion(outputs, label, ("normal", "ill"))
    counts = {row["predicted"]: row["count"] for row in rows if row["actual"] == "ill"}
    assert counts == {"normal": 0, "ill": 1, "none": 2}


def test_accuracies_count_samples_and_classes() -> None:
    """Of 3 samples of class 0 all are right, of 1 of class 1 none: 3/4, and (1 + 0)/2."""
    outputs, label = two(-1, -1, -1, -1), np.array([0, 0, 0, 1])
    assert scores.accuracy(outputs, label) == 0.75
    assert scores.balanced_accuracy(outputs, label) == 0.5
    assert scores.balanced_accuracy(outputs[:3], label[:3]) == 1.0, "of the classes that occur"


def test_the_loss_of_one_logit_is_binary_cross_entropy() -> None:
    loss = scores.mean_cross_entropy(two(2.0, -1.0), np.array([1, 1]))
    assert loss == pytest.approx(np.mean([math.log1p(math.exp(-2)), math.log1p(math.exp(1))]))
    assert scores.mean_cross_entropy(two(1000.0), np.array([0])) == pytest.approx(1000), "no overflow"


def test_the_confusion_has_every_pair_of_classes() -> None:
    rows = scores.confusion(two(1, -1, 1), np.array([1, 1, 0]), ("normal", "ill"))
    assert rows == [
        {"actual": "normal", "predicted": "normal", "count": 0},
        {"actual": "normal", "predicted": "ill", "count": 1},
        {"actual": "ill", "predicted": "normal", "count": 1},
        {"actual": "ill", "predicted": "ill", "count": 1},
    ]


def test_a_network_with_more_outputs_than_there_are_classes() -> None:
    """What it takes for a class without a name is counted under its number: nothing goes missing."""
    rows = scores.confusion(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), np.array([0, 1]), ("a", "b"))
    assert {(row["actual"], row["predicted"]) for row in rows if row["count"]} == {("a", "2"), ("b", "a")}
    assert sum(int(row["count"]) for row in rows) == 2
