"""One node, one ingredient at a time: a ladder of jobs, each the one before plus one ingredient.

    sequential     the papers' baseline: 1 thread, 1 core, torch's defaults, decoding included
    intra_op       + all cores inside every operator
    allocator      + memory is kept between steps instead of being given back and faulted in again
    fused          + the optimiser passes over memory once
    channels_last  + images and activations as NHWC
    bfloat16       + autocast, where the CPU has bfloat16 units
    copies         + one bfloat16 copy of the weights, kept, instead of a fresh one in every step
    cuda           the same on the first GPU

Threads come second, so that the steps above them take half the time and the whole ladder fits into minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lockstep.job import Job

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
    "cuda": Rung("on a GPU", {"device": "cuda", "threads_per_worker": 1, "cores_per_worker": 1}),
}


def ladder(use_case: str, cores: int, batch: int, rungs: Iterable[str] = RUNGS, **others: Any) -> list[Job]:
    """The jobs of a use case from the baseline up: the same global batch, one ingredient more at each rung.

    `cores` is the budget of the rungs above `sequential`; rungs that are not named are left out with what they add.
    Raises JobError for impossible values, KeyError for a rung that does not exist.
    """
    job = Job.of("sequential", experiment=EXPERIMENT, use_case=use_case, per_worker_batch_size=batch, **others)
    found = []
    for name in rungs:
        fields = dict(RUNGS[name].fields)
        if name == "intra_op":
            fields |= {"threads_per_worker": cores, "cores_per_worker": cores}
        job = job.with_(strategy=name, **fields)
        found.append(job)
    return found
