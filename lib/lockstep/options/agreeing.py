"""What a job says of how replicas agree: which options go together."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from lockstep.options.values import CHOICES, ONE_HOST, READ_BY, JobError, bucket_elements

if TYPE_CHECKING:
    from lockstep.job import Job


def check_agreeing(job: Job) -> None:
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
    _check_servers(job)


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
