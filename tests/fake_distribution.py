"""Records and traces of notebook 05 as they could be on two cores: made up, exact numbers.

The tables below say how many times as fast as sequential training a strategy is, so tests know every ratio.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.published import read_claims
from lockstep.engine.job import Job
from lockstep.records import COLUMNS, Row, make_row

BATCH = {"SimpleBig": 32, "ComplexSmall": 2}
SPEED = {"SimpleBig": 20.0, "ComplexSmall": 1.0}  # images/s of sequential training
GRADIENT = {"SimpleBig": 228e6, "ComplexSmall": 537e6}  # bytes
NOISE = 1.01  # the second half of an A/A pair over the first
NO_CLUSTER = "an emulated cluster needs root"
NO_CUDA, NO_UNITS = "no CUDA device", "this CPU has no bfloat16 matrix or vector units"

BARS = {"ddp": 1.6, "engines_shared_memory": 1.9, "mpi_shared_memory": 1.91}
BARS_3 = {"ddp": 1.7, "engines_shared_memory": 1.8}
WEAK = {
    "allreduce": 1.6, "layerwise": 1.55, "bucketed": 1.7, "node_aware": 1.8, "local_sgd": 1.95, "epochwise": 1.97,
    "parameter_server": 0.8, "sharded_server": 1.5, "algorithm_1": 1.9, "algorithm_1_best": 1.88, "topk": 1.4,
    "terngrad": 0.7, "gossip": 1.75,
}  # fmt: skip
HEADLINE = {
    1: {"host_threads": 1.6, "mpi_allreduce": 1.7, "mpi_shared_memory": 1.9},
    2: {"host_threads": 1.5, "mpi_allreduce": 1.55, "mpi_shared_memory": 1.85},
}
PROCESSES = 1.8  # of the headline, on one host: without MPI
LINKS = {
    1e9: {"allreduce": 0.6, "bucketed": 0.7, "local_sgd": 1.6, "topk": 1.5, "terngrad": 1.2, "parameter_server": 0.3},
    1e10: {"allreduce": 1.75, "bucketed": 1.8, "local_sgd": 1.9, "topk": 1.6, "terngrad": 1.4, "parameter_server": 1.2},
}
TIMELINE = {"mpi_allreduce": 1.7, "engines_shared_memory": 1.9}
EXCHANGE_SHARE, WAIT_SHARE = 0.05, 0.02  # of a step of all-reduce in `timeline`
SERVERS = {"sharded_server": 1.2, "parameter_server": 0.6}
BETWEEN = {"mpi_shared_memory": 0.51, "mpi_allreduce": 1.0, "sockets": 1.02}  # bytes through all links / gradient
TRAFFIC = {2: 2.0, 3: 4.0, 4: 6.0}
WIRE_ERROR = {"mpi_allreduce": 1.04, "sharded_server": 0.95}  # measured over predicted seconds
ALPHA, BETA = 1e-4, 8e-9  # seconds; seconds per byte
SIZES = (1 << 16, 1 << 24)
STARTS = (6.0, 7.0, 5.0, 6.5, 6.2)  # seconds, one per round


def claim(name: str) -> dict[str, Any]:
    """A row of the ledger itself."""
    (found,) = [row for row in read_claims().to_dict("records") if row["id"] == f"s2m-{name}"]
    return found


def records(rounds: int = 5) -> pd.DataFrame:
    """Every round is 10 % slower than the one before, for everybody: unpaired ratios would spread."""
    rows: list[Row] = []
    for number in range(rounds):
        pace = 1 / (1 + 0.1 * number)
        for use_case in BATCH:
            rows += _trained(use_case, number, pace)
        rows += _bars(number, pace) + _linked(number, pace) + _exchanged(number)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


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


def _step(job: Job, gain: float, pace: float, **measured: float) -> Row:
    speed = SPEED[job.use_case] * gain * pace
    step = job.global_batch_size / speed
    values = {"images_per_second": speed, "step_seconds": step, "epoch_seconds": job.images / speed}
    if job.launcher == "engines":
        values["launch_seconds"] = STARTS[job.round % len(STARTS)]
    return make_row(job, values | measured)


def _pair(pace: float, **shared: Any) -> list[Row]:
    return [_step(Job.of("sequential", **shared, variant=name), gain, pace) for name, gain in (("a", 1), ("b", NOISE))]


def _trained(use_case: str, number: int, pace: float) -> list[Row]:
    """weak, strong, headline and timeline."""
    shared: dict[str, Any] = {"use_case": use_case, "round": number, "images": 1008}
    shared["per_worker_batch_size"] = BATCH[use_case]
    rows = []
    for experiment in ("weak", "strong"):
        shared["experiment"] = experiment
        rows += _pair(pace, **shared)
        batch = {"global_batch_size": BATCH[use_case]} if experiment == "strong" else {}
        for name, gain in WEAK.items():
            rows.append(_step(Job.of(name, workers=2, **shared, **batch, launcher="engines"), gain, pace))
        on_gpu = Job.of("allreduce", workers=2, **shared, **batch, launcher="engines", device="cuda")
        rows.append(make_row(on_gpu, {}, status="skipped", reason=NO_CUDA))
    shared["experiment"] = "headline"
    for hosts, gains in HEADLINE.items():
        link: dict[str, Any] = {"link_bits_per_second": 1e10} if hosts > 1 else {}
        for name, gain in gains.items():
            job = Job.of(name, workers=2 * hosts, hosts=hosts, **link, **shared)
            rows.append(_step(job, gain, pace))
            if name == "mpi_allreduce":
                rows.append(_step(job.with_(variant="b"), NOISE * gain, pace))
    rows.append(_step(Job.of("processes", workers=2, **shared), PROCESSES, pace))
    return rows + _timeline(pace, **shared | {"experiment": "timeline"})


def _timeline(pace: float, **shared: Any) -> list[Row]:
    rows = _pair(pace, **shared)[:1]
    for name, gain in TIMELINE.items():
        over: dict[str, Any] = {"hosts": 2, "link_bits_per_second": 1e10} if name == "mpi_allreduce" else {}
        job = Job.of(name, workers=2, **over, **shared)
        step = job.global_batch_size / (SPEED[job.use_case] * gain * pace)
        parts = {"exchange_seconds": EXCHANGE_SHARE * step, "wait_seconds": WAIT_SHARE * step}
        carried = {"link_bytes_busiest": GRADIENT[job.use_case]} if over else {}
        rows.append(_step(job, gain, pace, **parts, **carried))
    return rows


def _bars(number: int, pace: float) -> list[Row]:
    shared: dict[str, Any] = {"experiment": "bars", "round": number, "images": 1008}
    rows = _pair(pace, **shared)
    for workers, gains in ((2, BARS), (3, BARS_3)):
        rows += [_step(Job.of(name, workers=workers, **shared), gain, pace) for name, gain in gains.items()]
    for name in ("ddp", "engines_shared_memory"):
        job = Job.of(name, workers=2, precision="bfloat16", **shared)
        rows.append(make_row(job, {}, status="skipped", reason=NO_UNITS))
    return rows


def _linked(number: int, pace: float) -> list[Row]:
    """links and servers."""
    shared: dict[str, Any] = {"experiment": "links", "round": number, "images": 1008}
    rows = _pair(pace, **shared)
    shared["launcher"] = "mpiexec"
    sent = {"topk": 0.02, "terngrad": 1 / 16}
    for rate, gains in LINKS.items():
        for name, gain in gains.items():
            hosts = 3 if name == "parameter_server" else 2
            job = Job.of(name, workers=2, hosts=hosts, link_bits_per_second=rate, **shared)
            rows.append(_step(job, gain, pace, bytes_sent=sent.get(name, 1.0) * GRADIENT["SimpleBig"]))
    shared |= {"experiment": "servers", "link_bits_per_second": 1e9}
    for name, gain in SERVERS.items():
        hosts = 5 if name == "parameter_server" else 4
        rows.append(_step(Job.of(name, workers=4, hosts=hosts, **shared), gain, pace))
    return rows


def _exchanged(number: int) -> list[Row]:
    """between_hosts, traffic and wire: no model."""
    shared: dict[str, Any] = {"round": number, "input": "none", "link_bits_per_second": 1e10}
    size = int(GRADIENT["SimpleBig"])
    rows = []
    for name, times in BETWEEN.items():
        job = Job.of(name, workers=4, hosts=2, experiment="between_hosts", **shared)
        rows.append(make_row(job, {"step_seconds": 0.1, "link_bytes_sent": times * size}))
    for hosts, times in TRAFFIC.items():
        job = Job.of("mpi_allreduce", workers=hosts, hosts=hosts, experiment="traffic", **shared)
        rows.append(make_row(job, {"step_seconds": 0.1, "link_bytes_sent": times * size}))
    shared |= {"experiment": "wire", "hosts": 2, "workers": 2, "link_bits_per_second": 1e9}
    for size in SIZES:
        ping = Job.of("mpi_allreduce", message_bytes=size, **shared).with_(strategy="ping_pong", sync="ping_pong")
        one_way = ALPHA + BETA * size
        rows.append(make_row(ping, {"step_seconds": one_way, "exchange_seconds": one_way, "update_seconds": 0.0}))
        for name, error in WIRE_ERROR.items():
            own = shared if name == "mpi_allreduce" else shared | {"launcher": "mpiexec"}
            seconds = error * (2 * ALPHA + BETA * size)
            job = Job.of(name, message_bytes=size, **own)
            spent = {"step_seconds": seconds + 0.01, "update_seconds": 0.01, "exchange_seconds": seconds}
            rows.append(make_row(job, spent))
    return rows


def resources(rounds: int = 5, cpu_percent: float = 60.0, io_wait_percent: float = 1.0) -> pd.DataFrame:
    """Traces of `timeline`: CPU use of all ranks together (100 = one core), I/O wait of the machine."""
    rows = []
    for number in range(rounds):
        for use_case in BATCH:
            for strategy in ("sequential", *TIMELINE):
                use = cpu_percent if strategy == "mpi_allreduce" else 95.0
                for second in range(4):
                    rows.append(
                        {
                            "device": "cpu", "workers": 2, "round": number, "strategy": strategy, "use_case": use_case,
                            "experiment": "timeline", "seconds": 0.5 * second, "cpu_percent": use + second,
                            "pss_bytes": 2**30, "threads": 6, "io_wait_percent": io_wait_percent,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)
