"""Model parallelism in the training loop: making a rank's part of a model, and gathering the tables of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.replica import Replica
from lockstep.engine.replica.split_head import split_head_replica
from lockstep.engine.sync import Sync
from lockstep.engine.usecases import UseCase

Rows = dict[str, list[dict[str, Any]]]


def make_model_parallel_replica(
    case: UseCase, job: Job, group: Group, image_shape: tuple[int, ...], cuts: list[int] | None = None
) -> Replica:
    """This rank's part of the model, as `job.model_parallel` says. Collective.

    `image_shape`: channels, height, width. `cuts`: those of an earlier run, if this one resumes it. Raises
    ValueError for a model that can't be divided in this way.
    """
    if job.model_parallel == "head":
        return split_head_replica(case, job, group)
    # Imported here, because torch's pipelining is slow to import, and only pipelines need it.
    from lockstep.engine.replica.pipeline.building import build_stages
    from lockstep.engine.replica.pipeline.replica import PipelineReplica

    built, keys = build_stages(case, job, group, image_shape, cuts)
    device = f"cuda:{group.rank % torch.cuda.device_count()}" if job.device == "cuda" else job.device
    return PipelineReplica(job, built, keys, case.loss, device)


def state_bytes(sync: Sync) -> int:
    """The size of the optimizer's state on this rank."""
    optimiser = getattr(sync, "optimiser", None)
    states = optimiser.state.values() if optimiser is not None else ()
    return sum(each.nbytes for state in states for each in state.values() if isinstance(each, Tensor))


def gather_tables(group: Group, rows: Rows, step: dict[str, float]) -> Rows:
    """The rows of all ranks, on every rank; those of `stages` include this rank's times of the last step. Collective.

    The times of actions are relative to the start of the first rank (`time.perf_counter` is one clock on one machine).
    """
    for row in rows.get("stages", []):
        row |= {name: step[name] for name in ("idle_seconds", "update_seconds", "exchange_seconds", "step_seconds")}
    gathered: Rows = {name: [] for name in rows}
    for rank, others in enumerate(allgather_object(group, rows)):
        for name, part in others.items():
            gathered[name] += [{"rank": rank} | row for row in part]
    if actions := gathered.get("actions"):
        began = min(row["start_seconds"] for row in actions)
        for row in actions:
            row["start_seconds"] -= began
    return gathered
