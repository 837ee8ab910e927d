"""Records and traces of notebook 05 as they could be on two cores: made up for the very cells and pairs of its grid.

The tables below say how many times as fast as sequential training a strategy is, so tests know every ratio, but for the
noise of a round (NOISE).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.published import read_claims
from lockstep.engine.job import Job
from lockstep.experiments.e05_mpi_distribution.grid import cells
from lockstep.experiments.e05_mpi_distribution.pairs import comparisons
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.parameters import read_parameters
from lockstep.records import COLUMNS, Row, make_row
from lockstep.records.places import repository_root

FIXED = {"SimpleBig": 0.15, "ComplexSmall": 0.3, "Pneumonia": 0.004}  # seconds of a step of one core
IMAGE = {"SimpleBig": 0.05, "ComplexSmall": 0.6, "Pneumonia": 0.001}  # and of an image
GRADIENT = {"SimpleBig": 228e6, "ComplexSmall": 537e6, "Pneumonia": 1.03e6}  # bytes
HEADERS = 1.05  # what the interface counts over that
IMAGES = {"SimpleBig": 4802, "ComplexSmall": 633, "Pneumonia": 4000}
NOISE = 0.005  # of a round
NO_CLUSTER = "an emulated cluster needs root"
NO_CUDA, NO_UNITS = "no CUDA device", "this CPU has no bfloat16 matrix or vector units"

BARS = {"sequential": 1.0, "ddp": 1.6, "engines_shared_memory": 1.9, "mpi_shared_memory": 1.91, "processes": 1.8}
WEAK = {
    "sequential": 1.0, "allreduce": 1.6, "layerwise": 1.55, "bucketed": 1.7, "node_aware": 1.8, "local_sgd": 1.95,
    "epochwise": 1.97, "parameter_server": 0.8, "sharded_server": 1.5, "algorithm_1": 1.9, "algorithm_1_best": 1.88,
    "topk": 1.4, "terngrad": 0.7, "gossip": 1.75,
}  # fmt: skip
HEADLINE = {
    1: {"host_threads": 1.6, "mpi_allreduce": 1.7, "mpi_shared_memory": 1.9},
    2: {"host_threads": 1.5, "mpi_allreduce": 1.55, "mpi_shared_memory": 1.85},
}
LINKS = {1e9: {"allreduce": 0.6, "topk": 1.5, "terngrad": 1.2}, 1e10: {"allreduce": 0.7, "topk": 1.6, "terngrad": 1.4}}
SENT = {"topk": 0.02, "terngrad": 1 / 16}
TIMELINE = {"sequential": 1.0, "mpi_allreduce": 0.83}
BETWEEN = {"mpi_shared_memory": 0.51, "mpi_allreduce": 1.0, "sockets": 1.02}  # bytes through all links / message
CHAIN = {"ping_pong": (1, 1.0), "mpi_allreduce": (2, 1.0), "sharded_server": (2, 1.5), "parameter_server": (2, 8.0)}
"""Messages and bytes over the message, one after the other."""
WIRE_ERROR = {"mpi_allreduce": 1.04, "sharded_server": 1.02}  # measured over predicted seconds
ALPHA, BETA = 1e-4, 8e-9  # seconds; seconds per byte
SIZES = (4096, 4194304)  # bytes of the messages
START = 6.0  # seconds, and half a second more or less
ACCURACY = {"allreduce": 0.80, "terngrad": 0.79, 0.01: 0.795, 0.001: 0.74}


def claim(name: str) -> dict[str, Any]:
    """A row of the ledger itself."""
    (found,) = [row for row in read_claims().to_dict("records") if row["id"] == f"s2m-{name}"]
    return found


def chosen(**values: Any) -> Parameters:
    """The parameters as they stand in the notebook, and those given."""
    known = read_parameters(repository_root() / "notebooks" / "05_mpi_distribution.ipynb")
    return Parameters(**{name: parameter.default for name, parameter in known.items()} | values)


def records(rounds: int = 8, **values: Any) -> pd.DataFrame:
    """A round is one comparison of the grid; each is slower than the one before by half a percent, for both cells."""
    return _records(rounds, tuple(values.items())).copy()


@cache
def _records(rounds: int, values: tuple[tuple[str, Any], ...]) -> pd.DataFrame:
    jobs = [job.with_(images=job.images or IMAGES[job.use_case]) for job in cells(chosen(**dict(values)))]
    asked, random = comparisons(jobs), np.random.default_rng(5)
    rows: list[Row] = [_skipped(job) for job in jobs if _impossible(job)]
    for repetition in range(rounds):
        for place, comparison in enumerate(asked):
            own = [jobs[index] for index in comparison.cells]
            if any(_impossible(job) for job in own):
                continue
            number = 1 + repetition * len(asked) + place
            pace = 1 / (1 + 0.005 * repetition)
            for job in own:
                job = job.with_(round=number, seed=repetition if comparison.rounds else 0)
                rows.append(_row(job, pace * float(np.exp(random.normal(0, NOISE))), random))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _impossible(job: Job) -> bool:
    return job.device == "cuda" or job.precision == "bfloat16"


def _skipped(job: Job) -> Row:
    reason = NO_CUDA if job.device == "cuda" else NO_UNITS
    return make_row(job, {}, status="skipped", reason=reason) | {"session": 0, "measuring_seconds": 0.0}


def _row(job: Job, pace: float, random: np.random.Generator) -> Row:
    """`pace`: of this cell in this round."""
    if job.experiment == "paired":
        measured = _learnt(job, random)
    elif job.input == "none":
        measured = _exchanged(job, pace)
    else:
        measured = _trained(job, pace)
    if job.launcher == "engines":
        measured["launch_seconds"] = START + float(random.uniform(-0.5, 0.5))
    return make_row(job, measured) | {"session": 0, "measuring_seconds": 3.0}


def gain(job: Job) -> float:
    """How many times as fast as sequential training with as many images per worker."""
    if job.strategy == "sequential":
        return 1.0
    if job.experiment == "links":
        return LINKS[job.link_bits_per_second][job.strategy]
    if job.experiment == "headline":
        return HEADLINE[job.hosts][job.strategy]
    return {"bars": BARS, "weak": WEAK, "strong": WEAK, "timeline": TIMELINE}[job.experiment][job.strategy]


def _trained(job: Job, pace: float) -> dict[str, float]:
    alone = job.global_batch_size / job.workers
    speed = gain(job) * pace * alone / (FIXED[job.use_case] + alone * IMAGE[job.use_case])
    step = job.global_batch_size / speed
    found = {"images_per_second": speed, "step_seconds": step, "epoch_seconds": job.images / speed}
    sent = SENT.get(job.strategy, 1.0) * GRADIENT[job.use_case] if job.workers > 1 else 0.0
    found |= {"bytes_sent": sent, "exchange_seconds": 0.05 * step, "wait_seconds": 0.02 * step}
    return found | ({"link_bytes_busiest": HEADERS * sent} if job.link_bits_per_second else {})


def _learnt(job: Job, random: np.random.Generator) -> dict[str, float]:
    key = job.density if job.strategy == "topk" else job.strategy
    luck = 0.02 * np.sin(job.seed) + float(random.normal(0, 0.003))  # the seed's, and the run's own
    sent = {"terngrad": 1 / 16}.get(job.strategy, 2 * job.density if job.strategy == "topk" else 1.0)
    return {"test_accuracy": ACCURACY[key] + luck, "bytes_sent": sent * GRADIENT[job.use_case], "step_seconds": 0.03}


def _exchanged(job: Job, pace: float) -> dict[str, float]:
    """No model."""
    size = job.message_bytes
    messages, times = CHAIN.get(job.strategy, (2, 1.0))
    seconds = WIRE_ERROR.get(job.strategy, 1.0) * (messages * ALPHA + times * BETA * size) / pace
    crossed = BETWEEN.get(job.strategy, 1.0) if job.experiment == "between_hosts" else 2.0 * (job.hosts - 1)
    spent = {"exchange_seconds": seconds, "update_seconds": 0.0, "step_seconds": seconds}
    return spent | {"link_bytes_sent": crossed * size, "bytes_sent": float(size)}


def scaled(frame: pd.DataFrame, measure: str, factor: float, **conditions: Any) -> pd.DataFrame:
    """A copy in which `measure` of the rows that fit is multiplied. Fails if none fits."""
    frame = frame.copy()
    frame.loc[_fitting(frame, conditions), measure] *= factor
    return frame


def without(frame: pd.DataFrame, **conditions: Any) -> pd.DataFrame:
    """A copy without the rows that fit."""
    return frame[~_fitting(frame, conditions)].copy()


def not_run(frame: pd.DataFrame, status: str, reason: str, **conditions: Any) -> pd.DataFrame:
    """A copy in which the rows that fit were skipped or failed."""
    frame, hit = frame.copy(), _fitting(frame, conditions)
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    measured = [name for name in numbers if name not in Job.__dataclass_fields__]
    frame.loc[hit, measured] = float("nan")
    frame.loc[hit, ["status", "reason"]] = [status, reason]
    return frame


def _fitting(frame: pd.DataFrame, conditions: dict[str, Any]) -> pd.Series:
    hit = pd.Series(True, index=frame.index)
    for name, value in conditions.items():
        hit &= frame[name] == value
    assert hit.any(), f"no row fits {conditions}"
    return hit


def resources(rounds: int = 2, cpu_percent: float = 60.0, io_wait_percent: float = 1.0) -> pd.DataFrame:
    """Traces of `timeline`: CPU use of all ranks together (100 = one core), I/O wait of the machine."""
    rows = []
    for number in range(rounds):
        for second in range(8):
            rows.append(
                {
                    "device": "cpu", "workers": 2, "round": number, "strategy": "mpi_allreduce",
                    "use_case": "SimpleBig", "experiment": "timeline", "seconds": 0.5 * second, "phase": "train",
                    "cpu_percent": cpu_percent + second, "pss_bytes": 2**30, "threads": 6,
                    "io_wait_percent": io_wait_percent,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)
