"""Records of a run of notebook 02 as it could be on two cores: made up, seeded, of its own grid and comparisons."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import Job
from lockstep.experiments.e02_threads_vs_processes.grid import cells, comparisons
from lockstep.experiments.experiment import Parameters
from lockstep.records import COLUMNS, MEASUREMENTS

CHOSEN = Parameters(
    use_cases=["SimpleBig", "ComplexSmall"], per_worker_batch_size={"SimpleBig": 8, "ComplexSmall": 1}, workers=2,
    steps=3, warmup_steps=3, scaling_workers=[1, 2], scaling_batch_size=16, kernels_batch_size=256, small_steps=10,
)  # fmt: skip
# strategy -> speedup over sequential, peak PSS in GiB (ComplexSmall, SimpleBig)
TABLE1: dict[str, tuple[float, tuple[float, float]]] = {
    "sequential": (1.0, (4.1, 2.0)),
    "intra_op": (1.7, (4.2, 2.1)),
    "threads": (1.65, (6.4, 3.2)),
    "processes": (1.9, (6.1, 3.0)),
    "ddp": (1.7, (7.7, 3.7)),
}
BASE_SPEED = {"ComplexSmall": 1.5, "SimpleBig": 18.0, "Pneumonia": 600.0}  # images/s of one core
IN_COMPLEX_SMALL = 0.92
"""What is left there of a speedup."""
SMALL: dict[tuple[str, str, int], float] = {
    ("scaling", "threads", 1): 1.7, ("scaling", "processes", 1): 1.7,
    ("scaling", "threads", 2): 1.4, ("scaling", "processes", 2): 1.8,
    ("kernels", "threads", 2): 1.8, ("kernels", "processes", 2): 1.9,
}  # fmt: skip
"""Experiment, strategy and workers -> speedup of the 50 x 50 network."""
EXCHANGE = {"processes": 0.06, "processes_allreduce": 0.27, "threads": 0.065, "copy_bound": 0.045}  # seconds
DECODING = {1: 0.9, 2: 0.985}
"""Cores -> JPEG over tensors in memory."""
SHARES = {"input": 0.04, "compute": 0.85, "wait": 0.02, "exchange": 0.05, "update": 0.04}
NO_GPU, NO_UNITS = "no CUDA device", "this CPU has no bfloat16 matrix or vector units"


def records(rounds: int = 8, failed: str = "", experiments: tuple[str, ...] = ()) -> pd.DataFrame:
    """So many rounds of each comparison; `failed` names a strategy of Table 1 that failed whenever it was measured."""
    frame = _records(rounds, failed).copy()
    return frame[frame["experiment"].isin(experiments)] if experiments else frame


@cache
def _records(rounds: int, failed: str) -> pd.DataFrame:
    rng, jobs = np.random.default_rng(1), [job.with_(data_source="real", images=1008) for job in cells(CHOSEN)]
    rows = [skipped(job, why) for job in jobs if (why := _impossible(job))]
    number = 0
    for _ in range(rounds):
        for comparison in comparisons(jobs):
            pair = [jobs[place] for place in comparison.cells]
            if any(_impossible(job) for job in pair):
                continue
            number += 1
            rows += _round(rng, number, pair, failed)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in MEASUREMENTS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _impossible(job: Job) -> str:
    return NO_GPU if job.device == "cuda" else NO_UNITS if job.precision == "bfloat16" else ""


def _round(rng: np.random.Generator, number: int, pair: Iterable[Job], failed: str) -> list[dict[str, Any]]:
    """A machine that is a little slower or faster in this round, for both cells."""
    pace, rows = float(rng.normal(1, 0.01)), []
    for job in pair:
        job = job.with_(round=number)
        if job.strategy == failed and job.experiment == "table1":
            rows.append(skipped(job, "worker 1 raised ValueError: bad", "failed"))
            continue
        small = job.use_case == "Pneumonia"
        pss = 0.5 if small else TABLE1.get(job.strategy, TABLE1["processes"])[1][job.use_case == "SimpleBig"]
        peak = pss * 2**30 * float(rng.normal(1, 0.003))
        rows.append(cell(job, rng, _step_seconds(job) * pace, peak_pss_bytes=peak))
    return rows


def _step_seconds(job: Job) -> float:
    if job.experiment == "exchange":
        return EXCHANGE[job.strategy]
    alone = job.global_batch_size / BASE_SPEED[job.use_case]
    if job.experiment == "input":
        return alone / (DECODING[job.cores_per_worker] if job.input == "jpeg" else 1.0)
    if job.experiment == "table1":
        gain = TABLE1[job.strategy][0]
        return alone / (gain * IN_COMPLEX_SMALL if job.use_case == "ComplexSmall" and gain > 1 else gain)
    return alone / SMALL[job.experiment, job.strategy, job.workers]


def cell(job: Job, rng: np.random.Generator, step: float, **measured: Any) -> dict[str, Any]:
    """An ok row with 0.5 % of noise; phases make the step up."""
    step *= float(rng.normal(1, 0.005))
    values: dict[str, Any] = dict.fromkeys(MEASUREMENTS)
    values.update({f"{name}_seconds": step * part for name, part in SHARES.items()})
    values.update(step_seconds=step, images_per_second=job.global_batch_size / step, decode_seconds=0.1 * step)
    values.update({"measuring_seconds": 2 * (job.steps + job.warmup_steps) * step, **measured})
    row = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    return {**row, **values, "session": 0, "source": "measured", "status": "ok", "reason": ""}


def skipped(job: Job, reason: str, status: str = "skipped") -> dict[str, Any]:
    row = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    row |= dict.fromkeys(MEASUREMENTS)
    return {**row, "session": 0, "source": "measured", "status": status, "reason": reason}


def resources(traces: int = 8, jitter: float = 0.06) -> pd.DataFrame:
    """So many traces of each cell, 5 samples a second: threads vary more than processes, with `jitter` of relative
    noise on their PSS."""
    rng = np.random.default_rng(2)
    rows = []
    for place, (use_case, strategy) in enumerate(
        (use_case, strategy) for use_case in ("ComplexSmall", "SimpleBig") for strategy in ("threads", "processes")
    ):
        pss = TABLE1[strategy][1][use_case == "SimpleBig"]
        noise = jitter if strategy == "threads" else jitter / 4
        for trace, second in itertools.product(range(traces), np.arange(0, 12, 0.2)):
            threads = 12 + (rng.integers(0, 3) if strategy == "threads" else 0)
            rows.append({
                "device": "cpu", "workers": 2, "experiment": "table1", "use_case": use_case, "strategy": strategy,
                "round": 1000 + 100 * place + trace, "seconds": second, "phase": "load" if second < 2 else "train",
                "cpu_percent": 97.0 * 2 + rng.normal(0, 1), "pss_bytes": pss * 2**30 * rng.normal(1, noise),
                "threads": threads, "training_threads": threads - 8, "framework_threads": 8,
                "io_wait_percent": abs(rng.normal(0.4, 0.3)),
            })  # fmt: skip
    return pd.DataFrame(rows)
