"""The replica that a job asks for, initialised from its seed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from lockstep.engine.groups import Group
from lockstep.engine.groups.base import SubGroup
from lockstep.engine.job import Job
from lockstep.engine.replica import Replica, TorchReplica, bfloat16_replica_class
from lockstep.engine.usecases import UseCase

MakeReplica = Callable[[UseCase, Job, Group], Replica]

# Torch's generator is one per process, so ranks that are threads must not use it at the same time.
_BUILDING = threading.Lock()


def torch_replica(case: UseCase, job: Job, group: Group, kind: type[TorchReplica] = TorchReplica) -> TorchReplica:
    """The model of `case`, initialised from the job's seed, the same on every rank."""
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        device = f"cuda:{group.rank % torch.cuda.device_count()}" if job.device == "cuda" else job.device
        if job.copies == "avoided":
            kind = bfloat16_replica_class(kind)
        replica = kind(
            case.model(),
            case.loss,
            device=device,
            precision=job.precision,
            seed=job.seed,
            memory_format=job.memory_format,
        )
    if job.values["sync_batch_norm"]:
        replica.normalize_together(SubGroup(group, list(range(job.workers)), "batch normalization"))
    return replica


def replica_for(case: UseCase, job: Job, group: Group) -> Replica:
    """A replica in the framework that the job asks for."""
    if job.framework == "torch":
        return torch_replica(case, job, group)
    from lockstep.engine.replica.tensorflow.replica import tensorflow_replica  # heavy, and it may be missing

    return tensorflow_replica(case, job, group)
