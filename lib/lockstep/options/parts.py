"""What a job says of a model in parts: stages, ranks, replicas and micro-batches."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from lockstep.options.values import CHOICES, OF_PIPELINES, JobError

if TYPE_CHECKING:
    from lockstep.job import Job


_ONE_STAGE_PER_RANK = ("naive", "gpipe", "1f1b")
_ROUNDS = ("interleaved_1f1b", "zero_bubble")
_SPLIT_BACKWARD = ("zero_bubble", "zero_bubble_v")
_BETWEEN_REPLICAS = ("allreduce", "shared_memory", "local_sgd", "gossip")


def check_parts(job: Job) -> None:
    if job.model_parallel == "none" or job.model_parallel == "head":
        defaults = {field.name: field.default for field in fields(job)}
        for name in OF_PIPELINES:
            if getattr(job, name) != defaults[name]:
                raise JobError(
                    f"{name}={getattr(job, name)!r} does nothing with model_parallel={job.model_parallel!r}; give "
                    "model_parallel='pipeline'"
                )
    if job.model_parallel == "none":
        return
    if job.launcher == "threads":
        raise JobError(
            f"launcher='threads' with model_parallel={job.model_parallel!r}: torch.distributed needs a process per "
            "rank; give 'processes', 'mpiexec' or 'engines'"
        )
    if job.servers or job.host_workers != "processes" or job.copies != "kept":
        raise JobError(
            f"model_parallel={job.model_parallel!r} with servers={job.servers}, host_workers={job.host_workers!r}, "
            f"copies={job.copies!r}: only servers=0, host_workers='processes' and copies='kept' are possible"
        )
    if job.model_parallel == "head":
        if job.sync != "allreduce" or job.compression != "none":
            raise JobError(
                f"model_parallel='head' with sync={job.sync!r}, compression={job.compression!r}: ranks hold different "
                "parts, and only sync='allreduce' sums the common ones, uncompressed"
            )
        return
    _check_pipeline(job)
    _check_schedule(job)


def _check_pipeline(job: Job) -> None:
    """That stages, ranks, replicas and micro-batches go together; the numbers are named."""
    if job.batch_norm:
        raise JobError(
            "batch_norm=True with model_parallel='pipeline': statistics would be of micro-batches, and of the samples "
            "that fill up a short one; give batch_norm=False, or model_parallel='none'"
        )
    if job.schedule == "none" or job.partition == "none":
        raise JobError(
            f"model_parallel='pipeline' with schedule={job.schedule!r}, partition={job.partition!r}: give one of "
            f"{', '.join(CHOICES['schedule'][1:])} and one of {', '.join(CHOICES['partition'][1:])}"
        )
    if job.stages < 2 or job.stages % job.stages_per_rank or job.stages == job.stages_per_rank:
        raise JobError(
            f"stages={job.stages} with stages_per_rank={job.stages_per_rank}: give a multiple of it, so that there are "
            "two ranks or more"
        )
    if job.workers % job.pipeline_ranks:
        raise JobError(
            f"workers={job.workers} can't be split into pipelines of {job.pipeline_ranks} ranks (stages={job.stages}, "
            f"stages_per_rank={job.stages_per_rank}): {job.workers % job.pipeline_ranks} would be left over; give a "
            f"multiple of {job.pipeline_ranks}"
        )
    if job.global_batch_size % (job.replicas * job.micro_batches):
        raise JobError(
            f"global_batch_size={job.global_batch_size} can't be split over {job.replicas} replica(s) x "
            f"{job.micro_batches} micro-batches; give a multiple of {job.replicas * job.micro_batches}"
        )
    if job.replicas == 1 and job.sync != "local":
        raise JobError(f"sync={job.sync!r} has nobody to agree with: one replica of {job.stages} stages; give 'local'")
    if job.replicas > 1 and job.sync not in _BETWEEN_REPLICAS:
        raise JobError(
            f"sync={job.sync!r} can't agree {job.replicas} replicas of a pipeline; give one of "
            f"{', '.join(_BETWEEN_REPLICAS)}"
        )
    if job.stage_memory_bytes and job.partition != "balanced":
        raise JobError(
            f"stage_memory_bytes={job.stage_memory_bytes} does nothing with partition={job.partition!r}; give "
            "partition='balanced'"
        )


def _check_schedule(job: Job) -> None:
    """What the schedule itself asks for (see `lockstep.replica.pipeline.schedules`)."""
    given = f"schedule={job.schedule!r}"
    if job.schedule in _ONE_STAGE_PER_RANK and job.stages_per_rank != 1:
        raise JobError(f"{given} with stages_per_rank={job.stages_per_rank}: it has one stage on each rank; give 1")
    if job.schedule == "interleaved_1f1b" and job.stages_per_rank == 1:
        raise JobError(f"{given} with stages_per_rank=1 is '1f1b'; give stages_per_rank=2 or more")
    if job.schedule == "zero_bubble_v" and job.stages_per_rank != 2:
        raise JobError(f"{given} with stages_per_rank={job.stages_per_rank}: its V has two stages per rank; give 2")
    if job.schedule == "naive" and job.micro_batches != 1:
        raise JobError(f"{given} with micro_batches={job.micro_batches}: naive means the whole batch at once; give 1")
    if job.schedule == "1f1b" and job.micro_batches < job.stages:
        raise JobError(
            f"{given} with micro_batches={job.micro_batches} for stages={job.stages}: give at least {job.stages}"
        )
    rounds = max(1, job.micro_batches // job.pipeline_ranks)
    if job.schedule in _ROUNDS and job.micro_batches % rounds:
        raise JobError(
            f"{given} with micro_batches={job.micro_batches}: not a multiple of its {rounds} rounds of "
            f"{job.pipeline_ranks} ranks; give a multiple of {job.pipeline_ranks}"
        )
    if job.schedule in _SPLIT_BACKWARD and job.activations == "recomputed":
        raise JobError(
            f"{given} with activations='recomputed': its backward pass is in two halves, and each would recompute "
            "them; give another schedule, or activations='kept'"
        )
