"""No exchange: one worker, or a replica whose gradients are already summed over all workers (DDP)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lockstep.engine.declared import Chain, Equality, Values
from lockstep.engine.sync.base import StepCost, Sync
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM

if TYPE_CHECKING:
    from lockstep.engine.groups import Group
    from lockstep.engine.replica import Replica


class LocalSync(Sync):
    """The plain optimiser on the replica's own tensors: the sequential baseline."""

    does = "one replica, on one rank or divided among several, agrees with nobody"
    label = "no exchange"
    preserves = "it is sequential training"
    alone = True
    options = (SYNC_BATCH_NORM,)  # that one worker is measured as several are

    @classmethod
    def equality(cls, values: Values) -> Equality:
        return Equality("exact", "one replica")

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain:
        return Chain(0.0, 0.0)

    def attach(self, replica: Replica, group: Group) -> None:
        if group.size > 1:
            self._check_all_common(replica)
        self.replica, self.group = replica, group
        self.optimiser = self.make_optimiser(replica.leaves)
        replica.clear_gradients()

    def step(self) -> StepCost:
        self.group.enter("update")
        start = time.perf_counter()
        self.optimiser.step()
        self.replica.clear_gradients()
        self.done += 1
        return StepCost(update_seconds=time.perf_counter() - start)

    def optimiser_state(self) -> Any:
        return self.optimiser.state_dict()

    def load_optimiser_state(self, state: Any) -> None:
        self.optimiser.load_state_dict(state)
