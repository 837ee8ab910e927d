"""A training run's state in one file, written whole or not at all, and the refusal of any file but the right one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lockstep.engine.files import write_atomically
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import OF_SIZES, Job
from lockstep.engine.job.what import HOLDING_OUT
from lockstep.engine.registry import declared_options
from lockstep.engine.replica import Replica
from lockstep.engine.replica.layout import Entry, TensorLayout, difference
from lockstep.engine.sync import Sync
from lockstep.engine.sync.base import of_worker
from lockstep.engine.sync.plan import OptimiserFactory
from lockstep.engine.training.checkpoint_file import misshapen, packed_content, unpacked_content
from lockstep.engine.training.rates import BASE_RATE, STEPS_DONE

# The fields that must be the same, so that a resumed run reaches the parameters of an uninterrupted one.
_SAME: tuple[str, ...] = ("use_case", "images", "sync", "global_batch_size", "precision", "seed")
_SAME += tuple(name for name, option in declared_options().items() if option.same_on_resume)
_SAME += ("model_parallel", "stages", "stages_per_rank", "partition", "stage_memory_bytes", "network", "pooling")
_SAME += ("dropout", "weight_decay", "batch_norm", "class_weights", "augmentation", "standardise", "learning_rate")
_SAME += ("learning_rate_rule", "learning_rate_decay", "rate_warmup_epochs", *OF_SIZES)
# Also with compression, which draws and chooses entries bucket by bucket. Without it only the order of sums changes.
_SAME_IF_COMPRESSED = ("bucket",)
# Also with either of HOLDING_OUT in either run, because a fifth of the training images is then held out.
_SAME_IF_HELD_OUT = ("scored_on",)
# A learning rate that falls over all steps depends on their number.
_SAME_IF_FALLING = ("epochs", "updates", "warmup_steps", "steps")
_ALL = _SAME + _SAME_IF_COMPRESSED + _SAME_IF_HELD_OUT + _SAME_IF_FALLING

# What can be divided among ranks -> what the file holds, and what to resume it with.
_PARTS = {
    "workers": ("the state of {} workers", "workers={}"),
    "ranks": ("a part of the model for each of {} workers", "workers={}"),
    "slices": ("the optimiser's state in {} slices, one per worker per node", "workers={} per node"),
    "shards": ("the state of {} shards", "shards={}"),
}
# Settings of an optimiser that change how a step is computed, and not what comes out.
_HOW_COMPUTED = ("params", "foreach", "fused", "capturable", "differentiable", BASE_RATE, STEPS_DONE)


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, or of another training run; the message says what differs, and the fix."""


def save(
    path: str, job: Job, group: Group, replica: Replica, sync: Sync, epochs: Iterable[dict[str, float | str]] = (),
    data: str = "",
) -> None:
    """Rank 0 writes all that training reads: parameters, buffers (averaged over ranks, or rank 0's where they are no
    floating point numbers), frozen parameters, the optimiser's state and the position; the rows of its `epochs`, and
    what tells its `data` from others. Collective."""
    group.enter("checkpoint")
    average_buffers(replica, group)
    state, parts = sync.state_dict(), sync.parts_of_state()
    content: dict[str, Any] = {"parameters": replica.whole(sync.model()), "buffers": replica.whole_buffers()}
    others = replica.whole_others()
    if replica.sharers is not None:
        state = {"step": state["step"], "parts": allgather_object(replica.sharers, state)}
        parts = {**parts, "ranks": replica.sharers.size}
    if group.rank == 0 and (replica.sharers is None or replica.sharers.rank == 0):
        content |= {
            "job": {name: getattr(job, name) for name in _ALL},
            "model": list(replica.layout.entries),
            "optimiser": _settings(sync.make_optimiser),
            "parts": parts,
            "others": others,
            "cuts": replica.cuts,
            "sync": state,
            "epochs": list(epochs),
            "data": data,
        }
        write_atomically(Path(path), packed_content(content), private=True)  # it was learnt of images that may be
    if replica.sharers is not None:
        replica.sharers.barrier()
    group.barrier()


def read(path: str) -> dict[str, Any]:
    """The content of a checkpoint: tensors and plain data only, never code. Raises CheckpointError if it is missing,
    damaged, or not a checkpoint."""
    try:
        content: dict[str, Any] = unpacked_content(Path(path).read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} does not exist; train without resume first") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {path} can't be read: {error}; name another file, or remove it and train anew"
        ) from error
    if why := misshapen(content):
        raise CheckpointError(f"checkpoint {path} can't be read: {why}; name another file, or remove it and train anew")
    return content


def read_for(path: str, job: Job) -> dict[str, Any]:
    """`read`, for resuming `job`. Raises CheckpointError if another run wrote it."""
    content = read(path)
    # A file that is older than an option lacks it.
    stored = {name: getattr(Job, name) for name in _ALL} | content["job"]
    names = _SAME + (_SAME_IF_COMPRESSED if job.compression != "none" else ())
    names += _SAME_IF_HELD_OUT if {stored["scored_on"], job.scored_on} & {*HOLDING_OUT} else ()
    names += _SAME_IF_FALLING if job.learning_rate_decay != "none" else ()
    for name in names:
        there = stored[name]
        if there != getattr(job, name) and not (name == "images" and not job.images):  # 0: not known yet
            raise CheckpointError(
                f"checkpoint {path} was written with {name}={there!r}, this run has "
                f"{getattr(job, name)!r}; resume with the same value or remove the file"
            )
    return content


def check_resumable(
    path: str, job: Job, layout: TensorLayout | None = None, optimiser: OptimiserFactory | None = None, data: str = ""
) -> None:
    """Raises CheckpointError, before anything starts, unless `job` can go on from the file. `layout`, `optimiser`,
    `data`: those of the model and the training, as far as they are known."""
    # DDP's workers run under `local`, and say so in the checkpoint.
    content = read_for(path, job.with_(sync="local") if job.sync == "ddp" else job)
    if (there := content.get("data")) and data and there != data:  # older files and `lockstep run` say nothing
        raise CheckpointError(
            f"checkpoint {path} was written while training on other samples or labels (their hash was {there}, and is "
            f"{data} now); resume with the same data, or remove the file"
        )
    ranks = job.workers if job.model_parallel == "head" else job.pipeline_ranks
    parts = {"workers": job.replicas, "ranks": ranks, "shards": job.shards}
    if job.hosts == 1:  # else only the ranks know how they are spread over the nodes
        parts["slices"] = job.replicas
    _check(path, content, parts, layout, optimiser)


def _check(
    path: str, content: dict[str, Any], parts: Mapping[str, int], layout: TensorLayout | None,
    optimiser: OptimiserFactory | None,
) -> None:  # fmt: skip
    """Raises CheckpointError with the first difference between what is stored and what is to go on from it."""
    for name, count in content["parts"].items():
        if parts.get(name, count) != count:
            holds, fix = (text.format(count) for text in _PARTS[name])
            raise CheckpointError(
                f"checkpoint {path}: this checkpoint holds {holds}; resume it with {fix}, not {parts[name]}"
            )
    if layout is not None and (other := difference([Entry(*entry) for entry in content["model"]], layout.entries)):
        there, here = (_trained_numbers(entries) for entries in (content["model"], layout.entries))
        raise CheckpointError(
            f"checkpoint {path} holds {there} parameters, the model has {here}; it was written for another model: "
            f"{other}; give the model that it was written for, or remove the file"
        )
    if optimiser is not None:
        _check_optimiser(path, content["optimiser"], _settings(optimiser))


def _trained_numbers(entries: Sequence[Any]) -> int:
    return sum(math.prod(shape) for _, kind, shape, _ in entries if kind == "trained")


def _settings(make: OptimiserFactory) -> dict[str, str]:
    """The class of the optimisers that `make` makes, and their settings as text."""
    optimiser = make([nn.Parameter(torch.zeros(1))])
    group = {name: value for name, value in optimiser.param_groups[0].items() if name not in _HOW_COMPUTED}
    kind = type(optimiser)
    return {"class": f"{kind.__module__}.{kind.__qualname__}"} | {name: repr(value) for name, value in group.items()}


def _check_optimiser(path: str, there: dict[str, str], here: dict[str, str]) -> None:
    # Another version of torch may know more settings, and an optimiser's own defaults keep their meaning then.
    for name in sorted(there.keys() & here.keys()) if there["class"] == here["class"] else ["class"]:
        if there[name] != here[name]:
            raise CheckpointError(
                f"checkpoint {path} was written with an optimiser of {name}={there[name]}, this run's has "
                f"{name}={here[name]}; resume with the same optimiser or remove the file"
            )


def load(path: str, job: Job, replica: Replica, sync: Sync) -> list[dict[str, float | str]]:
    """Restore replica and sync from the checkpoint. Returns the rows of its epochs. Raises CheckpointError."""
    content = read_for(path, job)
    parts = sync.parts_of_state() | ({} if replica.sharers is None else {"ranks": replica.sharers.size})
    _check(path, content, parts, replica.layout, sync.make_optimiser)
    try:
        parameters, buffers = replica.part_of(content["parameters"]), replica.buffers_of(content["buffers"])
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error
    sync.group.barrier()  # parameters may be in shared memory, which must be written completely before any rank trains
    replica.parameters.copy_(parameters)
    replica.buffers.copy_(buffers)
    replica.take_others(replica.others_of(content["others"]))
    state = content["sync"]
    try:
        if replica.sharers is not None:
            state = of_worker(state["parts"], replica.sharers, "a part of the model for each")
        sync.load_state_dict(state)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        what = "" if isinstance(error, ValueError) else f"its state is not that of {job.sync}; remove the file: "
        raise CheckpointError(f"checkpoint {path}: {what}{error}") from error
    sync.group.barrier()
    return list(content.get("epochs", []))  # older files have none


def cuts_of(path: str, job: Job) -> list[int] | None:
    """The cuts of the run that `job` resumes, or None if its model was not cut. Raises CheckpointError."""
    cuts: list[int] | None = read_for(path, job).get("cuts")
    return cuts


def average_buffers(replica: Replica, group: Group) -> None:
    """Average the running statistics of normalization layers, which differ between ranks, and let rank 0 decide on
    what can't be averaged. Collective."""
    replica.adopt_buffers()
    if replica.buffers.numel() and group.size > 1:
        group.allreduce(replica.buffers)
        replica.buffers /= group.size
    replica.agree_on_others(group)
