"""Records of notebook 07 as they could be on two cores: made up, exact numbers, on the notebook's own grid.

The tables below say how accurate and how fast everything is, so tests know every mean and every ratio.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import OF_LEARNING, Job
from lockstep.experiments.e07_convlstm_batch_size.comparisons import comparisons
from lockstep.experiments.e07_convlstm_batch_size.grid import (
    ablation_cells,
    accuracy_cells,
    candidate_cells,
    paired_cells,
    price_cells,
    profile_cells,
    speed_cells,
)
from lockstep.experiments.e07_convlstm_batch_size.head_cells import head_cells
from lockstep.experiments.experiment import Parameters
from lockstep.records import COLUMNS, Row, make_row

USE_CASES = {"Pneumonia": "real", "LeafDisease": "synthetic"}
NETWORKS = ("cnn", "convlstm", "convlstm2d")
ACCURACY = {"cnn": 0.84, "convlstm": 0.86, "convlstm2d": 0.83}  # with Table 2's settings
LARGE = -0.02  # of batch 512, at equal epochs
LINEAR = 0.01  # what the linear rule gives back
FEW_UPDATES = -0.10  # of batch 32 with as many updates as batch 512 has
DROPOUT = 0.02  # more accuracy per 0.5 of it
GAP = 0.10  # of train over test accuracy, without dropout
SEEDS = 0.004  # of accuracy between seeds
ROUNDS = 10
MIDDLE = float(np.exp(np.log1p(0.1 * np.arange(ROUNDS)).mean()))  # how much longer than the first round the mean is
VALIDATION = {"plain": 0.90, "dropout": 0.93, "balanced": 0.92}
CANDIDATES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"dropout": 0.3},
    "balanced": {"class_weights": "balanced", "augmentation": "shift"},
}
TEST = {200: "normal", 400: "pneumonia"}  # images of each class in the test split
IMAGES = 2000
SPEED = {"cnn": 500.0, "convlstm": 400.0, "convlstm2d": 250.0}  # images/s of sequential training with torch
GAINS = {"processes": 1.9, "allreduce": 1.8, "parameter_server": 1.5, "naive_pipeline": 0.9, "gpipe": 1.4}
LARGE_GAIN = 1.02  # of all that is distributed, at batch 128
TENSORFLOW = 0.8  # of torch's speed
NOISE = 1.01
NO_TENSORFLOW = "TensorFlow is not installed"
UPDATES = 40
HEADS = {"default": 0.0, "dense": -0.01, "shuffled": 0.002}  # accuracy, beside the LSTM's
RATES = (0.0005, 0.002)
RATE = 0.005  # more accuracy with the second of them
BEST_RATE = {"default": 0.002, "dense": 0.0005}  # by the loss on held-out images
ALGORITHM_1 = {"algorithm_1": -0.01, "algorithm_1_best": -0.02, "algorithm_1_epochwise": -0.03}  # accuracy


def chosen() -> Parameters:
    """Of the accuracy cells: Table 2's batch sizes and some others."""
    return Parameters(
        use_cases=list(USE_CASES),
        further=[],
        networks=list(NETWORKS),
        epochs=10,
        ways={network: _ways(network) for network in NETWORKS},
        linear_batch_sizes=[512],
        rate_warmup_epochs=2,
        updates=UPDATES,
        updates_batch_sizes=[32],
        tensorflow_batch_sizes=[32],
    )


def _ways(network: str) -> dict[str, list[int]]:
    """Algorithm 1 is of the paper's network."""
    weights = {name: [32] for name in ALGORITHM_1} if network == "convlstm" else {}
    return {"processes": [32, 512], "gpipe": [32], **weights}


