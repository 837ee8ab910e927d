"""No agreement at all: one worker, or a replica whose gradients are global already (DDP)."""

from __future__ import annotations

import time
from typing import Any

from lockstep.groups import Group
from lockstep.replica import Replica
from lockstep.sync.base import StepCost, Sync


class LocalSync(Sync):
    """The plain optimiser on the replica's own tensors: the sequential baseline."""

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
