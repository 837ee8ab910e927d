"""Records and profile of notebook 01 as they could be on two cores without bfloat16 units: made up, exact numbers."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.engine.job import Job
from lockstep.experiments.e01_single_node_baselines.grid import ladder, profiles, roofs
from lockstep.records import COLUMNS, Row, make_row

BATCH = {"SimpleBig": 32, "ComplexSmall": 8}
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


def records(rounds: int = 5, slower: float = 0.1) -> pd.DataFrame:
    """Every round is `slower` slower than the one before, for everybody: unpaired ratios would spread."""
    rows: list[Row] = []
    for number in range(rounds):
        pace = 1 / (1 + slower * number)
        for use_case in BATCH:
            rows += _ladder(use_case, number, pace)
        rows += _machine(number, pace)
        decode = Job.of("sequential", experiment="decode", images=1008, round=number).with_(strategy="decode")
        rows.append(make_row(decode, {"images_per_second": 500 * pace, "step_seconds": 0.4 / pace}))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _ladder(use_case: str, number: int, pace: float) -> list[Row]:
    jobs = ladder(use_case, 2, BATCH[use_case], round=number, data_source="real", images=1008)
    rows = []
    for job in jobs:
        if job.precision == "bfloat16":
            rows.append(
                make_row(job, {}, status="skipped", reason="no CUDA device" if job.device == "cuda" else NO_UNITS)
            )
            continue
        speed = BASE_SPEED[use_case] * SPEEDUPS[job.strategy] * pace * (1.01 if job.variant == "b" else 1)
        rows.append(make_row(job, _step(job, speed)))
    measured = {"flops_per_image": FLOPS[use_case], "flops_per_second": 0.7 * PEAK[2] * pace}
    for job in profiles(jobs):
        if job.strategy == "channels_last":
            rows.append(make_row(job, measured))
        elif job.precision == "bfloat16":
            rows.append(make_row(job, {}, status="skipped", reason=NO_UNITS))
    return rows


def _step(job: Job, speed: float) -> dict[str, float]:
    step = job.global_batch_size / speed
    parts = {"input_seconds": 0.0, "forward_seconds": 0.3, "backward_seconds": 0.6, "update_seconds": 0.1}
    measured = {name: step * share for name, share in parts.items()}
    measured |= {"images_per_second": speed, "step_seconds": step, "epoch_seconds": job.images / speed}
    return measured | {"train_loss": 1.1, "compute_seconds": 0.9 * step}


def _machine(number: int, pace: float) -> list[Row]:
    rows = []
    for job in roofs(2):
        job, cores = job.with_(round=number), job.threads_per_worker
        measured = {"flops_per_second": PEAK[cores] * pace, "bandwidth_bytes_per_second": BANDWIDTH[cores] * pace}
        if job.device == "cuda" or job.precision == "bfloat16":
            why = "no CUDA device" if job.device == "cuda" else NO_UNITS
            rows.append(make_row(job, {}, status="skipped", reason=why))
        else:
            rows.append(make_row(job, measured))
    return rows


def operators(rounds: int = 5) -> pd.DataFrame:
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
        for strategy in SPEEDUPS:
            for second in range(4):
                rows.append(
                    {
                        "device": "cpu", "workers": 1, "round": 0, "strategy": strategy, "use_case": use_case,
                        "experiment": "ladder", "seconds": 0.5 * second, "cpu_percent": 100.0, "pss_bytes": 2**30,
                        "threads": 6, "io_wait_percent": 0.0,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
