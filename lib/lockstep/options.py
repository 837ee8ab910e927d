"""What the fields of a `Job` may hold, and which go together: checked before anything starts."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.job import Job


class JobError(ValueError):
    """A job that can't be run; the message names the field, its value and the fix."""


# Identity columns of strategies that are not built yet: a record must not claim what did not run.
FIXED: dict[str, object] = {"delays": "none"}
ONE_HOST = ("threads", "processes")
"""Launchers of one machine."""
ON_SPARK = ("spark", "spark_driver")
"""Launchers on a Spark cluster."""

READ_BY: dict[str, tuple[str, ...]] = {
    "bucket": ("allreduce",),
    "overlap": ("allreduce",),
    "transport": ("allreduce",),
    "exchange_every": ("local_sgd", "gossip", "parameter_server", "sparknet"),
    "state_averaged": ("local_sgd", "sparknet"),
    "compression": ("allreduce", "parameter_server"),
    "density": ("allreduce", "parameter_server"),
    "policy": ("parameter_server",),
    "servers": ("parameter_server",),
    "shards": ("parameter_server",),
    "opt_weight": ("parameter_server", "sparknet"),
    "executor_data": ("sparknet",),
}
"""The syncs that read an option; with any other it must stand at its default."""

OF_PIPELINES = (
    "stages", "stages_per_rank", "schedule", "micro_batches", "partition", "activations", "stage_memory_bytes",
)  # fmt: skip
"""Options that model_parallel='pipeline' alone reads."""
_AT_LEAST_1 = ("stages", "stages_per_rank", "micro_batches")
_ONE_STAGE_PER_RANK = ("naive", "gpipe", "1f1b")
_ROUNDS = ("interleaved_1f1b", "zero_bubble")
_SPLIT_BACKWARD = ("zero_bubble", "zero_bubble_v")
_BETWEEN_REPLICAS = ("allreduce", "shared_memory", "local_sgd", "gossip")

# Of the text fields whose values are a fixed set; launcher, sync and strategy have tables of their own.
CHOICES: dict[str, tuple[str, ...]] = {
    "data_source": ("real", "synthetic", "own"),
    "framework": ("torch",),
    "device": ("cpu", "cuda"),
    "compression": ("none", "topk", "terngrad"),
    "transport": ("messages", "rma", "sockets"),
    "host_workers": ("processes", "threads"),
    "policy": ("none", "wait_for_all"),
    "model_parallel": ("none", "pipeline", "head"),
    "schedule": ("none", "naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"),
    "partition": ("none", "balanced", "equal_layers", "equal_parameters"),
    "activations": ("kept", "recomputed"),
    "opt_weight": ("none", "mean", "best"),
    "executor_data": ("none", "rdd", "files"),
    "precision": ("float32", "bfloat16"),
    "input": ("jpeg", "memory", "none"),
    "optimiser": ("plain", "fused"),
    "memory_format": ("contiguous", "channels_last"),
    "copies": ("kept", "avoided"),
    "variant": ("a", "b"),
}


def check(job: Job) -> None:
    """Raises JobError, which names the field, its value and the fix."""
    for name in ("workers", "hosts", "threads_per_worker", "cores_per_worker", "steps", "shards", *_AT_LEAST_1):
        at_least(name, getattr(job, name), 1)
    at_least("stage_memory_bytes", job.stage_memory_bytes, 0)
    for name in ("warmup_steps", "servers", "exchange_every", "message_bytes", "round", "images", "seed"):
        at_least(name, getattr(job, name), 0)
    for name in ("global_batch_size", "per_worker_batch_size"):
        at_least(name, getattr(job, name), 1)
    for name, only in FIXED.items():
        if getattr(job, name) != only:
            raise JobError(f"{name}={getattr(job, name)!r} is not built yet; the only value now is {only!r}")
    for name, allowed in CHOICES.items():
        if getattr(job, name) not in allowed:
            raise JobError(f"{name}={getattr(job, name)!r} does not exist; there are: {', '.join(allowed)}")
    if job.copies == "avoided" and job.precision != "bfloat16":
        raise JobError("copies='avoided' has nothing to avoid in float32; give precision='bfloat16'")
    _check_options(job)
    _check_servers(job)
    _check_hosts(job)
    _check_spark(job)
    _check_model_parallel(job)


def at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise JobError(f"{name}={value!r} is not possible; give a whole number of at least {least}")


