"""Records and profile of notebook 01 as they could be on two cores without bfloat16 units: made up, exact numbers
of its own grid and comparisons."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from lockstep.engine.job import Job
from lockstep.experiments.e01_single_node_baselines.grid import TRACED, cells, comparisons
from lockstep.experiments.experiment import Parameters
from lockstep.records import COLUMNS, Row, make_row

BATCH = {"SimpleBig": 8, "ComplexSmall": 2}
FLOPS = {"SimpleBig": 4e9, "ComplexSmall": 90e9}  # per image
BASE_SPEED = {"SimpleBig": 20.0, "ComplexSmall": 1.0}  # images/s
SPEEDUPS = {"sequential": 1.0, "intra_op": 1.6, "allocator": 1.8, "fused": 1.9, "channels_last": 2.0}
PEAK, BANDWIDTH = {1: 120e9, 2: 240e9}, {1: 10e9, 2: 20e9}
KINDS = {
    "convolution": (0.6, 0.8),
    "matrix product": (0.3, 0.2),
    "pooling": (0.06, 0.0),
    "ReLU": (0.03, 0.0),
    "other": (0.01, 0.0),
}
"""kind -> share of the pass, share of its FLOP."""
NO_UNITS = "this CPU has no bfloat16 matrix or vector units"


CHOSEN = Parameters(use_cases=list(BATCH), batch_size=BATCH, cores=2, steps=3, warmup_steps=3)


ROUNDS, SLOWER = 8, 0.1
MEAN_PACE = math.exp(sum(-math.log1p(SLOWER * number) for number in range(ROUNDS)) / ROUNDS)
"""What is left of a speed in the geometric mean over rounds."""


def records(rounds: int = ROUNDS, slower: float = SLOWER) -> pd.DataFrame:
    """So many rounds of each comparison of the grid, each `slower` slower than the one before, for both its cells:
    unpaired ratios would spread."""
    jobs = [job.with_(images=1008) for job in cells(CHOSEN)]
    rows: list[Row] = [make_row(job, {}, status="skipped", reason=why) for job in jobs if (why := _impossible(job))]
    number = 0
    for again in range(rounds):
        for comparison in comparisons(jobs):
            compared = [jobs[place] for place in comparison.cells]
            if any(_impossible(job) for job in compared):
                continue
            number += 1
            rows += [_row(job.with_(round=number), 1 / (1 + slower * again)) for job in compared]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _impossible(job: Job) -> str:
    return "no CUDA device" if job.device == "cuda" else NO_UNITS if job.precision == "bfloat16" else ""


def _row(job: Job, pace: float) -> Row:
    cores = job.threads_per_worker
    if job.experiment == "decode":
        measured = {"images_per_second": 500 * pace, "step_seconds": 0.4 / pace}
    elif job.experiment == "machine":
        measured = {"flops_per_second": PEAK[cores] * pace, "bandwidth_bytes_per_second": BANDWIDTH[cores] * pace}
    elif job.experiment == "profile":
        measured = {"flops_per_image": FLOPS[job.use_case], "flops_per_second": 0.7 * PEAK[2] * pace}
    else:
        speed = BASE_SPEED[job.use_case] * SPEEDUPS[job.strategy] * pace * (1.01 if job.variant == "b" else 1)
        measured = _step(job, speed)
    return make_row(job.with_(data_source="real"), measured | {"measuring_seconds": 10.0})


def _step(job: Job, speed: float) -> dict[str, float]:
    step = job.global_batch_size / speed
    parts = {"input_seconds": 0.0, "forward_seconds": 0.3, "backward_seconds": 0.6, "update_seconds": 0.1}
    measured = {name: step * share for name, share in parts.items()}
    measured |= {"images_per_second": speed, "step_seconds": step, "epoch_seconds": job.images / speed}
    return measured | {"train_loss": 1.1, "compute_seconds": 0.9 * step}


def operators(rounds: int = ROUNDS) -> pd.DataFrame:
    """Of the rung `channels_last`: a pass of 2 s in the first round, and slower from round to round."""
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        for use_case, flops in FLOPS.items():
            whole = flops * BATCH[use_case] / (0.5 * PEAK[2])
            for kind, (share, of_flops) in KINDS.items():
                rows.append(
                    {
                        "device": "cpu", "workers": 1, "round": number, "strategy": "channels_last",
                        "use_case": use_case, "experiment": "profile", "operators": kind,
                        "seconds": whole * share * (1 + 0.1 * number), "share": share, "calls": 5,
                        "flops": flops * BATCH[use_case] * of_flops,
                        "bytes": float("nan") if kind == "other" else 1e9,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def resources() -> pd.DataFrame:
    rows = []
    for use_case in BATCH:
        for strategy in TRACED:
            for second in range(4):
                rows.append(
                    {
                        "device": "cpu", "workers": 1, "round": 0, "strategy": strategy, "use_case": use_case,
                        "experiment": "ladder", "seconds": 0.5 * second, "cpu_percent": 100.0, "pss_bytes": 2**30,
                        "threads": 6, "io_wait_percent": 0.0, "phase": "train",
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
