"""Notebook 04's cells: the same number of ranks and the same global batch, spent in several ways.

hybrid       sequential, data parallel, model parallel, and both combined       (Table 2 of the paper)
layers       each layer by itself, for micro-batches of several sizes: the cost model's computing times
collective   all-reduces between two ranks: the cost model's link
"""

from __future__ import annotations

from typing import Any

from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters

_LONG_MESSAGE = 2**20
"""Bytes of a message above which a few repetitions give a steady time."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        jobs += _hybrid(chosen, use_case)
        jobs += _hybrid_on_gpus(chosen, use_case)
        jobs += _layers(chosen, use_case)
    jobs += _collective(chosen)
    return jobs


def _hybrid(chosen: Parameters, use_case: str) -> list[Job]:
    in_pieces = {"micro_batches": chosen.of("micro_batches", use_case)}
    jobs = []
    for variant in ("a", "b"):  # an A/A pair
        jobs.append(_cell(chosen, "hybrid", "sequential", use_case, variant=variant))
    for count in chosen.of("worker_counts", use_case):
        for strategy in ("processes_allreduce", *chosen.of("others", use_case)):
            jobs.append(_cell(chosen, "hybrid", strategy, use_case, count))
        jobs.append(_cell(chosen, "hybrid", "1f1b", use_case, count, stages=count, **in_pieces))
    jobs.append(_cell(chosen, "hybrid", "1f1b", use_case, 4, sync="allreduce", **in_pieces))
    return jobs


def _hybrid_on_gpus(chosen: Parameters, use_case: str) -> list[Job]:
    on_gpus: dict[str, Any] = {"device": "cuda"}
    in_pieces = on_gpus | {"micro_batches": chosen.of("micro_batches", use_case)}
    return [
        _cell(chosen, "hybrid", "sequential", use_case, **on_gpus),
        _cell(chosen, "hybrid", "processes_allreduce", use_case, 2, **on_gpus),
        _cell(chosen, "hybrid", "gpipe", use_case, 2, **in_pieces),
        _cell(chosen, "hybrid", "gpipe", use_case, 4, sync="allreduce", **in_pieces),
    ]


def _layers(chosen: Parameters, use_case: str) -> list[Job]:
    jobs = []
    for size in chosen.of("layer_sizes", use_case):
        timed = {"micro_batches": 2, "global_batch_size": 2 * size, "warmup_steps": 1}
        jobs.append(_cell(chosen, "layers", "gpipe", use_case, 2, **timed))
    return jobs


def _collective(chosen: Parameters) -> list[Job]:
    jobs = []
    for size in chosen.message_bytes:
        repeated = {"steps": 3 if size > _LONG_MESSAGE else 20, "warmup_steps": 1}
        alone = repeated | {"input": "none", "message_bytes": size}
        jobs.append(_cell(chosen, "collective", "processes_allreduce", chosen.use_cases[0], 2, **alone))
    return jobs


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str, workers: int = 1, **fields: Any) -> Job:
    batch = chosen.of("global_batch_size", use_case)
    given: dict[str, Any] = {"experiment": experiment, "use_case": use_case, "workers": workers}
    given |= {"global_batch_size": batch, "per_worker_batch_size": max(1, batch // workers)}
    given |= {"steps": chosen.steps, "warmup_steps": chosen.of("warmup_steps", use_case)}
    job = Job.of(strategy, **given | fields)
    # Micro-batches are warm one step later, see notebook 03.
    return job.with_(warmup_steps=job.warmup_steps + 1) if job.micro_batches > 1 else job


def traced(job: Job) -> bool:
    """The paper's Figure 4b is of the hybrid; sequential training stands beside it.

    Samples are stored by strategy alone, and 1F1B has several cells here, so only one of them can be sampled.
    """
    if job.experiment != "hybrid" or job.variant != "a" or job.precision != "float32":
        return False
    return job.ranks == 1 or (job.replicas > 1 and job.pipeline_ranks > 1)
