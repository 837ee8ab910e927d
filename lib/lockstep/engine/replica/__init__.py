"""One worker's copy of the model, behind one type."""

from lockstep.engine.replica.base import Batch, Replica
from lockstep.engine.replica.bfloat16 import Bfloat16Replica, bfloat16_replica_class
from lockstep.engine.replica.torch import TorchReplica

__all__ = ["Batch", "Bfloat16Replica", "Replica", "TorchReplica", "bfloat16_replica_class"]
