"""What the fields of a `Job` may hold, and which go together: checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.options.agreeing import check_agreeing
from lockstep.options.learning import LEARNING, OF_LEARNING, check_learning
from lockstep.options.parts import check_parts
from lockstep.options.places import check_hosts, check_spark
from lockstep.options.values import (
    CHOICES,
    FIXED,
    OF_PIPELINES,
    ON_SPARK,
    ONE_HOST,
    READ_BY,
    JobError,
    at_least,
    bucket_elements,
)

if TYPE_CHECKING:
    from lockstep.job import Job

__all__ = [
    "CHOICES",
    "FIXED",
    "LEARNING",
    "OF_LEARNING",
    "OF_PIPELINES",
    "ONE_HOST",
    "ON_SPARK",
    "READ_BY",
    "JobError",
    "at_least",
    "bucket_elements",
    "check",
]

_AT_LEAST_1: tuple[str, ...] = ("workers", "hosts", "threads_per_worker", "cores_per_worker", "steps", "shards")
_AT_LEAST_1 += ("stages", "stages_per_rank", "micro_batches", "global_batch_size", "per_worker_batch_size")
_AT_LEAST_0: tuple[str, ...] = ("warmup_steps", "servers", "exchange_every", "message_bytes", "round", "images", "seed")
_AT_LEAST_0 += ("stage_memory_bytes", "rate_warmup_epochs", "epochs", "updates", "early_stopping_epochs")


def check(job: Job) -> None:
    """Raises JobError, which names the field, its value and the fix."""
    for names, least in ((_AT_LEAST_1, 1), (_AT_LEAST_0, 0)):
        for name in names:
            at_least(name, getattr(job, name), least)
    for name, only in FIXED.items():
        if getattr(job, name) != only:
            raise JobError(f"{name}={getattr(job, name)!r} is not built yet; the only value now is {only!r}")
    for name, allowed in CHOICES.items():
        if getattr(job, name) not in allowed:
            raise JobError(f"{name}={getattr(job, name)!r} does not exist; there are: {', '.join(allowed)}")
    if job.copies == "avoided" and job.precision != "bfloat16":
        raise JobError("copies='avoided' has nothing to avoid in float32; give precision='bfloat16'")
    check_agreeing(job)
    check_hosts(job)
    check_spark(job)
    check_parts(job)
    check_learning(job)
