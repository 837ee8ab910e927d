"""Parameters are averaged every k steps, or once per epoch.

SparkNet (Moritz et al. 2015, named in Single-to-Multi, section 2) calls the number of local steps tau; with one
exchange per epoch it is the epoch-wise synchronisation of ConvLSTM-D-Accel's Table 5, without Algorithm 1's server.
"""

from __future__ import annotations

import time

from torch import Tensor

from lockstep.job import Job
from lockstep.sync.base import OptimiserFactory, Plan, StepCost
from lockstep.sync.private import PrivateSync


class LocalSgdSync(PrivateSync):
    """`state_averaged`: the optimiser's state is averaged with the parameters, entry by entry.

    Without it each worker's momentum stays its own: it goes on in the direction of that worker's samples after the
    parameters have been brought together.
    """

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> LocalSgdSync:
        return cls(plan, optimiser, job.exchange_every, job.state_averaged)

    def __init__(self, plan: Plan, optimiser: OptimiserFactory, every: int = 1, state_averaged: bool = False) -> None:
        super().__init__(plan, optimiser, every)
        self.state_averaged = state_averaged

    def mix(self) -> StepCost:
        waited, start, sent = self.meet(), time.perf_counter(), 0.0
        tensors = [self.replica.parameters]
        if self.state_averaged:
            # Counts of steps are the same everywhere; what has an entry per parameter is not.
            held = [value for state in self.optimiser.state.values() for value in state.values()]
            tensors += [value for value in held if isinstance(value, Tensor) and value.shape == tensors[0].shape]
        if self.group.size > 1:
            for tensor in tensors:
                self.group.allreduce(tensor)
                tensor /= self.group.size
                sent += 2 * (self.group.size - 1) / self.group.size * tensor.numel() * 4  # a ring's
        return StepCost(waited, time.perf_counter() - start, bytes_sent=sent)
