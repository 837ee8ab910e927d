"""The exchange and the update alone: what a sync costs for a model's parameters, without the model."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from lockstep.engine.groups import Group
from lockstep.engine.groups.links import LinkMeter
from lockstep.engine.groups.ping_pong import one_way_seconds
from lockstep.engine.job import Job
from lockstep.engine.replica.torch import TorchReplica
from lockstep.engine.sync import Plan, make_sync
from lockstep.engine.training.loop import STEP_COLUMNS, Site, Trace, serve
from lockstep.engine.usecases import UseCase, use_case
from lockstep.measure.probes.bandwidth import copy_bandwidth, reduce_update_bytes


def parameter_count(case: UseCase | str) -> int:
    """The number of trainable parameters of a use case's model (given by name or itself); nothing is allocated."""
    case = use_case(case) if isinstance(case, str) else case
    with torch.device("meta"):
        return sum(p.numel() for p in case.model().parameters() if p.requires_grad)


class Vector(nn.Module):
    """A model that is nothing but `length` parameters."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length))

    def forward(self, x: Tensor) -> Tensor:
        return x


def run_exchange(job: Job, group: Group, site: Site | None = None) -> Trace:
    """`job.steps` times: fill the gradients, then `Sync.step()`. Collective. Filling is not in any column."""
    del site
    if job.sync == "copy_bound":
        return _bound(job, group)
    if job.sync == "ping_pong":
        return _ping_pong(job, group)
    case, steps = use_case(job.use_case).for_job(job), job.warmup_steps + job.steps
    plan = Plan(steps, 1, steps)
    if group.rank >= job.workers:
        return serve(job, group, case, plan, time.perf_counter())
    replica = TorchReplica(Vector(job.message_bytes // 4 or parameter_count(case)))
    sync = make_sync(job, plan, case.optimiser)
    sync.attach(replica, group)
    group = sync.group  # those with a replica
    trace, link = Trace(group.rank), LinkMeter()
    for step in range(steps):
        replica.gradients.fill_(1e-3)  # every gradient page of this rank is touched, as a backward pass does
        group.barrier()
        start = time.perf_counter()
        cost = sync.step()
        seconds = time.perf_counter() - start
        times = dict.fromkeys(STEP_COLUMNS, 0.0) | vars(cost) | link.read() | {"step_seconds": seconds}
        if step >= job.warmup_steps:
            trace.steps.append(times)
    sync.close()
    return trace


def _bound(job: Job, group: Group) -> Trace:
    """The time that copying as many bytes would take, with all ranks copying at once."""
    group.barrier()
    bandwidth = copy_bandwidth()
    group.barrier()
    length = parameter_count(use_case(job.use_case).for_job(job))
    seconds = reduce_update_bytes(length, group.size) / bandwidth
    times = dict.fromkeys(STEP_COLUMNS, 0.0) | {"step_seconds": seconds, "exchange_seconds": seconds}
    return Trace(group.rank, steps=[times], scores={"bandwidth_bytes_per_second": bandwidth})


def _ping_pong(job: Job, group: Group) -> Trace:
    """A message of `message_bytes` one way, between the first rank and the last."""
    message = torch.ones(job.message_bytes // 4)
    last, trace, link = group.size - 1, Trace(group.rank), LinkMeter()
    for step in range(job.warmup_steps + job.steps):
        seconds = one_way_seconds(message, group, last)
        times = dict.fromkeys(STEP_COLUMNS, 0.0) | link.read()
        if step >= job.warmup_steps:
            trace.steps.append(times | {"step_seconds": seconds, "exchange_seconds": seconds})
    return trace
