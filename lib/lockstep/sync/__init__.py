"""HOW replicas agree. A new one is a file here and a line in `SYNCS`."""

from lockstep.sync.allreduce import AllreduceSync
from lockstep.sync.base import Plan, Share, StepCost, Sync
from lockstep.sync.local import LocalSync
from lockstep.sync.shared_memory import SharedMemorySync

SYNCS: dict[str, type[Sync]] = {
    "local": LocalSync,
    "allreduce": AllreduceSync,
    "shared_memory": SharedMemorySync,
}

__all__ = ["SYNCS", "Plan", "Share", "StepCost", "Sync"]
