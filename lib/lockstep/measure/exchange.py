"""Reduce and update alone: what a sync costs for a model's parameters, without the model."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from lockstep.groups import Group
from lockstep.job import Job
from lockstep.loop import STEP_COLUMNS, Site, Trace
from lockstep.measure.bandwidth import copy_bandwidth, reduce_update_bytes
from lockstep.replica.torch import TorchReplica
from lockstep.sync import SYNCS, Plan
from lockstep.usecases import use_case


def parameter_count(name: str) -> int:
    """Trainable parameters of a use case's model; nothing is allocated for it."""
    with torch.device("meta"):
        return sum(p.numel() for p in use_case(name).model().parameters() if p.requires_grad)


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
    case = use_case(job.use_case)
    replica = TorchReplica(Vector(parameter_count(job.use_case)))
    steps = job.warmup_steps + job.steps
    sync = SYNCS[job.sync](Plan(steps, 1, steps), case.optimiser)
    sync.attach(replica, group)
    trace = Trace(group.rank)
    for step in range(steps):
        replica.gradients.fill_(1e-3)  # every gradient page of this rank is touched, as a backward pass does
        group.barrier()
        start = time.perf_counter()
        cost = sync.step()
        times = dict.fromkeys(STEP_COLUMNS, 0.0) | vars(cost) | {"step_seconds": time.perf_counter() - start}
        if step >= job.warmup_steps:
            trace.steps.append(times)
    sync.close()
    return trace


def _bound(job: Job, group: Group) -> Trace:
    """The time that copying as many bytes would take, with all ranks copying at once."""
    group.barrier()
    bandwidth = copy_bandwidth()
    group.barrier()
    seconds = reduce_update_bytes(parameter_count(job.use_case), group.size) / bandwidth
    times = dict.fromkeys(STEP_COLUMNS, 0.0) | {"step_seconds": seconds, "exchange_seconds": seconds}
    return Trace(group.rank, steps=[times], scores={"bandwidth_bytes_per_second": bandwidth})
