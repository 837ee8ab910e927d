"""Scores of predictions where labels are no classes: numbers to reach, or several labels of 0 and 1 per sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from lockstep.engine.data.sources import Labels
from lockstep.engine.models.losses import Loss
from lockstep.engine.training.scores import Outputs


def mean_loss(loss: Loss, outputs: Outputs, labels: Labels) -> float:
    """The mean of `loss`, which gives one value per sample."""
    with torch.no_grad():
        return float(loss(torch.from_numpy(outputs), torch.from_numpy(labels)).mean())


def target_scores(outputs: Outputs, labels: Labels, scored: str = "") -> dict[str, float]:
    """Scores of outputs for labels that are no classes, both [samples, ...]: floats, or several labels of 0 or 1.

    `scored` is what the loss compares: "numbers", "labels" of 0 and 1, or "loss" for neither; "" (a reader's own loss):
    the labels tell it. Means over the labels of a sample. Labels of 0 and 1 alone: auc and average_precision of those
    that occur with both values (NaN if none does); both order samples, so that logits and probabilities give the same.
    Other floats: mean_squared_error, mean_absolute_error and r2 (1: exact, 0: no better than the mean). NaN where an
    output is not finite. Empty for whole numbers per place of a sequence, where outputs and labels are not of one size,
    and for labels between 0 and 1 that the loss takes for probabilities.
    """
    from sklearn import metrics

    if outputs.size != labels.size or scored == "loss":
        return {}
    outputs, labels = outputs.reshape(len(labels), -1), labels.reshape(len(labels), -1)
    measures: dict[str, Callable[..., float]]
    if scored != "numbers" and np.isin(labels, (0, 1)).all():
        both = np.flatnonzero((labels.min(axis=0) == 0) & (labels.max(axis=0) == 1))
        outputs, labels = outputs[:, both], labels[:, both]
        measures = {"auc": metrics.roc_auc_score, "average_precision": metrics.average_precision_score}
    elif scored != "labels" and np.issubdtype(labels.dtype, np.floating):
        measures = {name: getattr(metrics, name) for name in ("mean_squared_error", "mean_absolute_error")}
        measures["r2"] = metrics.r2_score
    else:
        return {}
    if not outputs.size or not np.isfinite(outputs).all():
        return dict.fromkeys(measures, float("nan"))
    columns = range(outputs.shape[1])
    return {
        name: float(np.mean([measure(labels[:, column], outputs[:, column]) for column in columns]))
        for name, measure in measures.items()
    }
