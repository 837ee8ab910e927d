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
FIXED: dict[str, object] = {
    "delays": "none",
    "schedule": "none",
    "stages": 1,
    "micro_batches": 1,
}
ONE_HOST = ("threads", "processes")
"""Launchers of one machine."""

READ_BY: dict[str, tuple[str, ...]] = {
    "bucket": ("allreduce",),
    "overlap": ("allreduce",),
    "transport": ("allreduce",),
    "exchange_every": ("local_sgd", "gossip", "parameter_server"),
    "state_averaged": ("local_sgd",),
    "compression": ("allreduce", "parameter_server"),
    "density": ("allreduce", "parameter_server"),
    "policy": ("parameter_server",),
    "servers": ("parameter_server",),
    "shards": ("parameter_server",),
    "opt_weight": ("parameter_server",),
}
"""The syncs that read an option; with any other it must stand at its default."""

# Of the text fields whose values are a fixed set; launcher, sync and strategy have tables of their own.
CHOICES: dict[str, tuple[str, ...]] = {
    "data_source": ("real", "synthetic", "own"),
    "framework": ("torch",),
    "device": ("cpu", "cuda"),
    "compression": ("none", "topk", "terngrad"),
    "transport": ("messages", "rma", "sockets"),
    "host_workers": ("processes", "threads"),
    "policy": ("none", "wait_for_all"),
    "opt_weight": ("none", "mean", "best"),
    "precision": ("float32", "bfloat16"),
    "input": ("jpeg", "memory", "none"),
    "optimiser": ("plain", "fused"),
    "memory_format": ("contiguous", "channels_last"),
    "copies": ("kept", "avoided"),
    "variant": ("a", "b"),
}


def check(job: Job) -> None:
    """Raises JobError, which names the field, its value and the fix."""
    for name in ("workers", "hosts", "threads_per_worker", "cores_per_worker", "steps", "stages", "micro_batches"):
        at_least(name, getattr(job, name), 1)
    at_least("shards", job.shards, 1)
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
