"""Notebook 02's cells: threads and processes on one machine, and where their time goes.

table1     every strategy, the batch growing with the workers      (Table 1 of the paper)
scaling    one budget of cores, split over more and more workers
input      the sequential cell with photos as JPEG and as tensors in memory
exchange   the exchange of a step without the model
"""

from __future__ import annotations

from typing import Any

from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters

TABLE1 = ("sequential", "threads", "processes")
"""The rows of the paper's Table 1."""
BESIDE_TABLE1 = ("intra_op", "processes_allreduce", "ddp")
"""What SimpleBig is trained with, too: other ways to use the same cores."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        jobs += _table1(chosen, use_case)
    for strategy in ("sequential", "threads", "processes", "ddp"):
        jobs.append(_cell(chosen, "table1", strategy, precision="bfloat16"))
    jobs += _scaling(chosen)
    for cores in (1, 2):
        for source in ("jpeg", "memory"):
            jobs.append(_cell(chosen, "input", "sequential", cores_per_worker=cores, input=source))
    jobs += _exchange(chosen)
    return jobs


def _table1(chosen: Parameters, use_case: str) -> list[Job]:
    strategies = (*TABLE1, *BESIDE_TABLE1) if use_case == "SimpleBig" else TABLE1
    jobs = [_cell(chosen, "table1", strategy, use_case) for strategy in strategies]
    jobs.append(_cell(chosen, "table1", "sequential", use_case, variant="b"))  # an A/A pair with the first
    for strategy in ("sequential", "processes_allreduce"):
        jobs.append(_cell(chosen, "table1", strategy, use_case, device="cuda"))
    return jobs


def _scaling(chosen: Parameters) -> list[Job]:
    budget = max(chosen.scaling_workers)
    jobs = []
    for workers in chosen.scaling_workers:
        share: dict[str, Any] = {
            "threads_per_worker": budget // workers,
            "global_batch_size": chosen.scaling_batch_size,
        }
        for strategy in ("threads", "processes"):
            jobs.append(_cell(chosen, "scaling", strategy, workers=workers, **share))
    return jobs


def _exchange(chosen: Parameters) -> list[Job]:
    alone: dict[str, Any] = {"steps": 3, "warmup_steps": 1, "input": "none"}
    jobs = [
        _cell(chosen, "exchange", strategy, **alone) for strategy in ("processes", "processes_allreduce", "threads")
    ]
    return [*jobs, jobs[0].with_(strategy="copy_bound", sync="copy_bound")]


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str = "SimpleBig", **fields: Any) -> Job:
    given: dict[str, Any] = {
        "experiment": experiment,
        "use_case": use_case,
        "steps": chosen.steps,
        "warmup_steps": chosen.warmup_steps,
        "workers": chosen.workers,
        "per_worker_batch_size": chosen.of("per_worker_batch_size", use_case),
    }
    job = Job.of(strategy, **given | fields)
    # DDP rebuilds its buckets in its second step, even where the cell states its own number of warm-up steps.
    return job.with_(warmup_steps=chosen.warmup_steps + 1) if strategy == "ddp" else job


def traced(job: Job) -> bool:
    """The paper's Figures 2 and 3 are of the cells of Table 1."""
    return job.experiment == "table1" and job.variant == "a" and job.precision == "float32"
