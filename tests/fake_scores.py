"""Scores of images as notebook 07 could have stored them: made up, with a few patients and exact ways to be wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lockstep.analysis.stored import Stored
from lockstep.experiments.e07_convlstm_batch_size.score_cells import SCORES
from lockstep.experiments.fixed_batch import trained
from lockstep.records import COLUMNS, make_row

SEEDS = 6
IMAGES = 60  # of each split, every second one of class 1
SHIFT = {"cnn": 0.0, "convlstm": 0.5}  # of class 1's scores
SHARED = 20  # of the test images with class 1, the first
SHIFTED = 1.0  # all test scores are so much higher than those held out


def scored(networks: tuple[str, ...] = ("cnn", "convlstm"), data_source: str = "real") -> Stored:
    """Records and scores of one setting. Held-out images have twins in the test split, SHIFTED; the ConvLSTM ranks
    better, and has the lower validation loss."""
    rows, tables = [], []
    for place, network in enumerate(networks):
        for seed in range(SEEDS):
            job = trained("processes", SCORES, use_case="Pneumonia", network=network, epochs=10, scored_on="validation")
            job = job.with_(round=seed, seed=seed, data_source=data_source, images=2000)
            measured = {"validation_loss": 0.3 - 0.1 * place, "test_accuracy": 0.8, "validation_accuracy": 0.9}
            rows.append(make_row(job, measured | {"test_auc": 0.9, "test_balanced_accuracy": 0.8}))
            told = {"seed": seed, "round": seed, "row": place}
            tables += [_split(split, network, seed).assign(**told) for split in ("validation", "test")]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("round", kind="stable", ignore_index=True)
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return Stored(frame, {"scores": pd.concat(tables, ignore_index=True)})


def _split(split: str, network: str, seed: int) -> pd.DataFrame:
    dice = np.random.default_rng(seed)
    labels = np.arange(IMAGES) % 2
    scores = dice.normal(size=IMAGES) + (2.0 + SHIFT[network]) * (labels - 0.5) + SHIFTED * (split == "test")
    number = np.arange(IMAGES) // 2 // 2 + 1  # two images of class 1 are of one patient
    shared = (split == "test") & (labels == 1) & (np.arange(IMAGES) < 2 * SHARED)
    return pd.DataFrame(
        {"split": split, "image": np.arange(IMAGES), "label": labels, "patient": np.where(labels == 1, number, 0),
         "in_training": shared.astype(int), "score": scores}
    )  # fmt: skip
