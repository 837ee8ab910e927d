"""What the stored score of every image says (`scores.csv`): areas under curves, recalls, and thresholds of validation.

Everything is computed for many weightings of the images at once, for a bootstrap draws patients, not images
(`lockstep.analysis.image_draws`). A measure is a float array [weightings, seeds]; without weights there is one
weighting, in which each image counts once, and scikit-learn's functions give the same numbers, as a test shows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockstep.analysis.confidence import AnalysisError

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

VALIDATION, TEST = "validation", "test"
CLASSES = (0, 1)


@dataclass(frozen=True, eq=False)
class SplitScores:
    """The images of one split, as the networks of several seeds score them.

    scores: log odds of class 1 [seeds, images]. labels: 0 or 1 [images]. groups: images of one patient share a number;
    one whose file name tells no patient is a group of its own [images]. shared: the patient's number also occurs in
    the training folder [images].
    """

    scores: Numbers
    labels: NDArray[np.int64]
    groups: NDArray[np.int64]
    shared: Flags
    seeds: tuple[int, ...]

    def of_seeds(self, seeds: Collection[int]) -> SplitScores:
        """The same images by those networks whose seed is among `seeds`."""
        kept = [place for place, seed in enumerate(self.seeds) if seed in seeds]
        return replace(self, scores=self.scores[kept], seeds=tuple(self.seeds[place] for place in kept))


def scores_of_cell(records: pd.DataFrame, table: pd.DataFrame, rows: pd.DataFrame) -> dict[str, SplitScores]:
    """By split, the images' scores of the cell whose rows of `records` are `rows`; empty where none were stored.

    The table names a row of records by its round, its place in the round, and, to be sure, its seed. Raises
    AnalysisError where a seed has other images than the others, or outputs that were not finite: a mean over the other
    seeds would hide that.
    """
    if table.empty or rows.empty:
        return {}
    places = records.groupby("round", sort=False).cumcount().loc[rows.index]
    wanted = pd.DataFrame({"round": rows["round"], "row": places, "seed": rows["seed"]})
    own = table.merge(wanted, on=["round", "row", "seed"]).drop_duplicates(["split", "seed", "image"])
    return {str(split): _of_split(part) for split, part in own.groupby("split", sort=False)}


def _of_split(own: pd.DataFrame) -> SplitScores:
    wide = own.pivot(index="seed", columns="image", values="score")
    if wide.isna().to_numpy().any():
        lost = int(wide.isna().any(axis=1).sum())
        raise AnalysisError(f"{lost} of {len(wide)} seeds lack scores of some images: there is no mean over all seeds")
    images = own.drop_duplicates("image").set_index("image").loc[wide.columns]
    patients = images["patient"].to_numpy(dtype=np.int64)
    alone = -1 - np.arange(len(patients))  # no patient's number
    return SplitScores(
        scores=wide.to_numpy(dtype=np.float64),
        labels=images["label"].to_numpy(dtype=np.int64),
        groups=np.where(patients > 0, patients, alone),
        shared=images["in_training"].to_numpy() == 1,
        seeds=tuple(int(seed) for seed in wide.index),
    )


def areas(split: SplitScores, weights: Numbers | None = None, kept: Flags | None = None) -> Numbers:
    """The area under the ROC curve, 0-1 [weightings, seeds]; NaN where a class has no weight.

    `weights` [weightings, images]; `kept`: which images of class 1 count [images], beside all of class 0.
    """
    weights = np.ones((1, len(split.labels))) if weights is None else weights
    rising = split.labels == 1 if kept is None else (split.labels == 1) & kept
    above, below = weights[:, rising], weights[:, split.labels == 0]
    pairs = above.sum(axis=1) * below.sum(axis=1)
    found = []
    for scores in split.scores:
        high, low = scores[rising][:, None], scores[split.labels == 0][None, :]
        right = (high > low) + 0.5 * (high == low)
        found.append(((above @ right) * below).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return np.stack(found, axis=1) / np.where(pairs > 0, pairs, np.nan)[:, None]


@dataclass(frozen=True)
class DecisionRule:
    """Class 1 where slope x score + intercept is above 0; one of each seed, [seeds]. The network's own: score above
    0."""

    slopes: Numbers
    intercepts: Numbers

    @classmethod
    def of_network(cls, seeds: int) -> DecisionRule:
        return cls(np.ones(seeds), np.zeros(seeds))

    @classmethod
    def fitted(cls, validation: SplitScores, shares: tuple[float, float]) -> DecisionRule:
        """A logistic regression of the labels on the score of validation images (Platt 1999), in which the classes
        weigh as `shares` has them: the threshold is where both are equally probable among images with those shares.
        So shares other than validation's correct for a prior that differs (Elkan 2001). No test image is looked at.

        A regression, not the threshold with the fewest errors, which jumps with single images of a few hundred. Raises
        AnalysisError where validation lacks a class.
        """
        from sklearn.linear_model import LogisticRegression

        counts = np.bincount(validation.labels, minlength=2)
        if not counts.all():
            raise AnalysisError("a threshold needs validation images of both classes")
        weights = {c: shares[c] * len(validation.labels) / counts[c] for c in CLASSES}
        slopes, intercepts = [], []
        for scores in validation.scores:
            model = LogisticRegression(C=1e3, class_weight=weights, solver="newton-cholesky").fit(
                scores[:, None], validation.labels
            )
            slopes.append(float(model.coef_[0, 0]))
            intercepts.append(float(model.intercept_[0]))
        return cls(np.array(slopes), np.array(intercepts))

    def guesses(self, split: SplitScores) -> NDArray[np.int64]:
        """The class that each image is given, 0 or 1 [seeds, images]."""
        return (self.slopes[:, None] * split.scores + self.intercepts[:, None] > 0).astype(np.int64)


def shares_of(labels: NDArray[np.int64]) -> tuple[float, float]:
    """The shares of classes 0 and 1 among the images."""
    ones = float((labels == 1).mean())
    return 1 - ones, ones


def recalls(
    split: SplitScores, rule: DecisionRule, label: int, weights: Numbers | None = None, kept: Flags | None = None
) -> Numbers:
    """The share of a class's images that is given this class, 0-1 [weightings, seeds]; NaN where none has weight.
    `kept`: which images count [images]."""
    weights = np.ones((1, len(split.labels))) if weights is None else weights
    own = split.labels == label if kept is None else (split.labels == label) & kept
    right = (rule.guesses(split)[:, own] == label).astype(np.float64)
    total = weights[:, own].sum(axis=1)
    return (weights[:, own] @ right.T) / np.where(total > 0, total, np.nan)[:, None]


def balanced_accuracies(split: SplitScores, rule: DecisionRule, weights: Numbers | None = None) -> Numbers:
    """The mean recall of both classes, 0-1 [weightings, seeds]."""
    both: Any = [recalls(split, rule, label, weights) for label in CLASSES]
    return np.mean(both, axis=0)


def best_balanced_accuracies(split: SplitScores) -> Numbers:
    """The highest balanced accuracy of any threshold on the score, chosen on these very images, 0-1 [1, seeds]."""
    from sklearn.metrics import roc_curve

    curves = (roc_curve(split.labels, scores) for scores in split.scores)
    return np.array([[float((1 - false + true).max()) / 2 for false, true, _ in curves]])


def accuracies(split: SplitScores, rule: DecisionRule, weights: Numbers | None = None) -> Numbers:
    """The share of images that are given their class, 0-1 [weightings, seeds]."""
    weights = np.ones((1, len(split.labels))) if weights is None else weights
    right = (rule.guesses(split) == split.labels).astype(np.float64)
    return (weights @ right.T) / weights.sum(axis=1)[:, None]
