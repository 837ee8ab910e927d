"""A first forward pass before any worker starts: can this model be trained on these images, be scored, and repeated?"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.loader import Batch
from lockstep.engine.data.sources import ImageData, are_classes
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.models.losses import Loss, logits_in
from lockstep.engine.replica.layout import TensorLayout
from lockstep.engine.replica.torch import TorchReplica
from lockstep.engine.training.finite import told_not_finite
from lockstep.engine.training.randomness import WatchedPass, keeping_generators
from lockstep.engine.usecases import UseCase, use_case

_UNUSED = (
    "parameter {name!r}{several} gets no gradient from the loss: its gradient counts as zero, by which weight decay "
    "and momentum still move it, where torch would leave it; requires_grad_(False) freezes it"
)
_EMPTY = (
    "a pass without images, which a worker has when a last step has fewer images than workers, fails with {}; use "
    "nn.Flatten in place of a view, or give sync_batch_norm=False"
)
SAMPLES = 2  # batch normalization of one sample alone is impossible


@dataclass(frozen=True)
class FirstPass:
    """A model's tensors, and what watching it train showed."""

    layout: TensorLayout
    cautions: list[str] = field(default_factory=list)
    draws: bool = False  # in training, what is not keyed by sample


def check_first_pass(
    model: nn.Module, case: UseCase, job: Job, *, backward: bool = False, finite: bool = False
) -> FirstPass:
    """What a pass of `model`, which is not to be used afterwards, in training and one in evaluation show.

    The first training images of `case` go through it as a worker of `job` computes, `backward` too where asked; the
    first test images are scored. Raises JobError, with the fix, for a model in another precision than float32, for an
    output that its loss can't take, if there are test images for one that can't be scored, and, where `finite` is
    asked for, for a loss that is NaN at once.
    """
    assert case.train is not None
    try:
        replica = TorchReplica(model, case.loss, precision=job.precision, seed=job.seed)
        if job.values["sync_batch_norm"]:
            replica.normalize_together(ThreadGroup.of(1)[0])
    except ValueError as error:
        raise JobError(str(error)) from error
    if not len(case.train):
        return FirstPass(replica.layout)
    with keeping_generators():
        batch = _first(case.train, job)
        if case.test is not None and len(case.test):
            _check_scores(replica, _first(case.test, job), case.loss)
        with WatchedPass(replica.model) as seen:
            losses = _check_losses(replica, batch, case.train)
        if finite:
            _check_finite(losses, batch)
        unused = _check_backward(replica, losses, job) if backward else []
        if job.values["sync_batch_norm"] and job.replicas > 1:
            _check_empty(replica, batch)
    _leave_no_cache()
    in_stages = _pipeline_statistics(seen.normalising, len(case.train), job)
    cautions = [*seen.cautions(job.replicas > 1 and not in_stages), *in_stages, *unused]
    return FirstPass(replica.layout, cautions, seen.random)


def _leave_no_cache() -> None:
    """Remove the folder in the temporary folder that torch makes for compiled code as soon as an optimiser or a model
    needs a part of it, unless something is in it. Torch makes it again when it compiles."""
    if place := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        with contextlib.suppress(OSError):  # it holds something, or is not there
            if Path(place).parent == Path(tempfile.gettempdir()):
                Path(place).rmdir()


def _first(data: ImageData, job: Job) -> Batch:
    ids = np.arange(min(SAMPLES, len(data)), dtype=np.int64)
    return Batch(data.load(ids, 0, job.seed), data.labels[ids], ids, 0)


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


def _pipeline_statistics(modules: str, samples: int, job: Job) -> list[str]:
    """What a reader should know of `modules` that normalise over a batch, in the stages of a pipeline. Raises JobError
    where their statistics would be of other numbers than the samples' too."""
    if not modules or job.model_parallel != "pipeline":
        return []
    if rest := samples % job.global_batch_size:
        raise JobError(
            f"{modules}: batch normalisation with model_parallel='pipeline', where an epoch's last step has {rest} "
            f"samples and is filled up to {job.global_batch_size} with zeros, which would count in its statistics; "
            f"give a batch_size that divides {samples}, or use nn.GroupNorm or nn.LayerNorm"
        )
    if job.activations == "recomputed":
        raise JobError(
            f"{modules}: batch normalisation with activations='recomputed', which would note each micro-batch's "
            "statistics twice; give activations='kept', or use nn.GroupNorm or nn.LayerNorm"
        )
    size = job.global_batch_size // (job.replicas * job.micro_batches)
    if size == job.global_batch_size:
        return []
    return [
        f"{modules}: batch normalisation over each micro-batch of {size} samples, not the whole batch of "
        f"{job.global_batch_size}: other micro-batches or workers, other parameters; sync_batch_norm is not built for "
        "pipelines: give larger micro-batches (micro_batches, batch_size), or use nn.GroupNorm or nn.LayerNorm"
    ]


def _check_losses(replica: TorchReplica, batch: Batch, data: ImageData) -> Tensor:
    try:
        output, losses = replica.losses(batch)
    except Exception as error:
        raise _failed(replica, batch, data, error) from error
    if not isinstance(losses, Tensor) or losses.shape != (len(batch),):
        raise JobError(
            f"the loss gives {_kind(losses)} for {len(batch)} images, whose output is {_kind(output)}; let it give one "
            "value per image (of torch's own losses, with reduction='none')"
        )
    if told := _too_few(replica.loss, output, data):
        raise JobError(told)
    return losses


