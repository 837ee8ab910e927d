"""Records of notebook 09 as they could be: made up, so that tests know all and every answer can be made to flip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.stored import Stored
from lockstep.engine.job import Job
from lockstep.experiments.e09_autotuning.grid import (
    CHOSEN,
    ENGINES,
    FINALISTS,
    POOL,
    RUNG,
    RUNGS,
    _engine_cells,
    _ladder_cells,
    _pool_cell,
    tuned_cell,
)
from lockstep.experiments.e09_autotuning.measuring import POOL_SEED, of_setting
from lockstep.experiments.e09_autotuning.stored_pool import read_space
from lockstep.experiments.experiment import Parameters
from lockstep.records import COLUMNS, make_row
from lockstep.records.places import repository_root

PARAMETERS = Parameters(
    results="results/none", use_case="Pneumonia", pool=16, epochs=8, engines=2, timed_trials=4, finalists=2, seeds=5,
    ladder_epochs=4, memory_format="contiguous",
)  # fmt: skip
HELD_OUT, IMAGES = 400, 2000
PLAIN = 0.80
"""Test accuracy of the plain CNN; each step of the ladder adds a point."""


def curves(settings: int, epochs: int = 8) -> np.ndarray:
    """[settings, epochs] scores that rise to different heights: setting 0 ends highest, each further one lower."""
    rising = 1 - np.exp(-np.arange(1, epochs + 1) / 2)
    return 0.5 + (0.4 - 0.01 * np.arange(settings))[:, None] * rising


def pool_tables(settings: int = 16, diverged: int = 0, epochs: int = 8) -> dict[str, pd.DataFrame]:
    """The last `diverged` settings ended without a score."""
    space = read_space(repository_root())
    trials, rows = [], []
    for number, values in enumerate(curves(settings, epochs)):
        lost = number >= settings - diverged
        told: dict[str, Any] = {"round": number // 4, "number": number, "space": space.fingerprint, "epochs": epochs}
        told |= {"images": IMAGES, "held_out": HELD_OUT, **of_setting(space.draw(POOL_SEED, number))}
        told |= {"state": "diverged" if lost else "finished", "reason": "", "score": math.nan if lost else values[-1]}
        trials.append(told | {"seconds": 20.0, "cpu_seconds": 2.0 * epochs + number})
        for epoch, value in enumerate([] if lost else values, start=1):
            row = {"round": number // 4, "number": number, "epoch": epoch, "score": value}
            rows.append(row | {"validation_loss": -math.log(value), "validation_accuracy": value})
    return {"trials": pd.DataFrame(trials), "curves": pd.DataFrame(rows)}


def row(job: Job, number: int, **measured: Any) -> dict[str, Any]:
    job = job.with_(data_source="real", images=IMAGES, round=number, seed=number)
    return make_row(job, measured)


def stored(
    *, tuned: float = 0.03, settings: int = 16, engines: float = 1.8, needed: int = 2, seeds: int = 5, diverged: int = 0
) -> Stored:
    """A whole run. `tuned`: test accuracy that the tuned network has over the plain CNN; `engines`: how much faster two
    are; `needed`: epochs until the tuned network is as good as the plain one at its end."""
    tables = pool_tables(settings, diverged)
    space = read_space(repository_root())
    rows = [row(_pool_cell(PARAMETERS), number, training_seconds=80.0) for number in range(settings // 4)]
    wobble = np.random.default_rng(0).normal(0, 0.002, seeds)
    epochs: list[dict[str, Any]] = []
    for number in range(seeds):
        for job in _engine_cells(PARAMETERS):
            rows.append(row(job, 100 + number, step_seconds=8.0 / (engines if job.workers > 1 else 1.0)))
        for place, job in enumerate(_ladder_cells(PARAMETERS)):
            accuracy = PLAIN + 0.01 * place + wobble[number]
            rows.append(row(job, number, test_accuracy=accuracy, validation_accuracy=0.9, validation_loss=0.3))
            epochs += _epochs(rows[-1], [0.6, 0.5, 0.4, 0.3])
        for place in range(2):
            job = tuned_cell(PARAMETERS, FINALISTS, space.draw(POOL_SEED, place))
            rows.append(row(job, number, validation_accuracy=0.95, validation_loss=0.2 - 0.05 * place))
        job = tuned_cell(PARAMETERS, CHOSEN, space.draw(POOL_SEED, 1))
        scores = {"test_accuracy": PLAIN + tuned + 2 * wobble[number], "validation_accuracy": 0.95}
        rows.append(row(job, number, **scores, validation_loss=0.15))
        losses = [0.5 if epoch < needed else 0.25 for epoch in range(1, PARAMETERS.epochs + 1)]
        epochs += _epochs(rows[-1], losses)
    tables["epochs"] = pd.DataFrame(epochs)
    return Stored(pd.DataFrame(rows, columns=list(COLUMNS)), tables)


def _epochs(of: dict[str, Any], losses: list[float]) -> list[dict[str, Any]]:
    names = ("experiment", "network", "dropout", "weight_decay", "seed", "round")
    cell = {name: of[name] for name in names}
    return [{**cell, "epoch": epoch, "validation_loss": loss} for epoch, loss in enumerate(losses, start=1)]


__all__ = ["CHOSEN", "ENGINES", "FINALISTS", "PARAMETERS", "POOL", "RUNG", "RUNGS", "curves", "pool_tables", "stored"]
