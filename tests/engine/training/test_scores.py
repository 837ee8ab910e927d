"""Scores of predictions, by worked examples and by their definitions."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from lockstep.engine.training import scores


def two(*logits: float) -> np.ndarray:
    """Outputs of two classes, the first one's logit 0."""
    return np.array([[0.0, logit] for logit in logits], np.float32)


def test_the_area_is_the_share_of_pairs_in_the_right_order_ties_half() -> None:
    """Positives 0.8, 0.4, negatives 0.4, 0.1: of four pairs three are in order and one ties, so 3.5 / 4."""
    assert scores.auc(two(0.8, 0.4, 0.4, 0.1), np.array([1, 1, 0, 0])) == pytest.approx(0.875)
    assert scores.auc(two(0.1, 0.8), np.array([0, 1])) == 1.0
    assert scores.auc(two(0.5, 0.5, 0.5), np.array([0, 1, 1])) == 0.5, "outputs that say nothing"


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_score_follows_its_definition(data: st.DataObject) -> None:
    """Of any number of classes, with ties, and with classes that do not occur; the area is of those that all do."""
    classes, count = data.draw(st.integers(2, 5)), data.draw(st.integers(2, 40))
    logits = st.lists(st.integers(-8, 8), min_size=classes, max_size=classes)
    outputs = np.array(data.draw(st.lists(logits, min_size=count, max_size=count)), np.float32) / 2
    label = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count)))
    names, guess = [str(number) for number in range(classes)], outputs.argmax(axis=1)

    def same(value: float) -> object:
        return pytest.approx(value, rel=0, abs=1e-12)

    assert scores.accuracy(outputs, label) == same(np.mean(guess == label))
    recalls = [np.mean(guess[label == c] == c) for c in set(label.tolist())]
    assert scores.balanced_accuracy(outputs, label) == same(np.mean(recalls))
    odds = [math.log(sum(math.exp(x) for x in row)) - row[c] for row, c in zip(outputs.tolist(), label, strict=True)]
    assert scores.mean_cross_entropy(outputs, label) == same(np.mean(odds))
    table = [[int(np.sum((label == i) & (guess == j))) for j in range(classes)] for i in range(classes)]
    assert [row["count"] for row in scores.confusion(outputs, label, names)] == np.ravel(table).tolist()
    if len(set(label.tolist())) < classes:
        assert math.isnan(scores.auc(outputs, label))
        return
    areas = [area_by_pairs(outputs, label, c) for c in ([1] if classes == 2 else range(classes))]
    assert scores.auc(outputs, label) == same(np.mean(areas))


def area_by_pairs(outputs: np.ndarray, label: np.ndarray, c: int) -> float:
    """The share of pairs, one sample of class c and one of another, in which the first has the higher odds."""
    others = np.delete(outputs.astype(float), c, axis=1)
    # The odds that `scores` ranks by, or else ties between samples would hang on how a sum was rounded.
    odds = outputs[:, c] - special.logsumexp(others, axis=1)
    differences = odds[label == c][:, None] - odds[label != c][None, :]
    return float(np.mean((np.sign(differences) + 1) / 2))


@pytest.mark.slow
def test_a_worker_that_scores_nothing_does_not_import_scikit_learn() -> None:
    """It would stand in the memory that is measured of each worker."""
    code = "import sys, lockstep.engine.training.loop; assert not {'sklearn', 'scipy', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
