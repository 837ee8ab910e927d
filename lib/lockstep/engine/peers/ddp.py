"""PyTorch's DistributedDataParallel, behind the same call and under the same protocol.

DDP owns the gradient exchange: it sums inside the backward pass, so its exchange is part of `compute_seconds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.engine.declared import Equality, Values
from lockstep.engine.peers.base import Peer
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM

if TYPE_CHECKING:
    from lockstep.engine.groups import Group
    from lockstep.engine.job import Job
    from lockstep.engine.training.loop import Site, Trace


class DDP(Peer):
    """A worker per process. The cost of an exchange can't be measured, because it overlaps the backward pass."""

    does = "PyTorch's DistributedDataParallel: gradients are summed in buckets while the backward pass still runs"
    label = "DDP"
    preserves = "equal, whatever the optimiser"
    needs_processes = True
    options = (SYNC_BATCH_NORM,)

    @classmethod
    def equality(cls, values: Values) -> Equality:
        return Equality("exact", "every step takes the sum of all gradients")

    @staticmethod
    def run(job: Job, group: Group, site: Site | None = None) -> Trace:
        """`run_job` with DDP instead of a sync of ours."""
        from lockstep.engine.peers.ddp_replica import ddp_replica
        from lockstep.engine.training.loop import run_job

        return run_job(job.with_(sync="local"), group, site, make_replica=ddp_replica)
