"""Records and traces of notebook 06 as they could be on two cores: made up, exact numbers.

The tables below say how many times as fast as sequential training a strategy is, so tests know every ratio.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.records import COLUMNS, Row, make_row

BATCH = {"SimpleBig": 32, "ComplexSmall": 4}
SPEED = {"SimpleBig": 20.0, "ComplexSmall": 1.0}  # images/s of sequential training
TRAINED = {"SimpleBig": 4802, "ComplexSmall": 633}  # images
NOISE = 1.01  # the second half of an A/A pair over the first
TAU = 10
MESSAGE = 228_000_000  # bytes
NO_JAVA = "no Java that Spark runs on"

GAINS: dict[str, dict[str, dict[int, float]]] = {
    "SimpleBig": {
        "mpi_allreduce": {1: 0.97, 2: 1.8},
        "mpi_shared_memory": {1: 0.98, 2: 1.9},
        "spark_allreduce": {1: 0.95, 2: 1.75},
        "spark_shared_memory": {1: 0.96, 2: 1.77},
        "sparknet": {1: 0.45, 2: 0.53},
        "sparknet_files": {1: 0.48, 2: 0.55},
        "sparknet_tau": {1: 0.9, 2: 1.7},
    },
    "ComplexSmall": {
        "mpi_allreduce": {2: 1.68},
        "spark_allreduce": {2: 1.65},
        "sparknet": {2: 0.8},
    },
}
DATA = {
    "sparknet": {300: 0.6, 1200: 0.53, 4800: 0.4},
    "sparknet_files": {300: 0.55, 1200: 0.55, 4800: 0.55},
    "mpi_allreduce": {300: 1.8, 1200: 1.8, 4800: 1.8},
}
INPUT, COMPUTE, UPDATE, EXCHANGE = 0.1, 0.3, 0.05, 0.55  # shares of a step
READ, BROADCAST, FETCH = 0.04, 0.15, 0.1  # of it, as the table `spark` tells: of input, of exchange, of exchange
SECONDS = {"spark_schedule": 0.02, "spark_broadcast": 0.8, "spark_aggregate": 2.0}
PREPARED = {"parquet_write": 330.0, "parquet_read": 310.0}  # images/s
STARTS = {"threads": 1.0, "mpiexec": 2.0, "spark": 8.0, "spark_driver": 7.0}


def pace(number: int) -> float:
    """Every round is 10 % slower than the one before, for everybody: unpaired ratios would spread."""
    return 1 / (1 + 0.1 * number)


def jobs(number: int) -> list[tuple[Job, float]]:
    """What trains in a round, and how many times as fast as sequential training it is."""
    found: list[tuple[Job, float]] = []
    for use_case, gains in GAINS.items():
        shared: dict[str, Any] = {"experiment": "speedup", "use_case": use_case, "round": number}
        shared |= {"per_worker_batch_size": BATCH[use_case], "images": TRAINED[use_case]}
        found += [(Job.of("sequential", **shared, variant=half), gain) for half, gain in (("a", 1.0), ("b", NOISE))]
        for strategy, own in gains.items():
            for workers, gain in own.items():
                found.append((Job.of(strategy, workers=workers, **shared, **clock(strategy)), gain))
    again = [(job.with_(variant="b"), NOISE * gain) for job, gain in found
             if (job.strategy, job.use_case, job.workers) == ("spark_allreduce", "SimpleBig", 2)]  # fmt: skip
    for strategy, own in DATA.items():
        for images, gain in own.items():
            found.append((Job.of(strategy, workers=2, experiment="data", round=number, images=images), gain))
    return found + again


def clock(strategy: str) -> dict[str, Any]:
    return {"exchange_every": TAU, "steps": TAU, "warmup_steps": TAU} if strategy == "sparknet_tau" else {"steps": 2}


def records(rounds: int = 5) -> pd.DataFrame:
    rows: list[Row] = []
    for number in range(rounds):
        rows += [_trained(job, gain, number) for job, gain in jobs(number)] + _alone(number)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _trained(job: Job, gain: float, number: int) -> Row:
    speed = SPEED[job.use_case] * gain * pace(number)
    step = job.global_batch_size / speed
    parts = {"input": INPUT, "compute": COMPUTE, "update": UPDATE, "exchange": EXCHANGE, "wait": 0.0}
    measured = {f"{name}_seconds": share * step for name, share in parts.items()}
    measured |= {"images_per_second": speed, "step_seconds": step, "epoch_seconds": job.images / speed}
    return make_row(job, measured | {"launch_seconds": STARTS[job.launcher], "peak_pss_bytes": 2.0**30 * job.workers})


def _alone(number: int) -> list[Row]:
    """overhead, preparation and start: no model."""
    on: dict[str, Any] = {"launcher": "spark_driver", "sync": "local", "workers": 2, "round": number}
    rows = []
    for name, seconds in SECONDS.items():
        size = 0 if name == "spark_schedule" else MESSAGE
        job = Job(experiment="overhead", use_case=NO_USE_CASE, strategy=name, input="none", message_bytes=size, **on)
        rows.append(make_row(job, {"step_seconds": seconds / pace(number)}))
    for name, rate in PREPARED.items():
        job = Job(experiment="preparation", strategy=name, images=1200, **on)
        rows.append(make_row(job, {"images_per_second": rate + number, "step_seconds": 1200 / (rate + number)}))
    start = Job.of("spark_shared_memory", workers=2, experiment="start", input="none", message_bytes=4096, round=number)
    seconds = STARTS["spark"] + 0.5 * (number + 1)  # a start of its own in every round
    return [*rows, make_row(start, {"step_seconds": 0.01, "launch_seconds": seconds})]


def spark(rounds: int = 5) -> pd.DataFrame:
    """The table `spark`: of each window two partitions, of which the second takes longer; the first one's parts are
    too large by far, so that a test sees whose were taken."""
    rows = []
    for number in range(rounds):
        for job, gain in jobs(number):
            if job.sync != "sparknet":
                continue
            step = job.global_batch_size / (SPEED[job.use_case] * gain * pace(number))
            seconds = step * job.exchange_every
            own: dict[str, Any] = {name: getattr(job, name) for name in (
                "experiment", "use_case", "strategy", "round", "workers", "device", "variant", "executor_data",
                "exchange_every", "global_batch_size", "images")}  # fmt: skip
            for window in range(job.steps // job.exchange_every):
                own |= {"window": window, "steps": job.exchange_every, "job_seconds": (1 - BROADCAST) * seconds}
                own |= {"broadcast_seconds": BROADCAST * seconds, "state_bytes": MESSAGE, "result_bytes": MESSAGE}
                for partition, times in enumerate((3.0, 1.0)):
                    told = {"read_seconds": times * READ * seconds, "state_seconds": times * FETCH * seconds}
                    told |= {"task_seconds": 0.5 * seconds / times, "partition": partition, "update_seconds": 0.0}
                    rows.append(own | told | {"input_seconds": 0.06 * seconds, "compute_seconds": COMPUTE * seconds})
    return pd.DataFrame(rows)


def resources(rounds: int = 5) -> pd.DataFrame:
    """Traces of `speedup`, all workers' numbers in one table."""
    rows = []
    for number in range(rounds):
        for job, _ in jobs(number):
            if job.experiment != "speedup" or job.variant != "a":
                continue
            for second in range(4):
                rows.append(
                    {
                        "device": "cpu", "workers": job.workers, "round": number, "strategy": job.strategy,
                        "use_case": job.use_case, "experiment": "speedup", "seconds": 0.5 * second,
                        "cpu_percent": 90.0 * job.workers, "pss_bytes": job.workers * 2**30, "threads": 30,
                        "io_wait_percent": 1.0,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