def grid() -> list[Job]:
    """The notebook's grid with few settings."""
    jobs = [job.with_(data_source=USE_CASES[job.use_case], images=IMAGES) for job in accuracy_cells(chosen())]
    own = []
    for network in ("cnn", "convlstm"):
        own += candidate_cells("Pneumonia", network, CANDIDATES, ["dropout"], way="processes", epochs=10)
        own += paired_cells("Pneumonia", network, {"processes": [2, 4]}, setting={}, epochs=10)
        own += ablation_cells("Pneumonia", network, ["max", "average"], [0.0, 0.5], way="processes", epochs=10)
    for network in NETWORKS:
        own += speed_cells("Pneumonia", network, [32, 128], list(GAINS), tensorflow=["allreduce"])
    own += price_cells("Pneumonia", 32, dropout=0.25, weight_decay=1e-4)
    own += profile_cells("Pneumonia", ["convlstm"], 128)
    return jobs + [job.with_(data_source="real", images=IMAGES) for job in own]


def head_grid() -> list[Job]:
    """The cells of the LSTM beside other heads, which the grid above is without."""
    jobs = head_cells(
        "Pneumonia", names=["dense", "shuffled"], batch_sizes=[512], tuned=["lstm", "dense"], learning_rates=RATES,
        way="processes", epochs=10, updates=UPDATES,
    )  # fmt: skip
    return [job.with_(data_source="real", images=IMAGES) for job in jobs]


def expected(job: Job) -> float:
    """The mean test accuracy of a cell, 0-1."""
    found = ACCURACY[job.network] + DROPOUT * job.dropout / 0.5
    found += 0.05 if job.use_case == "LeafDisease" else 0.0
    found += LARGE if job.global_batch_size > 32 else 0.0
    found += ALGORITHM_1.get(job.strategy, 0.0) + HEADS[job.head]
    found += RATE if job.learning_rate == RATES[1] else 0.0
    found += LINEAR if job.learning_rate_rule == "linear" else 0.0
    return found + (FEW_UPDATES if job.updates else 0.0)


def score(job: Job, number: int) -> float:
    return round(expected(job) + SEEDS * (number % 5 - 2), 6)


def records(rounds: int = ROUNDS) -> pd.DataFrame:
    rows: list[Row] = []
    for number in range(rounds):
        rows += [_row(job.with_(round=number), number) for job in grid()]
    return _frame(rows)


def head_records(rounds: int = ROUNDS) -> pd.DataFrame:
    return _frame([_row(job.with_(round=number), number) for number in range(rounds) for job in head_grid()])


