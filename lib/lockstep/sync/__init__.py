"""HOW replicas agree. A new one is a file here and a line in `SYNCS`."""

from lockstep.job import Job
from lockstep.sync.allreduce import AllreduceSync
from lockstep.sync.base import OptimiserFactory, Plan, Share, StepCost, Sync
from lockstep.sync.gossip import GossipSync
from lockstep.sync.local import LocalSync
from lockstep.sync.local_sgd import LocalSgdSync
from lockstep.sync.parameter_server import ParameterServerSync
from lockstep.sync.shared_memory import SharedMemorySync

SYNCS: dict[str, type[Sync]] = {
    "local": LocalSync,
    "allreduce": AllreduceSync,
    "shared_memory": SharedMemorySync,
    "local_sgd": LocalSgdSync,
    "parameter_server": ParameterServerSync,
    "gossip": GossipSync,
}


def make_sync(job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
    """The sync that `job.sync` names, with the options that `job` gives."""
    return SYNCS[job.sync].of(job, plan, optimiser)


__all__ = ["SYNCS", "Plan", "Share", "StepCost", "Sync", "make_sync"]