def bucket_elements(bucket: str) -> int | None:
    """float32 numbers in a bucket of that size; None for `whole` and `layer`. Raises JobError."""
    if bucket in ("whole", "layer"):
        return None
    found = re.fullmatch(r"([1-9]\d*)(B|KiB|MiB)", bucket) if isinstance(bucket, str) else None
    if found is None:
        raise JobError(f"bucket={bucket!r} is no size; give 'whole', 'layer' or a size such as '64KiB' or '4MiB'")
    return max(1, int(found[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[found[2]] // 4)


def _check_options(job: Job) -> None:
    """A record must not claim what did not run: an option stands at its default where nothing reads it."""
    bucket_elements(job.bucket)
    for name in ("overlap", "state_averaged"):
        if not isinstance(getattr(job, name), bool):
            raise JobError(f"{name}={getattr(job, name)!r} is neither True nor False")
    if not isinstance(job.density, int | float) or not 0 < job.density <= 1:
        raise JobError(f"density={job.density!r} is no share of a gradient; give more than 0 and at most 1")
    defaults = {field.name: field.default for field in fields(job)}
    for name, syncs in READ_BY.items():
        if getattr(job, name) != defaults[name] and job.sync not in syncs:
            readers = f"only {syncs[0]} reads it" if len(syncs) == 1 else f"only {' and '.join(syncs)} read it"
            raise JobError(f"{name}={getattr(job, name)!r} does nothing with sync={job.sync!r}; {readers}")
    if job.density != 1.0 and job.compression != "topk":
        raise JobError(f"density={job.density!r} does nothing with compression={job.compression!r}; give 'topk'")
    _check_transport(job)


def _check_transport(job: Job) -> None:
    if job.transport == "messages":
        return
    if job.compression != "none":
        raise JobError(f"compression={job.compression!r} is sent as messages; give transport='messages'")
    if job.device != "cpu":
        raise JobError(f"transport={job.transport!r} sends from the CPU's memory; give device='cpu'")
    if job.transport == "rma" and job.launcher in ONE_HOST:
        raise JobError(
            f"transport='rma' is one-sided MPI, which launcher={job.launcher!r} has not; give 'mpiexec' or 'engines', "
            "or transport='sockets'"
        )


def _check_servers(job: Job) -> None:
    if job.sync != "parameter_server":
        return
    if job.policy == "none":
        raise JobError(f"sync='parameter_server' needs a policy; there are: {', '.join(CHOICES['policy'][1:])}")
    if job.servers and job.shards != job.servers:
        raise JobError(f"shards={job.shards} on servers={job.servers}: each server has one; give shards=servers")
    if not job.servers and job.shards > job.workers:
        raise JobError(f"shards={job.shards} for {job.workers} workers and no server: give at most one per worker")
    if job.opt_weight == "none" and job.exchange_every != 1:
        raise JobError(
            f"exchange_every={job.exchange_every} with gradients, which are of one step; to exchange weights after "
            "several steps give opt_weight='mean' or 'best'"
        )
    if job.opt_weight != "none" and job.compression != "none":
        raise JobError(f"compression={job.compression!r} is for gradients; opt_weight={job.opt_weight!r} sends weights")


def _check_hosts(job: Job) -> None:
    if job.hosts > 1 and job.launcher in ONE_HOST:
        raise JobError(f"hosts={job.hosts}: launcher={job.launcher!r} stays on this machine; give 'mpiexec'")
    if job.host_workers == "threads":
        if job.launcher != "mpiexec" or job.sync != "shared_memory":
            raise JobError(
                f"host_workers='threads' with launcher={job.launcher!r}, sync={job.sync!r}: only 'mpiexec' starts such "
                "hosts, and only 'shared_memory' trains on them"
            )
        if job.workers % job.hosts:
            raise JobError(f"host_workers='threads': workers={job.workers} can't be split over hosts={job.hosts}")
    if job.link_bits_per_second and job.hosts == 1:
        raise JobError(f"link_bits_per_second={job.link_bits_per_second!r} with hosts=1: no link; give hosts=2")
    if job.link_bits_per_second and job.launcher != "mpiexec":
        raise JobError(
            f"link_bits_per_second={job.link_bits_per_second!r} does nothing with launcher={job.launcher!r}; only "
            "'mpiexec' emulates links"
        )


def _check_spark(job: Job) -> None:
    if job.launcher in ON_SPARK:
        if job.hosts > 1:
            raise JobError(
                f"hosts={job.hosts} with launcher={job.launcher!r}: the hosts are the cluster's, which a master's URL "
                "names (LOCKSTEP_SPARK_MASTER); give hosts=1"
            )
        if job.device != "cpu":
            raise JobError(f"device={job.device!r} with launcher={job.launcher!r}: ranks get no GPU; give 'cpu'")
        if job.transport == "rma":
            raise JobError(f"transport='rma' is one-sided MPI, which launcher={job.launcher!r} has not; give 'sockets'")
    only_driver = job.launcher == "spark_driver"
    if (job.sync == "sparknet") != only_driver and not (
        only_driver and job.sync == "local" and job.experiment in ("overhead", "preparation")
    ):
        raise JobError(
            f"sync={job.sync!r} with launcher={job.launcher!r}: 'sparknet' runs on 'spark_driver', and nothing else "
            "does; on Spark others run with launcher='spark'"
        )
    if job.sync == "sparknet":
        _check_sparknet(job)


def _check_sparknet(job: Job) -> None:
    if job.executor_data == "none":
        raise JobError("sync='sparknet' with executor_data='none': say where images are read; give 'rdd' or 'files'")
    if job.input != "jpeg":
        raise JobError(f"input={job.input!r} with sync='sparknet': executors decode as they go; give 'jpeg'")
    if job.opt_weight == "best":
        raise JobError("opt_weight='best' is Algorithm 1's; with sync='sparknet' give 'none' or 'mean'")
    if job.opt_weight == "none" and (job.exchange_every != 1 or job.state_averaged):
        raise JobError(
            f"exchange_every={job.exchange_every}, state_averaged={job.state_averaged} with gradients, which are of "
            "one step, and whose optimiser is the driver's; to average parameters give opt_weight='mean'"
        )
    if job.model_parallel != "none" or job.copies != "kept":
        raise JobError(
            f"model_parallel={job.model_parallel!r}, copies={job.copies!r} with sync='sparknet': only 'none' and "
            "'kept' are possible"
        )


def _check_model_parallel(job: Job) -> None:
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
