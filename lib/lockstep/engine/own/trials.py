"""What is tried in the caller besides the first pass: two samples of a slow data set, a share of one, the stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep.engine.cgroups import free_memory
from lockstep.engine.data.loader import Batch
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.own.asked import TrainingAsked
from lockstep.engine.own.data import few_of
from lockstep.engine.own.models import made, spare
from lockstep.engine.pipelines import partition
from lockstep.engine.replica.pipeline.cut import CutError, flatten
from lockstep.engine.replica.pipeline.profile import static_costs
from lockstep.engine.replica.torch import TorchReplica
from lockstep.engine.sync.plan import Plan
from lockstep.engine.training.first_pass import check_first_pass
from lockstep.engine.training.randomness import keeping_generators
from lockstep.engine.units import bytes_text
from lockstep.engine.usecases import UseCase


def try_few(case: UseCase, data: Any, asked: TrainingAsked) -> None:
    """Raises JobError, DataError for what two samples show, where it would take long to read all labels before."""
    few = few_of(data)
    if few is not None:
        check_first_pass(spare(made(case.model, asked.seed)), replace(case, train=few), asked.job(few))


def check_room(sample_bytes: int, job: Job) -> None:
    """Raises JobError if samples that travel to workers as so many bytes do not fit in what memory is free.

    Seen with arrays of 191 MiB: the caller held them twice besides its own (packed, and as a message), and each worker
    process three times (as it came, packed and unpacked); what it has freed its allocator keeps.
    """
    processes = 1 if job.launcher == "threads" else job.ranks
    if job.launcher not in ("threads", "processes"):
        return  # samples travel otherwise there, or to other machines
    needed, free = (2 + 2 * processes + job.ranks) * sample_bytes, free_memory()
    if needed > free:
        raise JobError(
            f"the samples are {bytes_text(sample_bytes)}, and each of {job.ranks} worker(s) unpacks a copy of its own: "
            f"{bytes_text(needed)} with what is packed and unpacked meanwhile, and {bytes_text(free)} are free; give a "
            "data set that reads a sample when it is asked for (in __getitem__, from files or from np.load(file, "
            "mmap_mode='r') that is opened there), photos in a folder, or fewer workers"
        )


def check_stages(model: nn.Module, stages: int) -> None:
    """Raises JobError for a model that can't be cut into so many."""
    try:
        partition.equal_layers(static_costs(flatten(model)), stages)
    except (CutError, partition.PartitionError) as error:
        raise JobError(str(error)) from error


def check_smallest_share(case: UseCase, job: Job) -> None:
    """Raises JobError if a worker's share of a full batch, or of an epoch's last one, or a pipeline's micro-batch, is
    one sample, and the model of `case` can't train on it. Where batches are normalized together, only a whole batch of
    one sample is too small."""
    assert case.train is not None
    if job.model_parallel == "pipeline":
        if job.global_batch_size == job.replicas * job.micro_batches:
            _try_one(case, job, "a micro-batch of one sample, which each is here,", (
                f"batches of {job.global_batch_size} among {job.replicas} pipeline(s) of {job.micro_batches} "
                "micro-batches: give a larger batch_size or fewer micro_batches"
            ))  # fmt: skip
        return
    samples, together = len(case.train), bool(job.values["sync_batch_norm"])
    workers = 1 if together else job.replicas
    plan = Plan(samples, job.global_batch_size, job.steps, job.seed, job.values["micro_batch"])
    steps = [step for step in sorted({0, plan.steps_per_epoch - 1}) if _smallest(plan, step, workers) == 1]
    if not steps:
        return
    fix = ", fewer workers or sync_batch_norm=True" if workers > 1 else ""
    _try_one(case, job, f"a share of a batch of one sample, which a worker has in step {steps[0]},", (
        f"{samples} samples in batches of {job.global_batch_size} among {job.replicas} worker(s): give another "
        f"batch_size{fix}"
    ), together)  # fmt: skip


def _try_one(case: UseCase, job: Job, what: str, fix: str, together: bool = False) -> None:
    """Raises JobError if the model of `case` can't train on one sample. `together`: as where batches are normalized
    together."""
    assert case.train is not None
    replica = TorchReplica(spare(made(case.model, job.seed)), case.loss, precision=job.precision, seed=job.seed)
    if together:
        replica.normalize_together(ThreadGroup.of(1)[0])
    one = np.arange(1, dtype=np.int64)
    try:
        with keeping_generators(), torch.no_grad():
            replica.losses(Batch(case.train.load(one, 0, job.seed), case.train.labels[one], one, 0))
    except Exception as error:
        raise JobError(
            f"{what} fails in training with {type(error).__name__}: {error} (batch normalization needs more); {fix}"
        ) from error


def _smallest(plan: Plan, step: int, workers: int) -> int:
    """Samples of the smallest micro-batch of `step` that is not empty."""
    shares = [share for rank in range(workers) for share in plan.shares(step, rank, workers)]
    return min(len(share.sample_ids) for share in shares if len(share.sample_ids))
