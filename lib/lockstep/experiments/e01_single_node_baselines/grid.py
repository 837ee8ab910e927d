"""Notebook 01's cells: one node, one ingredient at a time, and the machine's limits beside them.

ladder     each cell is the one before plus one ingredient: what does that ingredient gain?
profile    one step of some rungs under torch's profiler: which operators take how long?
machine    a large matrix product and a large copy: what could this machine reach at best?
decode     decoding photos on one core and nothing else: what does the input cost?

The rungs of the ladder:

    sequential     the papers' baseline: 1 thread, 1 core, torch's defaults, decoding included
    intra_op       + all cores inside every operator
    allocator      + memory is kept between steps instead of being given back and faulted in again
    fused          + the optimiser passes over memory once
    channels_last  + images and activations as NHWC
    bfloat16       + autocast, where the CPU has bfloat16 units
    copies         + one bfloat16 copy of the weights, kept, instead of a fresh one in every step
    cuda           the same on the first GPU

Threads come second, so that all rungs above share one budget of cores and the whole ladder takes less time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job, at_least
from lockstep.engine.job.strategies import RUNGS
from lockstep.experiments.experiment import Parameters
from lockstep.measure.comparisons import place_of
from lockstep.measure.planning import Comparison

EXPERIMENT = "ladder"
AA_RUNG = "intra_op"
"""The rung that has a twin in the first use case: all rungs above it use the same cores."""
PROFILED = {"SimpleBig": ("sequential", "channels_last", "copies"), "ComplexSmall": ("channels_last", "copies")}
"""Rungs whose operators are profiled; of other use cases those of ComplexSmall."""
ROOF, ROOF_1_CORE = "roof", "roof_1_core"
TRACED = ("sequential", "channels_last")
"""The rungs whose resources are shown: the baseline, and all that float32 has to offer."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        batch = chosen.of("batch_size", use_case)
        rungs = ladder(use_case, chosen.cores, batch, steps=chosen.steps, warmup_steps=chosen.warmup_steps)
        if use_case != chosen.use_cases[0]:  # one pair shows the noise
            rungs = [job for job in rungs if job.variant == "a"]
        jobs += rungs
        jobs += profiles(rungs)
    jobs += roofs(chosen.cores)
    for use_case in chosen.use_cases[:1]:  # all use cases have photos of the same kind
        jobs.append(decoding(use_case))
    return jobs


def ladder(use_case: str, cores: int, batch: int, rungs: Iterable[str] = RUNGS, **others: Any) -> list[Job]:
    """The jobs of a use case from the baseline up: the same global batch, one ingredient more at each rung.

    `cores` is the budget of the rungs above `sequential`; rungs that are not named are left out, and so is what they
    add. AA_RUNG is there twice, as variants a and b. Raises JobError for impossible values, KeyError for a rung that
    does not exist.
    """
    at_least("cores", cores, 1)
    job = Job.of("sequential", experiment=EXPERIMENT, use_case=use_case, per_worker_batch_size=batch, **others)
    found = []
    for name in rungs:
        fields = dict(RUNGS[name].fields)
        if name == "intra_op":
            fields |= {"threads_per_worker": cores, "cores_per_worker": cores}
        job = job.with_(strategy=name, **fields)
        found.append(job)
        if name == AA_RUNG:
            found.append(job.with_(variant="b"))
    return found


def profiles(rungs: Iterable[Job]) -> list[Job]:
    """The cells of a ladder whose operators are profiled: one step each, after those that are discarded."""
    return [
        job.with_(experiment="profile", steps=1)
        for job in rungs
        if job.variant == "a" and job.strategy in PROFILED.get(job.use_case, PROFILED["ComplexSmall"])
    ]


def roofs(cores: int) -> list[Job]:
    """The machine's limits: one core and all of them in both precisions, and a GPU in the precision of its rung.

    These have no steps to discard: the best of many products counts.
    """
    one = Job(
        experiment="machine", use_case=NO_USE_CASE, strategy=ROOF_1_CORE, input="none", steps=1, warmup_steps=0,
        global_batch_size=1, per_worker_batch_size=1,
    )  # fmt: skip
    every = one.with_(strategy=ROOF, threads_per_worker=cores, cores_per_worker=cores)
    both = [job.with_(precision=precision) for precision in ("float32", "bfloat16") for job in (one, every)]
    return [*both, every.with_(device="cuda", precision="bfloat16")]


def decoding(use_case: str) -> Job:
    """Decoding alone, on one core; the first photos are decoded twice, and only the second time counts."""
    job = Job.of("sequential", experiment="decode", use_case=use_case, steps=1, warmup_steps=0)
    return job.with_(strategy="decode")


def traced(job: Job) -> bool:
    return job.experiment == EXPERIMENT and job.variant == "a" and job.device == "cpu" and job.strategy in TRACED


# What stands back to back


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Every rung beside the baseline and beside the rung below it, profiles beside their roof, decoding beside training
    on one core. What no pair holds is measured alone. The headlines are the settings of a whole ladder.
    """
    places = {job: place for place, job in enumerate(jobs)}
    found = [
        Comparison((place_of(above, places), place_of(under, places)), _is_headline(above, under))
        for above, under in dict.fromkeys(_pairs(jobs))
    ]
    paired = {place for each in found for place in each.cells}
    return [*found, *(Comparison((place,)) for place in range(len(jobs)) if place not in paired)]


def _is_headline(above: Job, under: Job) -> bool:
    """All ingredients, in float32 or in bfloat16, over the baseline; a GPU over all ingredients in float32."""
    beside = "sequential" if above.device == "cpu" else "channels_last"
    return above.strategy in ("channels_last", "copies", "cuda") and under.strategy == beside


def _pairs(jobs: Sequence[Job]) -> Iterator[tuple[Job, Job]]:
    ladders = [job for job in jobs if job.experiment == EXPERIMENT]
    for use_case in dict.fromkeys(job.use_case for job in ladders):
        own = [job for job in ladders if job.use_case == use_case and job.variant == "a"]
        base, *rungs = [job for job in own if job.device == "cpu"]
        # The GPU comes first, for it may be lent for minutes; which CPU setting is the best is not known beforehand.
        yield from ((job, other) for job in own if job.device != "cpu" for other in [*rungs, base])
        yield from ((job, base) for job in rungs)
        yield from ((job, below) for below, job in pairwise(rungs))
    for job in ladders:
        if job.variant == "b":
            yield job.with_(variant="a"), job
    roofs_of = {job.precision: job for job in jobs if job.strategy == ROOF and job.device == "cpu"}
    for job in jobs:
        if job.experiment == "profile" and job.device == "cpu" and job.threads_per_worker > 1:
            yield job, roofs_of[job.precision]
        if job.experiment == "decode":
            yield job, next(each for each in ladders if each.use_case == job.use_case)
