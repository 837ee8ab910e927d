"""A training run's state in one file, written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from lockstep.engine.files import write_atomically
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.registry import declared_options
from lockstep.engine.replica import Replica
from lockstep.engine.sync import Sync
from lockstep.engine.sync.base import of_worker

# The fields that must be the same, so that a resumed run reaches the parameters of an uninterrupted one.
_SAME: tuple[str, ...] = (
    "use_case",
    "images",
    "sync",
    "global_batch_size",
    "precision",
    "seed",
    *(name for name, option in declared_options().items() if option.same_on_resume),
    "model_parallel",
    "stages",
    "stages_per_rank",
    "partition",
    "stage_memory_bytes",
    "network",
    "pooling",
    "dropout",
    "weight_decay",
    "batch_norm",
    "class_weights",
    "augmentation",
    "standardise",
    "learning_rate",
    "learning_rate_rule",
    "learning_rate_decay",
    "rate_warmup_epochs",
)
# Also with compression, which draws and chooses entries bucket by bucket. Without it only the order of sums changes.
_SAME_IF_COMPRESSED = ("bucket",)
# Also with "validation" in either run, because a fifth of the training images is then held out.
_SAME_IF_HELD_OUT = ("scored_on",)
# A learning rate that falls over all steps depends on their number.
_SAME_IF_FALLING = ("epochs", "updates", "warmup_steps", "steps")
_ALL = _SAME + _SAME_IF_COMPRESSED + _SAME_IF_HELD_OUT + _SAME_IF_FALLING


class CheckpointError(ValueError):
    """A checkpoint that is missing, unreadable, or of another training run."""


def save(path: str, job: Job, group: Group, replica: Replica, sync: Sync) -> None:
    """Rank 0 writes parameters, buffers (averaged over ranks), optimiser state and position. Collective."""
    group.enter("checkpoint")
    average_buffers(replica, group)
    state, parameters = sync.state_dict(), replica.whole(sync.model())
    buffers = replica.whole_buffers()
    if replica.sharers is not None:
        state = {"step": state["step"], "parts": allgather_object(replica.sharers, state)}
    if group.rank == 0 and (replica.sharers is None or replica.sharers.rank == 0):
        stream = io.BytesIO()
        torch.save(
            {
                "job": {name: getattr(job, name) for name in _ALL},
                "parameters": parameters.detach().cpu(),
                "buffers": buffers.detach().cpu(),
                "cuts": replica.cuts,
                "sync": state,
            },
            stream,
        )
        write_atomically(Path(path), stream.getvalue())
    if replica.sharers is not None:
        replica.sharers.barrier()
    group.barrier()


def read(path: str) -> dict[str, Any]:
    """The content of a checkpoint: tensors and plain data only, never code. Raises CheckpointError if it is missing,
    damaged, or not a checkpoint."""
    try:
        content: Any = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} does not exist; train without resume first") from None
    except Exception as error:
        raise CheckpointError(f"checkpoint {path} can't be read ({error}); remove it and train anew") from error
    if not isinstance(content, dict) or not {"job", "parameters", "buffers", "sync"} <= set(content):
        raise CheckpointError(f"checkpoint {path} is not one of Lockstep's; name another file")
    return content


def read_for(path: str, job: Job) -> dict[str, Any]:
    """`read`, for resuming `job`. Raises CheckpointError if another run wrote it."""
    content = read(path)
    # A file that is older than an option lacks it.
    stored = {name: getattr(Job, name) for name in _ALL} | content["job"]
    names = _SAME + (_SAME_IF_COMPRESSED if job.compression != "none" else ())
    names += _SAME_IF_HELD_OUT if "validation" in (stored["scored_on"], job.scored_on) else ()
    names += _SAME_IF_FALLING if job.learning_rate_decay != "none" else ()
    for name in names:
        there = stored[name]
        if there != getattr(job, name):
            raise CheckpointError(
                f"checkpoint {path} was written with {name}={there!r}, this run has "
                f"{getattr(job, name)!r}; resume with the same value or remove the file"
            )
    return content


def load(path: str, job: Job, replica: Replica, sync: Sync) -> None:
    """Restore replica and sync from the checkpoint. Raises CheckpointError."""
    content = read_for(path, job)
    try:
        parameters, buffers = replica.part_of(content["parameters"]), replica.buffers_of(content["buffers"])
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    if parameters.numel() != replica.length:
        raise CheckpointError(
            f"checkpoint {path} holds {content['parameters'].numel()} parameters, the model has {replica.length}; "
            f"it was written for another model"
        )
    sync.group.barrier()  # parameters may be in shared memory, which must be written completely before any rank trains
    replica.parameters.copy_(parameters)
    replica.buffers.copy_(buffers)
    state = content["sync"]
    try:
        if replica.sharers is not None:
            state = of_worker(state["parts"], replica.sharers, "a part of the model for each")
        sync.load_state_dict(state)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    sync.group.barrier()


def cuts_of(path: str, job: Job) -> list[int] | None:
    """The cuts of the run that `job` resumes, or None if its model was not cut. Raises CheckpointError."""
    cuts: list[int] | None = read_for(path, job).get("cuts")
    return cuts


def average_buffers(replica: Replica, group: Group) -> None:
    """Average the running statistics of normalization layers, which differ between ranks. Collective."""
    if replica.buffers.numel() and group.size > 1:
        group.allreduce(replica.buffers)
        replica.buffers /= group.size