def _too_few(loss: Loss, output: Any, data: ImageData) -> str:
    """What is wrong if the model tells fewer classes apart than `data` have, as far as `loss` is known to need one
    output for each. The first images alone need not show it."""
    classes = len(data.classes)
    if not classes or getattr(loss, "outputs_per_class", None) is None:
        return ""
    try:
        logits = logits_in(output)
    except TypeError:
        return ""
    if logits.dim() not in (1, 2):
        return ""
    outputs = logits.shape[1] if logits.dim() == 2 else 1
    least = classes if loss.outputs_per_class else (1 if classes == 2 else math.inf)  # type: ignore[attr-defined]
    if outputs >= least:
        return ""
    if least == math.inf:
        return f"this loss tells 2 classes apart, and the labels name {classes}; give loss='cross_entropy'"
    told = f"the model has {outputs} outputs for {classes} classes; give its last layer {classes} outputs"
    if (outputs, classes) == (1, 2):
        return f"{told}, or loss='binary_cross_entropy' for one logit"
    return f"{told} (no label is 0: labels - 1 would number them from 0)" if data.labels.min() > 0 else told


def _check_finite(losses: Tensor, batch: Batch) -> None:
    if bool(losses.isfinite().all()):
        return
    broken = told_not_finite(batch.images, "images") or f"the images are finite, and the losses are {losses.tolist()}"
    raise JobError(
        f"the loss of a first pass is not finite: {broken}; look for the number that is broken, in the data or in what "
        "the model and the loss compute of them (lockstep.train(on_nan='warn') goes on all the same)"
    )


def _check_backward(replica: TorchReplica, losses: Tensor, job: Job) -> list[str]:
    """What a reader should know of parameters without a gradient; JobError for them under DDP, which waits for each."""
    try:
        losses.sum().backward()
    except Exception as error:
        raise JobError(
            f"a first backward pass fails with {type(error).__name__}: {error}; let the loss be computed from the "
            "model's output by operations that have a gradient"
        ) from error
    unused = [name for name, each in replica.model.named_parameters() if each.requires_grad and each.grad is None]
    if not unused:
        return []
    told = _UNUSED.format(name=unused[0], several=f" (and {len(unused) - 1} more)" if unused[1:] else "")
    if job.sync == "ddp" and job.workers > 1:
        raise JobError(f"{told}; sync='ddp' would wait for it: freeze it, or give sync='allreduce'")
    return [told]


def _check_empty(replica: TorchReplica, batch: Batch) -> None:
    """Workers without an image in a short last step take part in synchronized batch normalization. In evaluation mode,
    for here are no others whose images would make up a batch."""
    try:
        replica.evaluated(Batch(batch.images[:0], batch.labels[:0], batch.sample_ids[:0], batch.epoch))
    except Exception as error:
        raise JobError(_EMPTY.format(f"{type(error).__name__}: {error}")) from error


def _failed(replica: TorchReplica, batch: Batch, data: ImageData, error: Exception) -> JobError:
    """What to say of an error in training: of the loss, if the model has an output that is no tensor."""
    reason = f"{type(error).__name__}: {error}"
    try:
        output = replica.evaluated(batch)
    except Exception:
        output = None
    if told := _too_few(replica.loss, output, data):
        return JobError(told)
    if output is None or isinstance(output, Tensor):
        tried = _typed(batch.images)
        tried += "" if output is None else f"; output {_kind(output)}; labels {_typed(batch.labels)}"
        hint = "; whole numbers are taken for token ids: for numbers give float32"
        hint = hint if output is None and batch.images.dtype == np.int64 else ""
        return JobError(f"a first pass of {len(batch)} training images ({tried}) fails with {reason}{hint}")
    return JobError(
        f"the model returns {_kind(output)}, which the loss can't take ({reason}); let it return one tensor "
        "[images, classes], or give a loss that takes this"
    )


def _check_scores(replica: TorchReplica, batch: Batch, loss: Loss) -> None:
    try:
        output = replica.evaluated(batch)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise JobError(f"a first pass of {len(batch)} images in evaluation mode fails with {reason}") from error
    classes = are_classes(batch.labels)
    try:
        scored = logits_in(output)
    except TypeError:
        scored = None
    # One logit per image may come without a dimension of its own.
    if scored is None or scored.shape[:1] != (len(batch),) or (classes and scored.dim() not in (1, 2)):
        wanted = "[images, classes]" if classes else "[images, ...]"
        raise JobError(
            f"in evaluation mode the model returns {_kind(output)} for {len(batch)} images, and scores need one tensor "
            f"{wanted}, alone, first in a tuple or as 'logits' of a dict; let it return that where self.training is "
            "False, or give no test images"
        )
    if classes:
        return
    try:
        loss(scored, torch.from_numpy(batch.labels))
    except Exception as error:
        raise JobError(
            f"the loss can't take the model's output in evaluation mode, {_kind(scored)} ({type(error).__name__}: "
            f"{error}); let it take that tensor, or give no test images"
        ) from error


def _typed(values: Any) -> str:
    return f"{values.dtype} {list(values.shape)}"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list | dict) else "")
