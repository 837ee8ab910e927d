"""Records and traces of notebook 06 as they could be on two cores: made up for the very cells and pairs of its grid.

The tables below say how many times as fast as sequential training a strategy is, so tests know every ratio, but for the
noise of a round (NOISE).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import Job
from lockstep.experiments.e06_spark_distribution.grid import cells, comparisons
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.parameters import read_parameters
from lockstep.measure.planning import Comparison
from lockstep.records import COLUMNS, Row, make_row
from lockstep.records.places import repository_root

SPEED = {"SimpleBig": 20.0, "ComplexSmall": 1.0, "Pneumonia": 800.0}  # images/s of sequential training
TRAINED = {"SimpleBig": 4802, "ComplexSmall": 633, "Pneumonia": 5000}  # images
NOISE = 0.005  # of a round
MESSAGE = 228_064_524  # bytes
NO_JAVA = "no Java that Spark runs on"

GAINS: dict[str, dict[tuple[str, int], float]] = {
    "SimpleBig": {
        ("mpi_allreduce", 2): 1.8,
        ("mpi_shared_memory", 2): 1.9,
        ("spark_allreduce", 2): 1.75,
        ("spark_shared_memory", 2): 1.77,
        ("sparknet", 2): 0.53,
        ("sparknet", 1): 0.31,
    },
    "ComplexSmall": {("mpi_shared_memory", 2): 1.68, ("sparknet", 2): 0.8},
    "Pneumonia": {("sparknet_files", 2): 0.3, ("sparknet_tau", 2): 1.2},
}
DATA = {
    "sparknet": {640: 0.6, 4000: 0.4},
    "sparknet_files": {640: 0.55, 4000: 0.55},
    "mpi_allreduce": {640: 1.8, 4000: 1.8},
}
INPUT, COMPUTE, UPDATE, EXCHANGE = 0.1, 0.3, 0.05, 0.55  # shares of a step
READ, BROADCAST, FETCH = 0.04, 0.15, 0.1  # of it, as the table `spark` tells: of input, of exchange, of exchange
SECONDS = {"spark_schedule": 0.02, "spark_broadcast": 0.8, "spark_aggregate": 2.0}
PREPARED = {"parquet_write": 340.0, "parquet_read": 330.0}  # images/s
STARTS = {"threads": 1.0, "mpiexec": 2.0, "spark": 8.0, "spark_driver": 7.0}


def chosen(**values: Any) -> Parameters:
    """The parameters as they stand in the notebook, and those given."""
    known = read_parameters(repository_root() / "notebooks" / "06_spark_distribution.ipynb")
    return Parameters(**{name: parameter.default for name, parameter in known.items()} | values)


def records(rounds: int = 8) -> pd.DataFrame:
    """A round is one comparison of the grid; each is slower than the one before by half a percent, for both cells."""
    return _records(rounds).copy()


@cache
def _jobs() -> tuple[Job, ...]:
    found = cells(chosen(message_bytes=MESSAGE))
    return tuple(job.with_(images=job.images or TRAINED.get(job.use_case, 0)) for job in found)


@cache
def _asked() -> tuple[Comparison, ...]:
    return tuple(comparisons(_jobs()))


@cache
def _records(rounds: int) -> pd.DataFrame:
    random, rows = np.random.default_rng(6), []
    for job in jobs(rounds):
        rows.append(_row(job, pace(job.round) * float(np.exp(random.normal(0, NOISE)))))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def jobs(rounds: int) -> list[Job]:
    """What is measured, round after round."""
    own, asked = _jobs(), _asked()
    found = []
    for repetition in range(rounds):
        for place, comparison in enumerate(asked):
            number = repetition * len(asked) + place
            found += [own[index].with_(round=number) for index in comparison.cells]
    return found


def pace(number: int) -> float:
    return 1 / (1 + 0.005 * (number // len(_asked())))


def gain(job: Job) -> float:
    if job.strategy == "sequential":
        return 1.0
    if job.experiment == "data":
        return DATA[job.strategy][job.images]
    return GAINS[job.use_case][job.strategy, job.workers]


def _row(job: Job, pace: float) -> Row:
    if job.experiment == "overhead":
        measured = {"step_seconds": SECONDS[job.strategy] / pace}
    elif job.experiment == "preparation":
        rate = PREPARED[job.strategy] * pace
        measured = {"images_per_second": rate, "step_seconds": job.images / rate}
    else:
        measured = _trained(job, pace)
    return make_row(job, measured) | {"session": 0, "measuring_seconds": 20.0}


def _trained(job: Job, pace: float) -> dict[str, float]:
    speed = SPEED[job.use_case] * gain(job) * pace
    step = job.global_batch_size / speed
    parts = {"input": INPUT, "compute": COMPUTE, "update": UPDATE, "exchange": EXCHANGE, "wait": 0.0}
    measured = {f"{name}_seconds": share * step for name, share in parts.items()}
    measured |= {"images_per_second": speed, "step_seconds": step, "epoch_seconds": job.images / speed}
    return measured | {"launch_seconds": STARTS[job.launcher], "peak_pss_bytes": 2.0**30 * job.workers}


def spark(rounds: int = 8) -> pd.DataFrame:
    """The table `spark`: of each window two partitions, of which the second takes longer; the first one's parts are
    too large by far, so that a test sees whose were taken."""
    rows = []
    key = ["round", "strategy", "workers", "images"]
    timed = {tuple(row[:4]): row[4] for row in _records(rounds)[[*key, "step_seconds"]].itertuples(index=False)}
    for job in jobs(rounds):
        if job.sync != "sparknet":
            continue
        step = timed[job.round, job.strategy, job.workers, job.images]
        seconds = step * job.exchange_every
        own: dict[str, Any] = {name: getattr(job, name) for name in (
            "experiment", "use_case", "strategy", "round", "workers", "device", "variant", "executor_data",
            "exchange_every", "global_batch_size", "images")}  # fmt: skip
        for window in range(max(1, job.steps // job.exchange_every)):
            own |= {"window": window, "steps": job.exchange_every, "job_seconds": (1 - BROADCAST) * seconds}
            own |= {"broadcast_seconds": BROADCAST * seconds, "state_bytes": MESSAGE, "result_bytes": MESSAGE}
            for partition, times in enumerate((3.0, 1.0)):
                told = {"read_seconds": times * READ * seconds, "state_seconds": times * FETCH * seconds}
                told |= {"task_seconds": 0.5 * seconds / times, "partition": partition, "update_seconds": 0.0}
                rows.append(own | told | {"input_seconds": 0.06 * seconds, "compute_seconds": COMPUTE * seconds})
    return pd.DataFrame(rows)


def resources(rounds: int = 2) -> pd.DataFrame:
    """Traces of `speedup`, of SparkNet with one worker and with two."""
    rows = []
    for number in range(rounds):
        for workers in (1, 2):
            for second in range(8):
                rows.append(
                    {
                        "device": "cpu", "workers": workers, "round": number, "strategy": "sparknet",
                        "use_case": "SimpleBig", "experiment": "speedup", "seconds": 0.5 * second, "phase": "train",
                        "cpu_percent": 90.0 * workers, "pss_bytes": workers * 2**30, "threads": 30,
                        "io_wait_percent": 1.0,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
