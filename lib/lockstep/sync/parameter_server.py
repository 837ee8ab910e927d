"""Workers send gradients, servers sum them, update, and send parameters back.

    worker 0 --- gradient ---> |        |                     ConvLSTM-D-Accel 3, steps 1-4 of the parameter server
    worker 1 --- gradient ---> | server | sum, update         (Single-to-Multi's Figure 1: "each node exchanges MPI
    worker 2 --- gradient ---> |        |                      messages to update the gradient")
    all      <-- parameters -- |        |

The other reading, Algorithm 1, in which workers send weights, is in `lockstep.sync.weight_server`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.groups import Group
from lockstep.job import Job
from lockstep.policies import POLICIES, Policy, WaitForAll
from lockstep.replica import Replica
from lockstep.sync.base import OptimiserFactory, Plan, StepCost, Sync
from lockstep.sync.client import Client, serve_from
from lockstep.sync.codecs import Codec, codec_of
from lockstep.sync.shard import GradientShard
from lockstep.sync.weight_server import WeightServerSync


class ParameterServerSync(Sync):
    """`servers`: ranks without a replica, the last ones; 0: the first `shards` workers look after a slice each.

    The optimiser and its state are the owners'; a worker has none. `codec` shortens gradients, not parameters.
    """

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
        policy = POLICIES[job.policy]
        if job.opt_weight != "none":
            return WeightServerSync(
                plan, optimiser, policy, job.servers, job.shards, job.opt_weight, job.exchange_every
            )
        return cls(plan, optimiser, policy, job.servers, job.shards, codec_of(job))

    def __init__(
        self,
        plan: Plan,
        optimiser: OptimiserFactory,
        policy: type[Policy] = WaitForAll,
        servers: int = 0,
        shards: int = 1,
        codec: Codec | None = None,
    ) -> None:
        super().__init__(plan, optimiser)
        self.policy, self.servers, self.shards, self.codec = policy, servers, shards, codec

    def attach(self, replica: Replica, group: Group) -> None:
        self._check_all_common(replica)
        self.client = Client(group, self.servers, self.shards)
        self.replica, self.group = replica, self.client.workers
        self.group.broadcast(replica.parameters)
        if replica.buffers.numel():
            self.group.broadcast(replica.buffers)
        self.gradients = torch.zeros_like(replica.parameters)
        replica.rebind(gradients=self.gradients)
        replica.clear_gradients()
        if self.codec is not None:
            self.codec.attach(replica.length, self.group.rank)
        self.client.start(replica.parameters, self._shard, self.policy)

    def attach_server(self, group: Group) -> None:
        self.group, self.owner = serve_from(group, self._shard, self.policy, self.servers)

    def _shard(self, parameters: Tensor) -> GradientShard:
        return GradientShard(parameters, self.make_optimiser, self.codec)

    def step(self) -> StepCost:
        cost = self.client.exchange(self._message, self.done + 1)
        self.replica.clear_gradients()
        self.done += 1
        return cost

    def _message(self, place: slice) -> Tensor:
        gradient = self.gradients[place]
        return gradient if self.codec is None else self.codec.encode(gradient, place.start, self.done)

    def serve(self) -> tuple[int, StepCost] | None:
        cost = self.owner.update()
        return None if cost is None else (self.owner.done - 1, cost)

    def optimiser_state(self) -> Any:
        return self.client.states()

    def load_optimiser_state(self, state: Any) -> None:
        self.client.load(state)

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()
