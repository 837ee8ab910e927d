"""Every replica has its own parameters; gradients are summed over all ranks, then everybody updates."""

from __future__ import annotations

import time
from typing import Any

import torch

from lockstep.groups import Group
from lockstep.replica import Replica
from lockstep.sync.base import StepCost, Sync


class AllreduceSync(Sync):
    """Synchronous data parallelism over `Group.allreduce`: gloo between processes, memory between threads."""

    def attach(self, replica: Replica, group: Group) -> None:
        self.replica, self.group = replica, group
        group.broadcast(replica.parameters)
        if replica.buffers.numel():
            group.broadcast(replica.buffers)
        self.gradients = torch.zeros_like(replica.parameters)
        replica.rebind(gradients=self.gradients)
        leaf = torch.nn.Parameter(replica.parameters)
        leaf.grad = self.gradients
        self.optimiser = self.make_optimiser([leaf])
        replica.clear_gradients()

    def step(self) -> StepCost:
        self.group.enter("wait")
        start = time.perf_counter()
        self.group.barrier()
        self.group.enter("exchange")
        met = time.perf_counter()
        if self.group.size > 1:
            self.group.allreduce(self.gradients)
        self.group.enter("update")
        summed = time.perf_counter()
        self.optimiser.step()
        self.replica.clear_gradients()
        # A ring all-reduce sends 2 (n-1)/n of the buffer from every rank.
        sent = 2 * (self.group.size - 1) / self.group.size * self.gradients.numel() * 4
        return StepCost(met - start, summed - met, time.perf_counter() - summed, sent)

    def optimiser_state(self) -> Any:
        return self.optimiser.state_dict()

    def load_optimiser_state(self, state: Any) -> None:
        self.optimiser.load_state_dict(state)
