"""What a job says of the network, of how it learns, and of what it is scored on."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from lockstep.options.values import JobError

if TYPE_CHECKING:
    from lockstep.job import Job

OF_LEARNING = (
    "network", "pooling", "dropout", "weight_decay", "batch_norm", "class_weights", "augmentation", "standardise",
    "learning_rate", "learning_rate_rule", "learning_rate_decay", "rate_warmup_epochs", "epochs", "updates",
    "scored_on", "early_stopping_epochs",
)  # fmt: skip
"""Options of networks for small images, and of training until they have learnt."""

LEARNING = ("learning", "candidates", "ablation", "selected", "paired")
"""Experiments whose cells train until they have learnt: round r with seed r, and no cell is a matter of time alone."""

_ONLY_WITH_TORCH: dict[str, object] = {
    "model_parallel": "none", "precision": "float32", "memory_format": "contiguous", "copies": "kept", "device": "cpu",
}  # fmt: skip
_SYNCS_OF_TORCH = ("ddp", "sparknet")


def check_learning(job: Job) -> None:
    """That what a job asks of networks and of learning goes together."""
    if not _number(job.dropout) or not 0 <= job.dropout < 1:
        raise JobError(f"dropout={job.dropout!r} is no share of activations; give at least 0 and less than 1")
    for name in ("weight_decay", "learning_rate"):
        value = getattr(job, name)
        if not _number(value) or not 0 <= value < math.inf:
            raise JobError(f"{name}={value!r} is not possible; give a number of at least 0")
    for name in ("batch_norm", "standardise"):
        if not isinstance(getattr(job, name), bool):
            raise JobError(f"{name}={getattr(job, name)!r} is neither True nor False")
    _check_length(job)
    _check_scores(job)
    if job.framework == "tensorflow":
        _check_tensorflow(job)


def _check_length(job: Job) -> None:
    if not job.learns:
        if job.experiment in LEARNING:
            raise JobError(f"experiment={job.experiment!r} trains until something is learnt; give epochs or updates")
        return
    if job.epochs and job.updates:
        raise JobError(f"epochs={job.epochs} and updates={job.updates} both say how long to train; give one of them")
    given = f"epochs={job.epochs}" if job.epochs else f"updates={job.updates}"
    if job.epochs and job.rate_warmup_epochs > job.epochs:
        raise JobError(
            f"rate_warmup_epochs={job.rate_warmup_epochs} with {given}: the rate would never reach its full height; "
            f"give at most {job.epochs}"
        )
    defaults = {field.name: field.default for field in fields(job)}
    for name in ("steps", "warmup_steps"):
        if getattr(job, name) != defaults[name]:
            raise JobError(
                f"{name}={getattr(job, name)} does nothing with {given}, which says how long to train; leave it out"
            )
    if job.input != "jpeg":
        raise JobError(f"input={job.input!r} with {given} would keep every batch of every epoch; give input='jpeg'")


def _check_scores(job: Job) -> None:
    if job.scored_on != "none" and not job.learns:
        raise JobError(f"scored_on={job.scored_on!r} needs an end of training; give epochs or updates")
    if not job.early_stopping_epochs:
        return
    given = f"early_stopping_epochs={job.early_stopping_epochs}"
    if job.scored_on != "validation":
        raise JobError(f"{given} with scored_on={job.scored_on!r}: it looks at validation loss; give 'validation'")
    if not job.epochs:
        raise JobError(f"{given} with updates={job.updates}: it counts epochs; give epochs instead of updates")


def _check_tensorflow(job: Job) -> None:
    for name, only in _ONLY_WITH_TORCH.items():
        if getattr(job, name) != only:
            raise JobError(f"{name}={getattr(job, name)!r} with framework='tensorflow': only {only!r} is possible")
    if job.sync in _SYNCS_OF_TORCH:
        raise JobError(f"sync={job.sync!r} with framework='tensorflow': it trains torch modules; give 'allreduce'")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
