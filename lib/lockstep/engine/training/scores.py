"""Scores of predictions, from a network's outputs: accuracy, loss, area under the ROC curve, confusion matrix.

`outputs` are logits, float [samples, classes]; `labels` are int64 [samples]. If a network has diverged, its outputs are
not finite, and every score is NaN, although `argmax` would still name a class.

Workers compute them, so NumPy alone does: scikit-learn would add its own memory, some 90 MB, to what is measured of
each worker. The tests compare every score with scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Outputs = NDArray[np.floating]
Labels = NDArray[np.int64]

DIVERGED = "diverged: the network's outputs are not finite"
"""The beginning of the reason of a row whose training diverged."""
NO_CLASS = "none"
"""The predicted class of outputs that are not finite."""


def accuracy(outputs: Outputs, labels: Labels) -> float:
    """0-1; NaN where an output is not finite."""
    if not np.isfinite(outputs).all():
        return float("nan")
    return float(np.mean(outputs.argmax(axis=1) == labels))


def balanced_accuracy(outputs: Outputs, labels: Labels) -> float:
    """0-1: the mean recall of the classes that occur; NaN where an output is not finite."""
    if not np.isfinite(outputs).all():
        return float("nan")
    guess = outputs.argmax(axis=1)
    return float(np.mean([float(np.mean(guess[labels == c] == c)) for c in np.unique(labels)]))


def mean_cross_entropy(outputs: Outputs, labels: Labels) -> float:
    """The mean over samples, natural logarithm; NaN where an output is not finite."""
    if not np.isfinite(outputs).all():
        return float("nan")
    exact = outputs.astype(np.float64)
    return float(np.mean(_log_sum(exact) - exact[np.arange(len(labels)), labels]))


def auc(outputs: Outputs, labels: Labels) -> float:
    """Area under the ROC curve, 0-1; of more than two classes the mean over each against the rest.

    NaN where a class does not occur, or where an output is not finite.
    """
    classes = outputs.shape[1]
    if not np.isfinite(outputs).all():
        return float("nan")
    exact = outputs.astype(np.float64)
    # Two classes: the area is the same for both. Log odds order samples as probabilities do, and never round to 1.
    each = [_area(_log_odds(exact, c), labels == c) for c in ([1] if classes == 2 else range(classes))]
    return float(np.mean(each))


def confusion(outputs: Outputs, labels: Labels, classes: Sequence[str]) -> list[dict[str, float | str]]:
    """A row per pair of classes: actual, predicted (names; an output without one has its number), count.

    Samples whose outputs are not finite are predicted as NO_CLASS, of which there are rows only then.
    """
    names = [*classes, *(str(number) for number in range(len(classes), outputs.shape[1]))]
    finite = np.isfinite(outputs).all(axis=1)
    guess = np.where(finite, outputs.argmax(axis=1), len(names))
    names += [] if finite.all() else [NO_CLASS]
    counts = np.zeros((len(classes), len(names)), np.int64)
    np.add.at(counts, (labels, guess), 1)
    return [
        {"actual": actual, "predicted": predicted, "count": int(counts[i, j])}
        for i, actual in enumerate(classes)
        for j, predicted in enumerate(names)
    ]


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """The share of (positive, negative) pairs in which the positive scores higher; ties count half (Mann, Whitney
    1947)."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return float("nan")
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks = (last - (count - 1) / 2.0)[place]  # from 1; tied scores share their mean rank
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _log_odds(outputs: NDArray[np.float64], c: int) -> NDArray[np.float64]:
    return outputs[:, c] - _log_sum(np.delete(outputs, c, axis=1))


def _log_sum(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(sum(exp(row))) of each row."""
    largest = outputs.max(axis=1)
    with np.errstate(invalid="ignore"):
        summed: NDArray[np.float64] = largest + np.log(np.exp(outputs - largest[:, None]).sum(axis=1))
    return summed
