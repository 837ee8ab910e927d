"""Notebook 03's cells: models that are cut into stages, and what each stage costs by itself.

speedup        one core, two cores inside every operator, naive and pipelined stages      (Table 2 of the paper)
schedules      naive, and each schedule with several numbers of micro-batches; photos decoded beforehand
stages         1F1B over more and more ranks
partition      1F1B with the model cut by each rule, and with activations recomputed
stage_memory   some of these again with every tensor counted, which takes time
stage_times    each stage by itself, all ranks busy and none waiting: a step's time is predicted from these
layers         each layer by itself: the cuts between stages are judged by these
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters

PARTITIONS = ("balanced", "equal_layers", "equal_parameters")


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        jobs += _speedup(chosen, use_case)
    pipelines = [*_schedules(chosen), *_stages(chosen), *_partitions(chosen)]
    jobs += _stage_memory(chosen, pipelines)
    jobs += pipelines
    jobs += _stage_times(pipelines)
    jobs += _layers(pipelines)
    return jobs


def _speedup(chosen: Parameters, use_case: str) -> list[Job]:
    whole = {
        "use_case": use_case,
        "global_batch_size": chosen.of("global_batch_size", use_case),
        "warmup_steps": chosen.of("long_warmup_steps", use_case),
    }
    in_pieces = whole | {"micro_batches": chosen.of("micro_batches", use_case)}
    jobs = []
    for variant in ("a", "b"):  # an A/A pair
        jobs.append(_cell(chosen, "speedup", "sequential", variant=variant, **whole))
    for strategy in ("intra_op", "naive_pipeline"):
        jobs.append(_cell(chosen, "speedup", strategy, **whole))
    for schedule in chosen.of("pipelined", use_case):
        jobs.append(_cell(chosen, "speedup", schedule, **in_pieces))
    for strategy in ("sequential", "naive_pipeline", "processes_allreduce"):
        jobs.append(_cell(chosen, "speedup", strategy, device="cuda", **whole))
    jobs.append(_cell(chosen, "speedup", "gpipe", device="cuda", **in_pieces))
    return jobs


def _schedules(chosen: Parameters) -> list[Job]:
    jobs = []
    for variant in ("a", "b"):  # an A/A pair
        jobs.append(_cell(chosen, "schedules", "naive_pipeline", variant=variant))
    for count in chosen.schedule_micro_batches:
        for schedule in chosen.schedules:
            jobs.append(_cell(chosen, "schedules", schedule, micro_batches=count))
    return jobs


def _stages(chosen: Parameters) -> list[Job]:
    jobs = []
    for count in chosen.stage_counts:
        ranks = {"workers": count, "stages": count, "micro_batches": max(count, 4)}
        jobs.append(_cell(chosen, "stages", "1f1b", **ranks))
    return jobs


def _partitions(chosen: Parameters) -> list[Job]:
    jobs = []
    for rule in PARTITIONS:
        jobs.append(_cell(chosen, "partition", "1f1b", partition=rule))
    jobs.append(_cell(chosen, "partition", "1f1b", activations="recomputed"))
    return jobs


def _stage_memory(chosen: Parameters, pipelines: Sequence[Job]) -> list[Job]:
    """A cell for each schedule, and those of `pipelines` whose ranks hold something else."""
    counts = sorted(chosen.schedule_micro_batches)
    middle = counts[len(counts) // 2]
    jobs = [_cell(chosen, "stage_memory", "naive_pipeline", warmup_steps=1)]
    for schedule in chosen.schedules:
        jobs.append(_cell(chosen, "stage_memory", schedule, micro_batches=middle, warmup_steps=1))
    for job in pipelines:
        if job.pipeline_ranks > 2 or job.activations == "recomputed":
            jobs.append(job.with_(experiment="stage_memory", warmup_steps=1))
    return jobs


def _stage_times(pipelines: Sequence[Job]) -> list[Job]:
    """A cell for each kind of stage in `pipelines`: the first that has it, under whichever schedule."""
    by_kind: dict[tuple[Any, ...], Job] = {}
    for job in reversed(pipelines):  # the first comes last and replaces the others
        kind = (job.workers, job.stages, job.stages_per_rank, job.partition, job.activations, job.micro_batches)
        by_kind[kind] = job.with_(experiment="stage_times", variant="a")
    return list(by_kind.values())


def _layers(pipelines: Sequence[Job]) -> list[Job]:
    """A cell for each size of micro-batch in pipelines of two ranks: the first that has it."""
    by_count: dict[int, Job] = {}
    for job in reversed(pipelines):  # as above
        if job.pipeline_ranks == 2:
            by_count[job.micro_batches] = job.with_(experiment="layers", variant="a")
    return list(by_count.values())


def _cell(chosen: Parameters, experiment: str, strategy: str, **fields: Any) -> Job:
    """A cell over two ranks; unless `fields` name a use case, one of SimpleBig with photos decoded beforehand."""
    given: dict[str, Any] = {"experiment": experiment, "workers": 2}
    given |= {"steps": chosen.steps, "warmup_steps": chosen.warmup_steps}
    if "use_case" not in fields:
        given |= {"use_case": "SimpleBig", "input": "memory", "global_batch_size": chosen.schedule_batch_size}
    given |= fields
    given["per_worker_batch_size"] = given["global_batch_size"]  # one replica trains all of it
    job = Job.of(strategy, **given)
    # The second micro-batch needs memory for a gradient of its own, which the optimiser takes at its first step.
    return job.with_(warmup_steps=job.warmup_steps + 1) if job.micro_batches > 1 else job


def traced(job: Job) -> bool:
    """The paper's Figure 4a is of the cells of Table 2."""
    return job.experiment == "speedup" and job.variant == "a" and job.precision == "float32"
