"""Scores of predictions by scikit-learn: accuracy, loss, area under the ROC curve, confusion matrix.

`outputs` are logits, float [samples, classes]; `labels` are int64 [samples]. If a network has diverged, its outputs are
not finite, and every score is NaN, although `argmax` would still name a class.

scikit-learn is imported by the first score: it adds some 90 MB to a worker, which a cell that is only timed must not
pay.
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
    from sklearn.metrics import accuracy_score

    if not np.isfinite(outputs).all():
        return float("nan")
    return float(accuracy_score(labels, outputs.argmax(axis=1)))


def balanced_accuracy(outputs: Outputs, labels: Labels) -> float:
    """0-1: the mean recall of the classes that occur; NaN where an output is not finite."""
    from sklearn.metrics import recall_score

    if not np.isfinite(outputs).all():
        return float("nan")
    # Not balanced_accuracy_score: it warns about classes that are predicted and do not occur.
    occurring = np.unique(labels)
    return float(recall_score(labels, outputs.argmax(axis=1), labels=occurring, average="macro", zero_division=0))


def mean_cross_entropy(outputs: Outputs, labels: Labels) -> float:
    """The mean over samples, natural logarithm; NaN where an output is not finite."""
    from scipy.special import log_softmax

    if not np.isfinite(outputs).all():
        return float("nan")
    # Not log_loss: it takes probabilities, of which a network that is sure of a wrong class has a 0.
    return float(-log_softmax(outputs.astype(np.float64), axis=1)[np.arange(len(labels)), labels].mean())


def auc(outputs: Outputs, labels: Labels) -> float:
    """Area under the ROC curve, 0-1; of more than two classes the mean over each against the rest.

    NaN where a class does not occur, or where an output is not finite.
    """
    from sklearn.metrics import roc_auc_score

    classes = outputs.shape[1]
    if not np.isfinite(outputs).all() or len(np.unique(labels)) < classes:
        return float("nan")
    exact = outputs.astype(np.float64)
    # Two classes: the area is the same for both. Log odds order samples as probabilities do, and never round to 1.
    each = [roc_auc_score(labels == c, _log_odds(exact, c)) for c in ([1] if classes == 2 else range(classes))]
    return float(np.mean(each))


def confusion(outputs: Outputs, labels: Labels, classes: Sequence[str]) -> list[dict[str, float | str]]:
    """A row per pair of classes: actual, predicted (names; an output without one has its number), count.

    Samples whose outputs are not finite are predicted as NO_CLASS, of which there are rows only then.
    """
    from sklearn.metrics import confusion_matrix

    names = [*classes, *(str(number) for number in range(len(classes), outputs.shape[1]))]
    finite = np.isfinite(outputs).all(axis=1)
    guess = np.where(finite, outputs.argmax(axis=1), len(names))
    names += [] if finite.all() else [NO_CLASS]
    counts = confusion_matrix(labels, guess, labels=range(len(names)))
    return [
        {"actual": actual, "predicted": predicted, "count": int(counts[i, j])}
        for i, actual in enumerate(classes)
        for j, predicted in enumerate(names)
    ]


def _log_odds(outputs: NDArray[np.float64], c: int) -> NDArray[np.float64]:
    from scipy.special import logsumexp

    odds: NDArray[np.float64] = outputs[:, c] - logsumexp(np.delete(outputs, c, axis=1), axis=1)
    return odds
