"""Notebook 03's cells: models that are cut into stages, and what each stage costs by itself.

speedup        one core, two cores spent in several ways, naive and pipelined stages      (Table 2 of the paper)
decode         photos that one core decodes: beside what it trains, for Figure 4a
schedules      naive, and each schedule with several numbers of micro-batches; photos decoded beforehand
stages         1F1B over more ranks
partition      1F1B with the model cut by each rule, and with activations recomputed
stage_memory   some of these again with every tensor counted, which takes time
stage_times    each stage by itself, all ranks busy and none waiting: a step's time is predicted from these
layers         each layer by itself: the cuts between stages are judged by these
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters
from lockstep.measure.comparisons import place_of
from lockstep.measure.planning import Comparison

PARTITIONS = ("balanced", "equal_layers", "equal_parameters")
TWO_CORES = ("intra_op", "processes")
"""What two cores can be spent on instead of two stages."""


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
    whole = {"use_case": use_case, "global_batch_size": chosen.of("global_batch_size", use_case)}
    in_pieces = whole | {"micro_batches": chosen.of("micro_batches", use_case)}
    jobs = [_cell(chosen, "speedup", "sequential", **whole)]
    for strategy in (*chosen.of("two_cores", use_case), "naive_pipeline"):
        shared = {} if strategy != "processes" else {"per_worker_batch_size": whole["global_batch_size"] // 2}
        jobs.append(_cell(chosen, "speedup", strategy, **whole, **shared))
    for schedule in chosen.pipelined:
        jobs.append(_cell(chosen, "speedup", schedule, **in_pieces))
    if use_case == chosen.use_cases[0]:  # an A/A pair of two workers; and all use cases have photos of the same kind
        jobs.append(jobs[-1].with_(variant="b"))
        jobs.append(Job.of("sequential", experiment="decode", use_case=use_case, steps=1).with_(strategy="decode"))
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
    jobs = [_cell(chosen, "stage_memory", "naive_pipeline")]
    for schedule in chosen.schedules:
        jobs.append(_cell(chosen, "stage_memory", schedule, micro_batches=middle))
    for job in pipelines:
        if job.pipeline_ranks > 2 or job.activations == "recomputed":
            jobs.append(job.with_(experiment="stage_memory"))
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
    given.setdefault("per_worker_batch_size", given["global_batch_size"])  # one replica trains all of it
    return Job.of(strategy, **given)


def traced(job: Job) -> bool:
    """The paper's Figure 4a is of pipelines."""
    return job.experiment == "speedup" and job.variant == "a" and job.micro_batches > 1


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """What stands back to back: the pairs of every verdict, target and table; each other cell is measured alone.

    Headlines are pipelines against one core, and against the same cores spent otherwise, in the first use case.
    """
    first = next((job.use_case for job in jobs if job.experiment == "speedup"), "")
    pairs = [pair for group in _groups(jobs) for pair in _pairs_of_speedup(group, first)]
    pairs += _beside(jobs, "schedules", lambda job: job.schedule == "naive" and job.variant == "a")
    pairs += _beside(jobs, "partition", lambda job: job.partition == "balanced" and job.activations == "kept")
    places = {job: place for place, job in enumerate(jobs)}
    found = []
    for above, under in pairs:
        headline = above.use_case == first and above.variant == "a" and above.micro_batches > 1
        headline &= under.strategy in ("sequential", *TWO_CORES) and above.device == "cpu"
        found.append(Comparison((place_of(above, places), place_of(under, places)), headline))
    paired = {place for each in found for place in each.cells}
    # Memory and the seconds of a stage or layer are compared with nothing: as many rounds as an interval needs.
    return [*found, *(Comparison((place,), rounds=MIN_ROUNDS) for place in range(len(jobs)) if place not in paired)]


Pair = tuple[Job, Job]


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """The cells of `speedup` and `decode` by use case and device."""
    found: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        if job.experiment in ("speedup", "decode"):
            found.setdefault((job.use_case, job.device), []).append(job)
    return list(found.values())


def _pairs_of_speedup(group: Sequence[Job], first: str) -> Iterable[Pair]:
    base = next(job for job in group if job.strategy == "sequential")
    pipelines = [job for job in group if job.micro_batches > 1 and job.variant == "a"]
    for job in group:
        if job.variant == "b":
            yield job, job.with_(variant="a")
        elif job is not base:
            yield job, base
    for pipeline in pipelines:
        for other in group:
            if other.strategy in (*TWO_CORES, "processes_allreduce"):
                yield pipeline, other
            elif other.strategy == "naive_pipeline" and other.use_case == first and other.device == "cpu":
                yield other, pipeline


def _beside(jobs: Sequence[Job], experiment: str, is_base: Callable[[Job], bool]) -> list[Pair]:
    own = [job for job in jobs if job.experiment == experiment]
    base = next((job for job in own if is_base(job)), None)
    return [(job, base) for job in own if base is not None and job is not base]
