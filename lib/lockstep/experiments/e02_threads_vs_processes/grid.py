"""Notebook 02's cells: threads and processes on one machine, and where their time goes.

table1     every strategy trains the same global batches          (Table 1 of the paper)
scaling    one budget of cores, split over more and more workers: the 50 x 50 network, with few images per step
kernels    the same with many images per step: what is lost at a fixed rate per step weighs less
input      the sequential cell with photos as JPEG and as tensors in memory
exchange   the exchange of a step without the model

A speedup is over sequential training of the same global batch. With a batch that grew with the workers, an update
would serve more images, and two cores could seem to give more than twice one core's speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters
from lockstep.measure.comparisons import place_of
from lockstep.measure.planning import Comparison

TABLE1 = ("sequential", "threads", "processes")
"""The rows of the paper's Table 1."""
BESIDE_TABLE1 = ("intra_op", "ddp")
"""What SimpleBig is trained with, too: other ways to use the same cores. ComplexSmall has the first."""
TWICE = ("processes", "threads", "intra_op")  # the strategies that are measured with SimpleBig as A/A pairs
SMALL = "Pneumonia"
"""The use case whose network is small enough for a step of milliseconds."""
RIVALS = ("threads", "processes")
_EXCHANGES = ("processes_allreduce", "threads", "copy_bound")
"""What is compared with the exchange of processes over shared memory."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        jobs += _table1(chosen, use_case)
    for strategy in ("processes", "ddp"):
        jobs.append(_cell(chosen, "table1", strategy, precision="bfloat16"))
    jobs += _small(chosen)
    for cores in (1, 2):
        for source in ("jpeg", "memory"):
            jobs.append(_cell(chosen, "input", "sequential", cores_per_worker=cores, input=source))
    jobs += _exchange(chosen)
    return jobs


def _table1(chosen: Parameters, use_case: str) -> list[Job]:
    strategies = (*TABLE1, *(BESIDE_TABLE1 if use_case == "SimpleBig" else BESIDE_TABLE1[:1]))
    jobs = [_cell(chosen, "table1", strategy, use_case) for strategy in strategies]
    if use_case == "SimpleBig":  # A/A pairs of what is compared: one alone says next to nothing of how pairs spread
        jobs += [_cell(chosen, "table1", strategy, use_case, variant="b") for strategy in TWICE]
    gpu = ("sequential", "processes_allreduce")
    return jobs + [_cell(chosen, "table1", strategy, use_case, device="cuda") for strategy in gpu]


def _small(chosen: Parameters) -> list[Job]:
    """The 50 x 50 network, from memory: its photos' decoding is not what is asked about."""
    small: dict[str, Any] = {"use_case": SMALL, "input": "memory", "steps": chosen.small_steps}
    budget = max(chosen.scaling_workers)
    jobs = []
    for workers in chosen.scaling_workers:
        share = {"workers": workers, "threads_per_worker": budget // workers}
        batch = {"global_batch_size": chosen.scaling_batch_size}
        jobs += [_cell(chosen, "scaling", strategy, **small | share | batch) for strategy in RIVALS]
    long = {"workers": budget, "global_batch_size": chosen.kernels_batch_size}
    return jobs + [_cell(chosen, "kernels", strategy, **small | long) for strategy in RIVALS]


def _exchange(chosen: Parameters) -> list[Job]:
    alone: dict[str, Any] = {"steps": chosen.small_steps, "input": "none"}
    jobs = [_cell(chosen, "exchange", strategy, **alone) for strategy in ("processes", *_EXCHANGES[:2])]
    return [*jobs, jobs[0].with_(strategy="copy_bound", sync="copy_bound")]


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str = "SimpleBig", **fields: Any) -> Job:
    given: dict[str, Any] = {"experiment": experiment, "use_case": use_case, "workers": chosen.workers}
    given |= {"steps": chosen.steps, "warmup_steps": chosen.warmup_steps}
    given |= fields
    if "global_batch_size" not in given:
        given["global_batch_size"] = chosen.of("per_worker_batch_size", use_case) * chosen.workers
    job = Job.of(strategy, **given)
    job = job.with_(per_worker_batch_size=max(1, job.global_batch_size // job.workers))
    # DDP rebuilds its buckets in its second step, even where the cell states its own number of warm-up steps.
    return job.with_(warmup_steps=chosen.warmup_steps + 1) if strategy == "ddp" else job


def traced(job: Job) -> bool:
    """The paper's Figures 2 and 3 are of the cells of Table 1: one process and several, and training on GPUs."""
    if job.experiment != "table1" or job.variant != "a" or job.precision != "float32":
        return False
    return job.strategy in RIVALS or job.device != "cpu"


# What stands back to back


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """The pairs of cells that tables, findings, verdicts and targets take a ratio of; the headlines first.

    A cell that no pair holds is measured alone.
    """
    places = {job: place for place, job in enumerate(jobs)}
    found = [
        Comparison((place_of(above, places), place_of(under, places)), headline)
        for above, under, headline in _pairs(jobs)
    ]
    paired = {place for each in found for place in each.cells}
    return [*found, *(Comparison((place,)) for place in range(len(jobs)) if place not in paired)]


def _pairs(jobs: Sequence[Job]) -> Iterator[tuple[Job, Job, bool]]:
    for use_case in dict.fromkeys(job.use_case for job in jobs if job.experiment == "table1"):
        yield from _pairs_of_table1([job for job in jobs if job.use_case == use_case and job.experiment == "table1"])
    for experiment in ("scaling", "kernels"):
        for job in _of(jobs, experiment=experiment, strategy="processes"):
            yield from _with(job, _of(jobs, experiment=experiment, strategy="threads", workers=job.workers))
    for strategy in RIVALS:  # what splitting a budget of cores gains, over the fewest workers
        split = sorted(_of(jobs, experiment="scaling", strategy=strategy), key=lambda job: job.workers)
        for job in split[1:]:
            yield from _with(job, split[:1])
    for job in _of(jobs, experiment="input", input="jpeg"):
        memory = _of(jobs, experiment="input", input="memory", cores_per_worker=job.cores_per_worker)
        yield from _with(job, memory)
    for strategy in _EXCHANGES:
        for job in _of(jobs, experiment="exchange", strategy=strategy):
            yield from _with(job, _of(jobs, experiment="exchange", strategy="processes"))


def _pairs_of_table1(jobs: Sequence[Job]) -> Iterator[tuple[Job, Job, bool]]:
    """Of one use case."""
    on_cpu = {(job.strategy, job.precision): job for job in jobs if job.device == "cpu" and job.variant == "a"}
    on_gpu = {job.strategy: job for job in jobs if job.device == "cuda"}
    # A GPU comes first, for it may be lent for minutes.
    yield from _with(on_gpu.get("sequential"), [on_cpu.get((name, "float32")) for name in RIVALS], headline=True)
    ours, base = (on_cpu.get((name, "float32")) for name in ("processes", "sequential"))
    for rival in ("threads", "sequential"):
        yield from _with(ours, [on_cpu.get((rival, "float32"))], headline=True)
    for strategy in ("threads", *BESIDE_TABLE1):
        yield from _with(on_cpu.get((strategy, "float32")), [base])
    for strategy in BESIDE_TABLE1:
        yield from _with(ours, [on_cpu.get((strategy, "float32"))])
    yield from _with(on_cpu.get(("processes", "bfloat16")), [on_cpu.get(("ddp", "bfloat16"))])
    yield from ((on_cpu[job.strategy, "float32"], job, False) for job in _of(jobs, variant="b"))
    yield from _with(on_gpu.get("processes_allreduce"), [on_gpu.get("sequential")])


def _with(above: Job | None, others: Sequence[Job | None], headline: bool = False) -> Iterator[tuple[Job, Job, bool]]:
    """`above` beside each of the others, of which a smaller grid lacks some."""
    for under in others:
        if above is not None and under is not None:
            yield above, under, headline


def _of(jobs: Sequence[Job], **fields: Any) -> list[Job]:
    return [job for job in jobs if all(getattr(job, name) == value for name, value in fields.items())]
