"""Records of a run of notebook 02 as it could be on two cores: made up, seeded, with the shape of the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import Job
from lockstep.records import COLUMNS, MEASUREMENTS

# strategy -> workers, speedup over sequential, peak PSS in GiB (ComplexSmall, SimpleBig), bandwidths of a step's phases
TABLE1: dict[str, tuple[int, float, tuple[float, float]]] = {
    "sequential": (1, 1.0, (4.1, 2.0)),
    "intra_op": (2, 1.7, (4.2, 2.1)),
    "threads": (2, 1.65, (6.4, 3.2)),
    "processes": (2, 1.9, (6.1, 3.0)),
    "processes_allreduce": (2, 1.72, (7.6, 3.6)),
    "ddp": (2, 1.7, (7.7, 3.7)),
}
USE_CASES = {"ComplexSmall": (8, 6.0, 0.96), "SimpleBig": (32, 0.52, 1.0)}  # batch, step seconds, factor on speedups


def cell(job: Job, rng: np.random.Generator, step: float, **measured: Any) -> dict[str, Any]:
    """An ok row with 1 % of noise; phases make the step up."""
    step *= float(rng.normal(1, 0.01))
    values: dict[str, Any] = dict.fromkeys(MEASUREMENTS)
    share = {"input": 0.04, "compute": 0.85, "wait": 0.02, "exchange": 0.05, "update": 0.04}
    values.update({f"{name}_seconds": step * part for name, part in share.items()})
    values.update(step_seconds=step, images_per_second=job.global_batch_size / step, decode_seconds=0.1 * step)
    values.update(measured)
    row = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    return {**row, **values, "source": "measured", "status": "ok", "reason": ""}


def skipped(job: Job, reason: str, status: str = "skipped") -> dict[str, Any]:
    row = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    return {**row, **dict.fromkeys(MEASUREMENTS), "source": "measured", "status": status, "reason": reason}


def records(rounds: int = 6, failed: str = "", experiments: tuple[str, ...] = ()) -> pd.DataFrame:
    """All four experiments; `failed` names a strategy of Table 1 that failed in every round."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        for use_case, (batch, step, factor) in USE_CASES.items():
            rows += _table1(rng, number, use_case, batch, step, factor, failed)
            rows += _scaling(rng, number, use_case, batch, step)
        rows += _input(rng, number) + _exchange(rng, number)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in MEASUREMENTS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame[frame["experiment"].isin(experiments)] if experiments else frame


def _table1(
    rng: np.random.Generator, number: int, use_case: str, batch: int, step: float, factor: float, failed: str
) -> list[dict[str, Any]]:
    shared: dict[str, Any] = {"experiment": "table1", "use_case": use_case, "per_worker_batch_size": batch}
    shared |= {"data_source": "real", "images": 1008, "round": number}
    rows = []
    for strategy, (workers, gain, pss) in TABLE1.items():
        gain = gain * factor if strategy != "sequential" else 1.0
        for variant in ("a", "b") if strategy == "sequential" else ("a",):
            job = Job.of(strategy, workers=workers, **shared, variant=variant)
            peak = pss[use_case == "SimpleBig"] * 2**30 * float(rng.normal(1, 0.003))
            seconds = step * job.global_batch_size / batch / gain
            row = cell(job, rng, seconds, peak_pss_bytes=peak)
            rows.append(skipped(job, "worker 1 raised ValueError: bad", "failed") if strategy == failed else row)
    for strategy in ("sequential", "processes"):
        rows.append(skipped(Job.of(strategy, **shared, device="cuda"), "no CUDA device"))
    return rows


def _scaling(rng: np.random.Generator, number: int, use_case: str, batch: int, step: float) -> list[dict[str, Any]]:
    rows = []
    for strategy, gains in {"threads": (1.7, 1.65, 1.5), "processes": (1.7, 1.9, 1.84)}.items():
        for workers, threads, gain in zip((1, 2, 4), (2, 1, 1), gains, strict=True):
            job = Job.of(strategy, workers=workers, experiment="scaling", use_case=use_case, round=number,
                         data_source="real", threads_per_worker=threads, per_worker_batch_size=batch)  # fmt: skip
            rows.append(cell(job, rng, step * workers / gain))
    return rows


def _input(rng: np.random.Generator, number: int) -> list[dict[str, Any]]:
    rows = []
    for cores, gain in ((1, 0.9), (2, 0.985)):
        for kind in ("jpeg", "memory"):
            job = Job.of("sequential", experiment="input", use_case="SimpleBig", input=kind, data_source="real",
                         cores_per_worker=cores, round=number)  # fmt: skip
            rows.append(cell(job, rng, 0.5 / (gain if kind == "jpeg" else 1), decode_seconds=0.05))
    return rows


def _exchange(rng: np.random.Generator, number: int) -> list[dict[str, Any]]:
    rows = []
    for strategy, seconds in {"processes": 0.06, "processes_allreduce": 0.27, "copy_bound": 0.045}.items():
        job = Job.of("processes", workers=2, experiment="exchange", use_case="SimpleBig", input="none", round=number)
        sync = {"processes": "shared_memory", "processes_allreduce": "allreduce"}.get(strategy, strategy)
        half = seconds / 2 * float(rng.normal(1, 0.01))
        row = cell(job.with_(strategy=strategy, sync=sync), rng, seconds, exchange_seconds=half, update_seconds=half)
        rows.append(row)
    return rows


def resources(rounds: int = 6, jitter: float = 0.06) -> pd.DataFrame:
    """Traces in which threads vary more than processes, with `jitter` of relative noise on their PSS."""
    rng = np.random.default_rng(2)
    rows = []
    for number in range(rounds):
        for use_case in USE_CASES:
            for strategy in ("sequential", "threads", "processes"):
                workers, _, pss = TABLE1[strategy]
                noise = jitter if strategy == "threads" else jitter / 4
                for second in np.arange(0, 12, 0.5):
                    peak = pss[use_case == "SimpleBig"] * 2**30 * (1 - 0.6 * np.exp(-second))
                    rows.append({
                        "experiment": "table1", "use_case": use_case, "strategy": strategy, "round": number,
                        "seconds": second, "cpu_percent": 97.0 * workers + rng.normal(0, 1),
                        "pss_bytes": peak * rng.normal(1, noise),
                        "threads": 12 + (rng.integers(0, 3) if strategy == "threads" else 0),
                        "io_wait_percent": abs(rng.normal(0.4, 0.3)),
                    })  # fmt: skip
    return pd.DataFrame(rows)
