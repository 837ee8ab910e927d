"""What a job may ask for but a reader of its records should know."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.engine.job.clock import Clock


def cautions_of(job: Clock, usable_cores: int) -> Iterator[str]:
    """Remarks for a warning and for the column `reason` of the records."""
    if not job.simulated and job.ranks * job.cores_per_worker > usable_cores:
        served = f" and {job.servers} server{'s' * (job.servers > 1)}" if job.servers else ""
        needed = f"{job.workers} worker{'s' * (job.workers > 1)}{served} x {job.cores_per_worker} core"
        needed += "s" * (job.cores_per_worker > 1)
        yield f"{needed} on {usable_cores} usable core{'s' * (usable_cores > 1)}: workers share cores"
    if job.images and job.replicas > job.images:
        yield f"{job.replicas} workers for {job.images} training images: some have nothing to train on"
    if job.global_batch_size % job.replicas:
        large = -(-job.global_batch_size // job.replicas)
        yield (
            f"global batch {job.global_batch_size} is not divisible by {job.replicas} workers: shares of {large} "
            f"and {job.global_batch_size // job.replicas}, the largest decides the step"
        )
    yield from _missing_exchange(job)
    pipelined = job.model_parallel == "pipeline"
    if job.overlap and job.replicas > 1 and (pipelined or job.framework == "tensorflow"):
        whose = "the pipeline's" if pipelined else "TensorFlow's"
        yield f"overlap=True overlaps nothing: the exchange begins behind {whose} backward pass"
    if not job.synchronous:
        yield "not synchronous SGD: other parameters than one worker would reach"
    elif job.averages_parameters and job.workers > 1:
        yield "averages parameters in every step: synchronous SGD only with a linear optimiser (SGD)"


def _missing_exchange(job: Clock) -> Iterator[str]:
    """A remark where the measured steps do not hold their share of exchanges of parameters."""
    every, what = job.exchange_every, f"{job.exchange_every} steps"
    if not every and job.images:
        every = -(-job.images // job.global_batch_size)
        what = f"epoch, of {every} steps"
    if job.workers > 1 and not job.learns and every and job.steps % every:
        yield f"one exchange per {what}: the {job.steps} measured step(s) do not hold their share of it"