def _frame(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def as_older(frame: pd.DataFrame) -> pd.DataFrame:
    """The same when candidates were scored on test images, too."""
    own = frame["experiment"] == "candidates"
    seen = {name: frame[name].mask(own, 0.5) for name in ("test_accuracy", "test_balanced_accuracy", "test_auc")}
    return frame.assign(**seen, scored_on=frame["scored_on"].mask(own, "validation"))


def as_measured(rounds: int = ROUNDS) -> pd.DataFrame:
    """The same as it is measured: a round holds one comparison of the grid, or one seed of a cell that learns."""
    jobs, number, rows = grid(), 0, []
    for comparison in comparisons(jobs):
        for count in range(rounds):
            rows += [_row(jobs[place].with_(round=count), count) | {"round": number} for place in comparison.cells]
            number += 1
    return _frame(rows)


def _row(job: Job, number: int) -> Row:
    if job.experiment == "speed":
        return _timed(job, number)
    if job.experiment == "profile":
        return make_row(job, {"flops_per_image": 1e7})
    test = score(job, number)
    measured = {"test_accuracy": test, "test_balanced_accuracy": test - 0.04, "test_auc": test + 0.05}
    measured |= {"train_accuracy": test + GAP * (1 - job.dropout), "train_loss": 0.2, "test_loss": 0.4}
    measured = {} if job.scored_on == "held_out" else measured
    measured |= {"training_seconds": 40.0 / job.workers, "step_seconds": 0.1}
    steps = -(-job.images // job.global_batch_size) * job.epochs or job.updates
    row = measured | {"updates_done": int(steps), "epochs_trained": job.epochs}
    if job.holds_out:
        name = next(name for name, fields in CANDIDATES.items() if _has(job, fields))
        row |= {"validation_accuracy": VALIDATION[name] + SEEDS * (number % 5 - 2), "validation_loss": 0.3}
        row |= {"validation_balanced_accuracy": VALIDATION[name]}
        if job.experiment == "heads" and job.learning_rate != BEST_RATE[job.head]:
            row |= {"validation_loss": 0.4}
    return make_row(job.with_(seed=number), row)


def _has(job: Job, fields: dict[str, Any]) -> bool:
    defaults = {"dropout": 0.0, "class_weights": "none", "augmentation": "default"}
    return all(getattr(job, name) == value for name, value in (defaults | fields).items())


def gain(job: Job) -> float:
    found = 1.0 if job.strategy == "sequential" else GAINS[job.strategy]
    found *= LARGE_GAIN if job.strategy != "sequential" and job.global_batch_size > 32 else 1.0
    found *= TENSORFLOW if job.framework == "tensorflow" else 1.0
    return found / (1.05 if job.dropout else 1.02 if job.weight_decay else 1.0) * (NOISE if job.variant == "b" else 1.0)


def _timed(job: Job, number: int) -> Row:
    """Every round is 10 % slower than the one before, for everybody: unpaired ratios would spread."""
    speed = SPEED[job.network] * gain(job) / (1 + 0.1 * number)
    step = job.global_batch_size / speed
    parts = {"input": 0.0, "compute": 0.9, "update": 0.05, "exchange": 0.05, "wait": 0.0}
    measured = {f"{name}_seconds": share * step for name, share in parts.items()}
    return make_row(job, measured | {"images_per_second": speed, "step_seconds": step, "epoch_seconds": IMAGES / speed})


SPLITS = {"held_out": ("validation",), "validation": ("validation", "test"), "test": ("test",)}


def confusion(
    rounds: int = ROUNDS, experiments: tuple[str, ...] = ("learning", "selected", "candidates")
) -> pd.DataFrame:
    """The table `confusion`: pneumonia is nearly always found, the errors are normal ones."""
    rows = []
    kept = ("experiment", "use_case", "strategy", "workers", "device", "launcher", "framework", "global_batch_size")
    kept += (*OF_LEARNING, "variant", "selected")
    total, often = sum(TEST), max(TEST)
    for number in range(rounds):
        for job in grid():
            if job.experiment not in experiments:
                continue
            right = round(score(job, number) * total)
            found = min(often, round(0.99 * often))
            counts = {("pneumonia", "pneumonia"): found, ("pneumonia", "normal"): often - found}
            counts |= {("normal", "normal"): right - found, ("normal", "pneumonia"): total - often - right + found}
            for split in SPLITS[job.scored_on]:
                for (actual, predicted), count in counts.items():
                    own = {name: getattr(job, name) for name in kept} | {
                        "round": number,
                        "seed": number,
                        "split": split,
                    }
                    rows.append(own | {"actual": actual, "predicted": predicted, "count": count})
    return pd.DataFrame(rows)


OPERATORS = {"convolution": 0.20, "matrix product": 0.02, "pooling": 0.03, "other": 0.0}  # seconds of torch's step


def operators(rounds: int = ROUNDS) -> pd.DataFrame:
    """The table `operators`: TensorFlow's are twice as long, and each round is 1 % longer than the one before."""
    rows = []
    for number in range(rounds):
        for job in (job for job in grid() if job.experiment == "profile"):
            told = {name: getattr(job, name) for name in ("experiment", "use_case", "strategy", "framework", "network")}
            told |= {"round": number, "global_batch_size": job.global_batch_size}
            times = (2.0 if job.framework == "tensorflow" else 1.0) * (1 + 0.01 * number)
            for kind, seconds in OPERATORS.items():
                share = seconds / sum(OPERATORS.values())
                measured = {"seconds": seconds * times, "share": share, "calls": 3, "flops": 1e9, "bytes": 1.0}
                rows.append(told | {"operators": kind} | measured)
    return pd.DataFrame(rows)
