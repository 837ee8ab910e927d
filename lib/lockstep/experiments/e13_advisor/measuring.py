"""What notebook 13's own cells measure: workers that train side by side without exchanging anything, and the model."""

from __future__ import annotations

from typing import Any

import psutil
import torch

from lockstep.advisor.measuring.choices import state_bytes_per_parameter
from lockstep.advisor.measuring.needed_memory import largest_layer_bytes
from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.replica import Replica
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.training.replicas import replica_for
from lockstep.engine.usecases import UseCase, use_case
from lockstep.experiments.e13_advisor.grid import CROWDED
from lockstep.measure.probes.probe import Probe, Probes
from lockstep.records import MEMORY

MODELS = "models"
_FLOAT_BYTES = 4


def run_crowded(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Every rank trains alone with its own share of the batch, all of them at once; collective.

    The last step is left out, for a rank may end it after the others. Table `models`: what the model consists of.
    """
    held = _own_bytes()
    alone = Job.of(
        "sequential", experiment=job.experiment, use_case=job.use_case, data_source=job.data_source, images=job.images,
        per_worker_batch_size=job.per_worker_batch_size, input=job.input, steps=job.steps + 1,
        warmup_steps=job.warmup_steps,
    )  # fmt: skip

    def ready_together(case: UseCase, own: Job, one: Group) -> Replica:
        replica = replica_for(case, own, one)
        group.barrier()
        return replica

    trace = run_job(alone, ThreadGroup.of(1)[0], site, make_replica=ready_together)
    group.barrier()
    tables = {MODELS: [{**sizes_of(use_case(job.use_case)), "empty_process_bytes": held}]}
    return Trace(group.rank, trace.startup_seconds, trace.began, trace.ended, trace.steps[:-1], tables=tables)


def sizes_of(case: UseCase) -> dict[str, Any]:
    """parameters (number), and in bytes gradient, buffer, optimiser (its state) and largest_layer (its parameters).

    Nothing of the model is allocated.
    """
    with torch.device("meta"):
        model = case.model()
    trained = [each for each in model.parameters() if each.requires_grad]
    count = sum(each.numel() for each in trained)
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    return {
        "parameters": count,
        "gradient_bytes": count * _FLOAT_BYTES,
        "buffer_bytes": buffers,
        "optimiser_bytes": round(count * state_bytes_per_parameter(case.optimiser)),
        "largest_layer_bytes": largest_layer_bytes(model),
    }


def _own_bytes() -> int:
    """The memory of this process: its share of pages that it shares with others (PSS), else its resident set."""
    found = psutil.Process().memory_full_info()
    return int(getattr(found, "pss", found.rss))


def probes() -> Probes:
    return {CROWDED: Probe(run_crowded, tables={MODELS: ()}), MEMORY: Probe(run_job, restarts_team=True)}
