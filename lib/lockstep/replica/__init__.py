"""One worker's copy of the model, behind one type."""

from lockstep.replica.base import Batch, Replica
from lockstep.replica.torch import TorchReplica

__all__ = ["Batch", "Replica", "TorchReplica"]
