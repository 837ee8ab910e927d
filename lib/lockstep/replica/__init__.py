"""One worker's copy of the model, behind one type."""

from lockstep.replica.base import Batch, Replica
from lockstep.replica.bfloat16 import Bfloat16Replica, bfloat16_kind
from lockstep.replica.torch import TorchReplica

__all__ = ["Batch", "Bfloat16Replica", "Replica", "TorchReplica", "bfloat16_kind"]
