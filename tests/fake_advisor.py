"""Records of notebook 13 as they could be on two cores: made up from a model of costs that the test knows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from lockstep.advisor.steps import TIME_SLICE_SECONDS
from lockstep.analysis.stored import Stored
from lockstep.engine.job import Job
from lockstep.experiments.e13_advisor.grid import CROWDED, MEMORY, WIRE, cells
from lockstep.experiments.experiment import Parameters
from lockstep.predict.cost_model import chain_of_sync
from lockstep.predict.link_model import AlphaBeta
from lockstep.records import COLUMNS, MEASUREMENTS

MODELS = ("SmallResNet", "MLPMixer", "TextLSTM", "TextTransformer", "ComplexSmall")
PARAMETERS = Parameters(
    use_cases=list(MODELS), per_worker_batch_size=dict.fromkeys(MODELS, 8) | {"ComplexSmall": 2},
    long_steps=["ComplexSmall"], steps=dict.fromkeys(MODELS, 3), warmup_steps=2, workers=2, turn_workers=[3, 4],
    link_rate=1e9, message_bytes=[65536, 8388608],
)  # fmt: skip
FIXED, UPDATE, CROWDING, CORES, THREADS_GAIN = 0.02, 0.004, 0.05, 2, 1.7
BYTE_SECONDS = {"shared_memory": 0.4e-9, "allreduce": 1.2e-9, "ddp": 1.5e-9}
LINK = AlphaBeta(2e-4, 8.4e-9)
PROCESS_BYTES, IMAGE_BYTES = 300e6, 4e6


def image_seconds(use_case: str) -> float:
    return 0.01 * (1 + MODELS.index(use_case))


def gradient_bytes(use_case: str) -> float:
    return 1e7 * (1 + MODELS.index(use_case))


def parts(job: Job) -> dict[str, float]:
    """Seconds of a step's parts, as the advisor's model has them."""
    batch, size = math.ceil(job.global_batch_size / job.workers), gradient_bytes(job.use_case)
    turns = math.ceil(job.workers / CORES)
    crowded = 1 + CROWDING * (job.workers / turns - 1)
    computing = turns * (FIXED + batch * image_seconds(job.use_case) * crowded)
    if job.threads_per_worker > 1:
        computing = (FIXED + batch * image_seconds(job.use_case)) / THREADS_GAIN
    if job.workers == 1 or job.experiment == CROWDED:
        return {"compute_seconds": computing, "exchange_seconds": 0.0, "update_seconds": turns * UPDATE}
    each, update = BYTE_SECONDS[job.sync], turns * UPDATE
    exchange = turns * each * chain_of_sync("allreduce" if job.sync == "ddp" else job.sync, job.workers, size).bytes
    if job.sync == "shared_memory":
        update *= 1 / job.workers
        exchange += (turns - 1) * TIME_SLICE_SECONDS  # at both barriers they wait for who shares their core
    if job.hosts > 1:
        exchange += LINK.seconds_of(chain_of_sync(job.sync, job.workers, size, hosts=job.hosts))
    if job.sync == "ddp":
        return {"compute_seconds": computing + exchange, "exchange_seconds": 0.0, "update_seconds": update}
    return {"compute_seconds": computing, "exchange_seconds": exchange, "update_seconds": update}


def stored(rounds: int = 6, off: float = 0.03, noise: float = 0.005, seed: int = 1) -> Stored:
    """So many rounds of every cell. `off`: the standard deviation by which cells differ from the model of costs;
    `noise`: that of a single round."""
    random = np.random.default_rng(seed)
    jobs = [job.with_(images=256) for job in cells(PARAMETERS)]
    away = {job.with_(variant="a"): math.exp(random.normal(0, off)) for job in jobs}
    rows = [
        row(job.with_(round=number), away[job.with_(variant="a")] * math.exp(random.normal(0, noise)))
        for number in range(rounds)
        for job in jobs
        if job.experiment != MEMORY or not number
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in MEASUREMENTS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return Stored(frame, {"models": sizes()})


def row(job: Job, factor: float = 1.0) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(MEASUREMENTS)
    if job.experiment == WIRE:
        values |= {"step_seconds": LINK.seconds(1, job.message_bytes)}
        values["exchange_seconds"] = values["step_seconds"]
    else:
        of_step = {name: seconds * factor for name, seconds in parts(job).items()}
        step = sum(of_step.values())
        values |= of_step | {"step_seconds": step, "images_per_second": job.global_batch_size / step}
        values |= {"input_seconds": 0.0, "wait_seconds": 0.0, "peak_pss_bytes": held_bytes(job), "launch_seconds": 3.0}
    values["measuring_seconds"] = 2.0
    known = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    reason = "; ".join(job.cautions(CORES))
    return {**known, **values, "session": 0, "source": "measured", "status": "ok", "reason": reason}


def held_bytes(job: Job) -> float:
    """Of all workers together: each a process, parameters, gradients, and SGD's state, once for all or each its own."""
    batch, size = math.ceil(job.global_batch_size / job.workers), gradient_bytes(job.use_case)
    copies = 1 if job.sync == "shared_memory" else job.workers
    return job.workers * (PROCESS_BYTES + size + IMAGE_BYTES * batch) + 2 * copies * size


def sizes() -> pd.DataFrame:
    rows = []
    for name in MODELS:
        size = int(gradient_bytes(name))
        known = {"parameters": size // 4, "gradient_bytes": size, "buffer_bytes": 0, "optimiser_bytes": size}
        known |= {"largest_layer_bytes": 0, "empty_process_bytes": int(PROCESS_BYTES)}
        rows.append({"round": 0, "use_case": name, "experiment": CROWDED, **known})
    return pd.DataFrame(rows)
