"""Algorithm 1 of ConvLSTM-D-Accel: workers send weights, the master combines them, and all continue from the result.

    worker 1 | k steps | send weights ---> master | receive from 1, 2, ... in rank order, blocking
    worker 2 | k steps | send weights --->        | OptWeight = Func_OptWeight(all of them)
             | <---------- broadcast OptWeight -- |
             | k steps | ...

The paper does not say what Func_OptWeight is. Built here: `mean`, and `best`, the weights of the worker whose mean
training loss since the last exchange was lowest. The optimiser and its momentum stay with each worker.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.policies import MakePolicy, Policy, WaitForAll
from lockstep.engine.replica import Replica
from lockstep.engine.sync.base import StepCost, of_worker
from lockstep.engine.sync.client import Client, serve_from
from lockstep.engine.sync.plan import OptimiserFactory, Plan
from lockstep.engine.sync.private import PrivateSync
from lockstep.engine.sync.shard import WeightShard, best_worker


class WeightServerSync(PrivateSync):
    """`servers` and `shards` are those of `ParameterServerSync`, `exchange_every` is the paper's k.

    `opt_weight`: the mean of all workers' weights goes on (mean), or the weights of the lowest loss (best).
    """

    def __init__(
        self,
        plan: Plan,
        optimiser: OptimiserFactory,
        policy: MakePolicy = WaitForAll,
        servers: int = 0,
        shards: int = 1,
        opt_weight: str = "mean",
        exchange_every: int = 1,
    ) -> None:
        super().__init__(plan, optimiser, exchange_every)
        self.policy, self.servers, self.shards, self.opt_weight = policy, servers, shards, opt_weight
        self._loss = self._weight = 0.0  # since the last exchange

    def attach(self, replica: Replica, group: Group) -> None:
        self.client = Client(group, self.servers, self.shards)
        super().attach(replica, self.client.workers)
        self.client.start(replica.parameters, self._shard, self._policy_for)

    def attach_server(self, group: Group) -> None:
        self.group, self.owner = serve_from(group, self._shard, self._policy_for, self.servers)

    def _policy_for(self, workers: int) -> Policy:
        return self.policy(self.plan.setting(workers))

    def _shard(self, parameters: Tensor) -> WeightShard:
        return WeightShard(parameters, self.opt_weight)

    def observe(self, loss: float, weight: float) -> None:
        self._loss += loss
        self._weight += weight

    @property
    def loss(self) -> float:
        """The mean loss over this worker's samples since the last exchange; infinite if it had none."""
        return self._loss / self._weight if self._weight else float("inf")

    def mix(self) -> StepCost:
        parameters = self.replica.parameters
        cost = self.client.exchange(lambda place: parameters[place], self.done, self.loss)
        self._loss = self._weight = 0.0
        return cost

    def serve(self) -> tuple[int, StepCost] | None:
        cost = self.owner.update()
        return None if cost is None else (self.owner.done - 1, cost)

    def model(self) -> Tensor:
        """The result that an exchange would have now."""
        if self.agreed or self.opt_weight == "mean":
            return super().model()
        best = best_worker(dict(enumerate(allgather_object(self.group, self.loss))))
        chosen = self.replica.parameters.clone()
        self.group.broadcast(chosen, best)
        return chosen

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["losses"] = allgather_object(self.group, [self._loss, self._weight])
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._loss, self._weight = of_worker(state["losses"], self.group, "the losses")

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()
