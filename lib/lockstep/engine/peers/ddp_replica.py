"""A model wrapped by PyTorch's DistributedDataParallel, as one of this library's replicas."""

from __future__ import annotations

import numpy as np
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.replica import TorchReplica
from lockstep.engine.replica.base import Ready
from lockstep.engine.training.replicas import torch_replica
from lockstep.engine.usecases import UseCase


class DDPReplica(TorchReplica):
    """A replica whose gradients are global already; `local` is its sync."""

    def distribute(self, group: Group) -> None:
        """Wrap the model. Collective. DDP broadcasts rank 0's parameters and buffers."""
        self.size, self.bare = group.size, self.model
        self.model = DistributedDataParallel(
            self.model, process_group=group.torch_group(), gradient_as_bucket_view=True
        )

    def predict(self, batch: Batch) -> Tensor:
        # Without DDP's wrapper, which broadcasts buffers in every forward pass: ranks may have different numbers of
        # batches.
        wrapped, self.model = self.model, self.bare
        try:
            return super().predict(batch)
        finally:
            self.model = wrapped

    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        if not len(batch):
            raise ValueError(
                "DDP can't train on an empty share, since every rank must take part in its backward pass; "
                "give a global batch and a number of images of at least the number of workers"
            )
        # DDP divides the sum by the number of ranks, but the samples' weights have done so already.
        return super().backward(batch, weights * np.float32(self.size), on_ready) / self.size


def ddp_replica(case: UseCase, job: Job, group: Group) -> DDPReplica:
    """The use case's model, wrapped."""
    replica = torch_replica(case, job, group, DDPReplica)
    assert isinstance(replica, DDPReplica)
    replica.distribute(group)
    return replica
