"""One node, one ingredient at a time: a ladder of jobs, each the one before plus one ingredient.

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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lockstep.job import NO_USE_CASE, Job, JobError

EXPERIMENT = "ladder"
BASELINE_FIELDS = {"environment": "plain", "optimiser": "plain"}
"""What the papers' sequential baseline has where this library's own default is better."""


@dataclass(frozen=True)
class Rung:
    """One ingredient: the fields of `Job` that it changes, and its name in figures."""

    label: str
    fields: dict[str, Any]
    only_bfloat16: bool = False  # has nothing to change in float32


RUNGS: dict[str, Rung] = {
    "sequential": Rung("sequential, torch's defaults", BASELINE_FIELDS),
    "intra_op": Rung("+ threads inside operators", {}),  # threads and cores: those of the machine
    "allocator": Rung("+ allocator profile", {"environment": "tuned"}),
    "fused": Rung("+ fused optimiser", {"optimiser": "fused"}),
    "channels_last": Rung("+ channels last", {"memory_format": "channels_last"}),
    "bfloat16": Rung("+ bfloat16", {"precision": "bfloat16"}),
    "copies": Rung("+ casts avoided", {"copies": "avoided"}),
    "cuda": Rung("on a GPU", {"device": "cuda"}),
}
AA_RUNG = "intra_op"
"""The rung that is measured twice per round: all rungs above it use the same cores."""
PROFILED = {"SimpleBig": ("sequential", "channels_last", "copies"), "ComplexSmall": ("channels_last", "copies")}
"""Rungs whose operators are profiled; of other use cases those of ComplexSmall."""
ROOF, ROOF_1_CORE = "roof", "roof_1_core"


def ladder(use_case: str, cores: int, batch: int, rungs: Iterable[str] = RUNGS, **others: Any) -> list[Job]:
    """The jobs of a use case from the baseline up: the same global batch, one ingredient more at each rung.

    `cores` is the budget of the rungs above `sequential`; rungs that are not named are left out with what they add.
    AA_RUNG is there twice, as variants a and b. Raises JobError for impossible values, KeyError for a rung that does
    not exist.
    """
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
        raise JobError(f"cores={cores!r} is not possible; give a whole number of at least 1")
    job = Job.of("sequential", experiment=EXPERIMENT, use_case=use_case, per_worker_batch_size=batch, **others)
    found = []
    for name in rungs:
        fields = dict(RUNGS[name].fields)
        if name == "intra_op":
            fields |= {"threads_per_worker": cores, "cores_per_worker": cores}
        job = job.with_(strategy=name, **fields)
        found += [job, job.with_(variant="b")] if name == AA_RUNG else [job]
    return found


def profiles(rungs: Iterable[Job]) -> list[Job]:
    """Of a ladder, the cells whose operators are profiled: one step each, after one that is discarded."""
    return [
        job.with_(experiment="profile", steps=1, warmup_steps=1)
        for job in rungs
        if job.variant == "a" and job.strategy in PROFILED.get(job.use_case, PROFILED["ComplexSmall"])
    ]


def roofs(cores: int) -> list[Job]:
    """The machine's limits: one core and all of them in both precisions, and a GPU in the precision of its rung."""
    one = Job(
        experiment="machine", use_case=NO_USE_CASE, strategy=ROOF_1_CORE, input="none", steps=1, warmup_steps=0,
        global_batch_size=1, per_worker_batch_size=1,
    )  # fmt: skip
    every = one.with_(strategy=ROOF, threads_per_worker=cores, cores_per_worker=cores)
    both = [job.with_(precision=precision) for precision in ("float32", "bfloat16") for job in (one, every)]
    return [*both, every.with_(device="cuda", precision="bfloat16")]


def decoding(use_case: str) -> Job:
    """Decoding alone, on one core."""
    job = Job.of("sequential", experiment="decode", use_case=use_case, steps=1, warmup_steps=0)
    return job.with_(strategy="decode")
