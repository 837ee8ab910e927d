"""Parameters stand once per node; every rank sums and updates its own slice of them in place.

                rank 0's slice   rank 1's slice
    gradients 0 |====== a ======|====== b ======|      1. barrier: all gradients stand
    gradients 1 |====== c ======|====== d ======|      2. rank 0: a += c, updates its slice of the parameters
    parameters  |--- rank 0 ----|--- rank 1 ----|         rank 1: d += b, updates its own
                                                       3. barrier: the parameters are whole again

Each rank reads every gradient of its slice once and writes its slice once: nothing is copied, no
gradient is sent, and the optimiser's work and memory are divided by the number of ranks.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from lockstep.groups import Group, GroupError, allgather_object
from lockstep.replica import Replica
from lockstep.sync.base import StepCost, Sync


class SharedMemorySync(Sync):
    """Synchronous data parallelism for ranks of one node."""

    def attach(self, replica: Replica, group: Group) -> None:
        if group.node.size != group.size:
            raise GroupError(f"sync='shared_memory' needs all {group.size} ranks on one node, {group.node.size} are")
        if replica.parameters.device.type != "cpu":
            raise GroupError(
                f"sync='shared_memory' shares the CPU's memory, and this replica is on {replica.parameters.device}; "
                "use sync='allreduce' or 'ddp' for a GPU per process"
            )
        self.replica, self.group = replica, group
        length = replica.length
        parameters = group.share(length)[0]
        if group.rank == 0:
            replica.rebind(parameters=parameters)
        group.barrier()
        if group.rank != 0:
            replica.rebind(parameters=parameters, adopt=True)
        if replica.buffers.numel():
            group.broadcast(replica.buffers)
        gradients = group.share(length)
        replica.rebind(gradients=gradients[group.rank])
        own = slice(length * group.rank // group.size, length * (group.rank + 1) // group.size)
        self._sum = gradients[group.rank][own]
        self._addends = [g[own] for r, g in enumerate(gradients) if r != group.rank]
        leaf = torch.nn.Parameter(parameters[own])
        leaf.grad = self._sum
        self.optimiser = self.make_optimiser([leaf])
        replica.clear_gradients()

    def step(self) -> StepCost:
        self.group.enter("wait")
        start = time.perf_counter()
        self.group.barrier()
        self.group.enter("exchange")
        met = time.perf_counter()
        for addend in self._addends:
            self._sum += addend
        self.group.enter("update")
        summed = time.perf_counter()
        self.optimiser.step()
        self.replica.clear_gradients()
        self.group.enter("wait")
        updated = time.perf_counter()
        self.group.barrier()
        waited = (met - start) + (time.perf_counter() - updated)
        return StepCost(waited, summed - met, updated - summed, 4.0 * self._sum.numel() * len(self._addends))

    def optimiser_state(self) -> Any:
        return allgather_object(self.group, self.optimiser.state_dict())

    def load_optimiser_state(self, state: Any) -> None:
        if len(state) != self.group.size:
            raise ValueError(
                f"this checkpoint holds the optimiser's state in {len(state)} slices, one per worker; "
                f"resume it with workers={len(state)}, not {self.group.size}"
            )
        self.optimiser.load_state_dict(state[self.group.rank])
