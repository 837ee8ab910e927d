"""Parameters are averaged every k steps, or once per epoch.

SparkNet (Moritz et al. 2015, named in Single-to-Multi, section 2) calls the number of local steps tau; with one
exchange per epoch it is the epoch-wise synchronisation of ConvLSTM-D-Accel's Table 5, without Algorithm 1's server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lockstep.engine.declared import Chain, Equality, Values, doubling
from lockstep.engine.sync.base import StepCost
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM
from lockstep.engine.sync.private import EXCHANGE_EVERY, STATE_AVERAGED, PrivateSync, equality_of_averages

if TYPE_CHECKING:
    from lockstep.engine.sync.plan import OptimiserFactory, Plan


class LocalSgdSync(PrivateSync):
    """`state_averaged`: the optimizer's state is averaged together with the parameters, entry by entry.

    Without it each worker keeps its own momentum, which still points in the direction of that worker's samples after
    the parameters have been averaged.
    """

    does = "every worker steps by itself; the mean over their parameters goes on, every k steps or once per epoch"
    label = "local SGD"
    options = (EXCHANGE_EVERY, STATE_AVERAGED, SYNC_BATCH_NORM)
    between_replicas = True
    variants = {
        "local_sgd-state": {"state_averaged": True},
        "local_sgd-every-5": {"exchange_every": 5},
        "local_sgd-epoch": {"exchange_every": 0, "state_averaged": True},
    }

    def __init__(
        self, plan: Plan, optimiser: OptimiserFactory, exchange_every: int = 1, state_averaged: bool = False
    ) -> None:
        super().__init__(plan, optimiser, exchange_every)
        self.state_averaged = state_averaged

    @classmethod
    def equality(cls, values: Values) -> Equality:
        return equality_of_averages(values)

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain | None:
        # It is not known here how many entries the optimizer keeps for each parameter.
        return None if values["state_averaged"] else doubling(parties, message_bytes)

    def mix(self) -> StepCost:
        waited, start, sent = self.meet(), time.perf_counter(), 0.0
        tensors = [self.replica.parameters]
        if self.state_averaged:
            # Step counts are the same everywhere; only tensors with an entry per parameter differ.
            held = [value for state in self.optimiser.state.values() for value in state.values()]
            tensors += [value for value in held if getattr(value, "shape", None) == tensors[0].shape]
        if self.group.size > 1:
            for tensor in tensors:
                self.group.allreduce(tensor)
                tensor /= self.group.size
                sent += 2 * (self.group.size - 1) / self.group.size * tensor.numel() * 4  # a ring's
        return StepCost(waited, time.perf_counter() - start, bytes_sent=sent)
