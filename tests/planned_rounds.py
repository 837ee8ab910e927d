"""Records as a grid's comparisons would leave them: a round holds one comparison alone, with made-up speeds."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from lockstep.engine.job import Job
from lockstep.experiments.experiment import Experiment, Parameters
from lockstep.experiments.parameters import read_parameters
from lockstep.records import COLUMNS, Row, make_row
from lockstep.records.places import repository_root

ROUNDS = 8
NO_DEVICE = "no CUDA device"
MEASURE_TOGETHER = "measure them in one run"
"""What is said of two cells that no round holds both."""


def defaults(experiment: Experiment) -> Parameters:
    """The parameters that a notebook has by itself."""
    found = read_parameters(repository_root() / "notebooks" / f"{experiment.name}.ipynb")
    return Parameters(**{name: parameter.default for name, parameter in found.items()})


def planned_records(experiment: Experiment, speed: Callable[[Job], float], rounds: int = ROUNDS) -> pd.DataFrame:
    """ROUNDS rounds of each comparison of an experiment's own grid; cells on GPUs are skipped, as without any."""
    assert experiment.grid is not None and experiment.comparisons is not None
    jobs = experiment.grid(defaults(experiment))
    rows: list[Row] = [_skipped(job) for job in jobs if job.device == "cuda"]
    number = 1
    for comparison in experiment.comparisons(jobs):
        cells = [jobs[place] for place in comparison.cells]
        if any(job.device == "cuda" for job in cells):
            continue
        for _ in range(rounds):
            rows += [_row(job.with_(round=number), speed(job), number) for job in cells]
            number += 1
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _skipped(job: Job) -> Row:
    return make_row(job, {}, status="skipped", reason=NO_DEVICE) | {"session": 0}


def _row(job: Job, speed: float, number: int) -> Row:
    swing = 1.01 if number % 2 else 0.99
    step = job.global_batch_size / (speed * swing)
    spent = {"step_seconds": step, "update_seconds": 0.01, "exchange_seconds": 0.01, "idle_seconds": 0.1 * step}
    values = spent | {"images_per_second": speed * swing, "peak_pss_bytes": 1e9, "measuring_seconds": 10.0}
    return make_row(job, values) | {"session": 0}
