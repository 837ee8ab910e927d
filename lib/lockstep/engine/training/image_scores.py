"""The score of every image, for what an accuracy alone cannot say: areas under curves, thresholds, patients apart.

A row per image of the held-out and of the test split, by the columns of COLUMNS:

    split       validation | test
    image       its number within the split, from 0, in the order of the files' names
    label       its class, as a number in the order of the classes' names
    patient     a number, the same in both splits and in the training folder; 0: the name of the file tells none
    in_training 1: the patient's number occurs among the images trained on, too; of a test image also among those held
                out of the training folder, which choose thresholds
    score       log odds of class 1, to SIGNIFICANT digits; empty where the network's output is not finite
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockstep.engine.data.patients import UNKNOWN, numbered_patients
from lockstep.engine.data.sources import ImageData
from lockstep.engine.training.scores import Outputs

SCORED: tuple[str, ...] = ("scores", "chosen")
"""Experiments whose images' scores are stored: of networks that were chosen before, for who looks at these chooses."""
COLUMNS = ("split", "image", "label", "patient", "in_training", "score")
SIGNIFICANT = 4

Rows = list[dict[str, float | str]]


def image_scores(train: ImageData, splits: Mapping[str, ImageData | None], outputs: Mapping[str, Outputs]) -> Rows:
    """The rows of all images that were predicted. `splits`: validation and test, None where a job has none; `outputs`:
    logits, float [images, classes], of those splits that were predicted. No rows for other than two classes, for which
    one number per image is no score."""
    data = {split: own for split, own in splits.items() if own is not None and split in outputs}
    if len(train.classes) != 2 or not data:
        return []
    of_train, *of_splits = numbered_patients(train, *data.values())
    patients = dict(zip(data, of_splits, strict=True))
    folder = np.union1d(of_train, patients.get("validation", of_train))
    rows: Rows = []
    for split, own in data.items():
        logits = outputs[split].astype(np.float64)
        shared = np.isin(patients[split], folder if split == "test" else of_train) & (patients[split] != UNKNOWN)
        for image, score in enumerate((logits[:, 1] - logits[:, 0]).tolist()):
            told = float(f"{score:.{SIGNIFICANT}g}") if np.isfinite(score) else float("nan")
            values = (split, image, int(own.labels[image]), int(patients[split][image]), int(shared[image]), told)
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows
