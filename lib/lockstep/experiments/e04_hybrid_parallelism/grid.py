"""Notebook 04's cells: the same number of ranks and the same global batch, spent in several ways.

hybrid       sequential, data parallel, model parallel, and both combined       (Table 2 of the paper)
layers       each layer by itself, for micro-batches of several sizes: the cost model's computing times
collective   all-reduces between two ranks: the cost model's link
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters
from lockstep.measure.comparisons import pairs_of
from lockstep.measure.planning import Comparison

ONE_PROCESS = "intra_op"
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
    jobs = [_cell(chosen, "hybrid", "sequential", use_case)]
    counts, whole = chosen.of("worker_counts", use_case), chosen.of("global_batch_size", use_case)
    # The cores of the fewest ranks without any parallelism between workers: what those ranks must beat.
    jobs.append(_cell(chosen, "hybrid", ONE_PROCESS, use_case, counts[0], per_worker_batch_size=whole))
    if use_case == chosen.use_cases[0]:  # an A/A pair of two workers
        jobs.append(_cell(chosen, "hybrid", "processes_allreduce", use_case, counts[0], variant="b"))
    for count in counts:
        others = chosen.of("others", use_case) if count == counts[0] else ()
        for strategy in ("processes_allreduce", *others):
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
        timed = {"micro_batches": 2, "global_batch_size": 2 * size}
        jobs.append(_cell(chosen, "layers", "gpipe", use_case, 2, **timed))
    return jobs


def _collective(chosen: Parameters) -> list[Job]:
    jobs = []
    for size in chosen.message_bytes:
        repeated = {"steps": 4 if size > _LONG_MESSAGE else 20}
        alone = repeated | {"input": "none", "message_bytes": size}
        jobs.append(_cell(chosen, "collective", "processes_allreduce", chosen.use_cases[0], 2, **alone))
    return jobs


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str, workers: int = 1, **fields: Any) -> Job:
    batch = chosen.of("global_batch_size", use_case)
    given: dict[str, Any] = {"experiment": experiment, "use_case": use_case, "workers": workers}
    given |= {"global_batch_size": batch, "per_worker_batch_size": max(1, batch // workers)}
    given |= {"steps": chosen.steps, "warmup_steps": chosen.warmup_steps}
    return Job.of(strategy, **given | fields)


def traced(job: Job) -> bool:
    """The paper's Figure 4b is of the hybrid.

    Samples are stored by strategy alone, and 1F1B has several cells here, so only one of them can be sampled.
    """
    return job.experiment == "hybrid" and job.variant == "a" and _is_hybrid(job)


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Each way beside sequential training, as the tables read them; the second half of the A/A pair beside the first.

    Layers and messages are compared with nothing: as many rounds as an interval needs. The headline is the hybrid.
    """
    again = {place for place, job in enumerate(jobs) if job.variant == "b"}
    halves = [(jobs[place], jobs[place].with_(variant="a")) for place in again]
    both = [job for job in jobs if job.experiment == "hybrid" and _is_hybrid(job) and job.device == "cpu"]
    found = pairs_of(jobs, more=halves, headlines=both[:1])
    bases = {place for place, job in enumerate(jobs) if job.strategy == "sequential"}
    kept = [each for each in found if not (set(each.cells) & again and set(each.cells) & bases)]
    return [each if len(each.cells) > 1 else replace(each, rounds=MIN_ROUNDS) for each in kept]


def _is_hybrid(job: Job) -> bool:
    return job.replicas > 1 and job.pipeline_ranks > 1
