"""A first forward pass before any worker starts: can this model be trained on these images, be scored, and repeated?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.replica.layout import TensorLayout
from lockstep.engine.replica.torch import TorchReplica
from lockstep.engine.training.randomness import WatchedPass, keeping_generators
from lockstep.engine.usecases import UseCase, use_case

_EMPTY = (
    "a pass without images, which a worker has when a last step has fewer images than workers, fails with {}; use "
    "nn.Flatten in place of a view, or give sync_batch_norm=False"
)
SAMPLES = 2  # batch normalisation of one sample alone is impossible


@dataclass(frozen=True)
class FirstPass:
    """A model's tensors, and what watching it train showed."""

    layout: TensorLayout
    cautions: list[str] = field(default_factory=list)
    draws: bool = False  # in training, what is not keyed by sample


def check_first_pass(model: nn.Module, case: UseCase, job: Job) -> FirstPass:
    """What a pass of `model`, which is not to be used afterwards, in training and one in evaluation show.

    The first training images of `case` go through it as a worker of `job` computes. Raises JobError, with the fix, for
    a model in another precision than float32, for an output that its loss can't take, and, if there are test images,
    for one that can't be scored.
    """
    assert case.train is not None
    ids = np.arange(min(SAMPLES, len(case.train)), dtype=np.int64)
    batch = Batch(case.train.load(ids, 0, job.seed), case.train.labels[ids], ids, 0)
    try:
        replica = TorchReplica(model, case.loss, precision=job.precision, seed=job.seed)
        if job.values["sync_batch_norm"]:
            replica.normalize_together(ThreadGroup.of(1)[0])
    except ValueError as error:
        raise JobError(str(error)) from error
    if not len(ids):
        return FirstPass(replica.layout)
    with keeping_generators():
        if case.test is not None:
            _check_scores(replica, batch)
        with WatchedPass(replica.model) as seen:
            _check_losses(replica, batch)
        if job.values["sync_batch_norm"] and job.replicas > 1:
            _check_empty(replica, batch)
    shared = job.replicas > 1 or job.micro_batches > 1
    return FirstPass(replica.layout, list(seen.cautions(shared)), seen.random)


def first_pass_of(job: Job, data_root: str, skipped: Collection[str] = ()) -> FirstPass:
    """`check_first_pass` of a job whose use case brings its own model, on the images that it trains on. Raises
    JobError as that does, and DataError for images that can't be read."""
    case = use_case(job.use_case).for_job(job)
    data = case.open("train", data_root, job.images, skipped)
    case = replace(case.fitting(data), train=data)
    with keeping_generators():
        torch.manual_seed(job.seed)
        model = case.model()
    return check_first_pass(model, case, job)


def _check_losses(replica: TorchReplica, batch: Batch) -> None:
    try:
        output, losses = replica.losses(batch)
    except Exception as error:
        raise _failed(replica, batch, error) from error
    if not isinstance(losses, Tensor) or losses.shape != (len(batch),):
        raise JobError(
            f"the loss gives {_kind(losses)} for {len(batch)} images, whose output is {_kind(output)}; let it give one "
            "value per image (of torch's own losses, with reduction='none')"
        )


def _check_empty(replica: TorchReplica, batch: Batch) -> None:
    """Workers without an image in a short last step take part in synchronized batch normalization. In evaluation mode,
    for here are no others whose images would make up a batch."""
    try:
        replica.evaluated(Batch(batch.images[:0], batch.labels[:0], batch.sample_ids[:0], batch.epoch))
    except Exception as error:
        raise JobError(_EMPTY.format(f"{type(error).__name__}: {error}")) from error


def _failed(replica: TorchReplica, batch: Batch, error: Exception) -> JobError:
    """What to say of an error in training: of the loss, if the model has an output that is no tensor."""
    reason = f"{type(error).__name__}: {error}"
    try:
        output = replica.evaluated(batch)
    except Exception:
        output = None
    if output is None or isinstance(output, Tensor):
        return JobError(f"a first pass of {len(batch)} training images fails with {reason}")
    return JobError(
        f"the model returns {_kind(output)}, which the loss can't take ({reason}); let it return one tensor "
        "[images, classes], or give a loss that takes this"
    )


def _check_scores(replica: TorchReplica, batch: Batch) -> None:
    try:
        output = replica.evaluated(batch)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise JobError(f"a first pass of {len(batch)} images in evaluation mode fails with {reason}") from error
    if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != len(batch):
        raise JobError(
            f"in evaluation mode the model returns {_kind(output)} for {len(batch)} images, and scores need one tensor "
            "[images, classes]; let it return that where self.training is False, or give no test images"
        )


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list | dict) else "")
