"""The owner of a shard of the parameters: what it receives, and when it answers whom.

worker                                    owner: a server, or a worker as well
  | -- head: push, step, loss -----------> |   policy.on(Arrived(...))
  | -- gradient or weights --------------> |   received when the policy says that it is applied
  | <------------------ new parameters --- |   sent when the policy says that the worker is released
  | -- head: ask / load / stop ----------> |   from worker 0, between steps

Here every worker takes its shares of the plan, whose weights its gradient carries already: of a policy's decisions this
server follows who is dropped, applied and released, and neither the work nor the weights.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups import ANY, Group, GroupTimeout
from lockstep.engine.options import JobError
from lockstep.engine.policies import Arrived, Contribution, Decision, Policy, Work
from lockstep.engine.sync.base import StepCost
from lockstep.engine.sync.shard import Shard

# Tags, and the first number of a head.
HEAD, PUSHED, PULLED, STATE, START = "ps head", "ps push", "ps pull", "ps state", "ps start"
PUSH, ASK, LOAD, STOP = range(4)


def head(kind: int, done: int = 0, loss: float = 0.0) -> Tensor:
    """The header of a message, float64 [3]: the kind of message, the worker's completed steps, and its loss."""
    return torch.tensor([kind, done, loss], dtype=torch.float64)


def pack(value: Any) -> Tensor:
    """A picklable value as uint8 [bytes]."""
    return torch.from_numpy(np.frombuffer(pickle.dumps(value), dtype=np.uint8).copy())


def unpack(message: Tensor) -> Any:
    """The value that a rank of this group has packed with `pack`."""
    return pickle.loads(message.numpy().tobytes())


class Owner:
    """Serves `shard`, of which there are as many as `owners`, to ranks 0 ... policy.workers-1 of `group`, as `policy`
    decides. Raises JobError as `check_owner` does."""

    def __init__(self, group: Group, shard: Shard, policy: Policy, owners: int = 1) -> None:
        check_owner(shard, policy, owners)
        self.group, self.shard, self.policy = group, shard, policy
        self.done = 0  # completed steps of the worker that arrived last
        self._updates = 0
        self._seen = [0] * policy.workers  # for each worker, how many updates its parameters include
        self._losses: dict[int, float] = {}
        self._turn = 0
        self._tasks = [0] * policy.workers
        self._work: dict[int, Work] = dict(policy.begin(time.monotonic()).release)

    def update(self, own: Tensor | None = None) -> StepCost | None:
        """Serve until one update has been made; None when worker 0 says that training has ended.

        `own`: the contribution of this rank itself, if it is a worker too; only the header of it is sent.
        """
        cost = StepCost()
        while True:
            self.group.enter("wait")
            start = time.perf_counter()
            decision = self._decide()
            cost.wait_seconds += time.perf_counter() - start
            if decision is None:
                return None
            self._act(decision, own, cost)
            if decision.apply:
                return cost

    def _decide(self) -> Decision | None:
        """The policy's decision on the next event; None at the end of training."""
        while True:
            wake = self.policy.wake_at()
            left = None if wake is None else max(0.0, wake - time.monotonic())
            try:
                # Algorithm 1: `for l in 1 to no. of nodes: comm.recv(source=l)`, blocking, in rank order.
                worker, message = self.group.receive(self._turn if self.shard.in_rank_order else ANY, HEAD, left)
            except GroupTimeout:
                return self.policy.woke(time.monotonic())
            kind, done, loss = message.tolist()
            if kind == STOP:
                return None
            if kind == PUSH:
                self.done, self._losses[worker] = int(done), loss
                self._turn = (worker + 1) % self.policy.workers
                return self._arrived(worker)
            self._command(int(kind))

    def _arrived(self, worker: int) -> Decision:
        task, now = self._tasks[worker], time.monotonic()
        self._tasks[worker] += 1
        samples = self._work[worker].samples if worker in self._work else 0
        contribution = Contribution(worker, task, self._seen[worker], samples, now, now, self._losses[worker])
        return self.policy.on(Arrived(contribution), now)

    def _act(self, decision: Decision, own: Tensor | None, cost: StepCost) -> None:
        def fetch(worker: int) -> Tensor:
            return self.group.receive(worker, PUSHED)[1] if own is None or worker != self.group.rank else own

        self.group.enter("exchange")
        start = time.perf_counter()
        for worker, _ in decision.drop:
            fetch(worker)
        updating = 0.0
        if decision.apply:
            update = self.shard.take(tuple(use.worker for use in decision.apply), fetch, self._losses)
            self.group.enter("update")
            before = time.perf_counter()
            update()
            self._updates += 1
            updating = time.perf_counter() - before
            self.group.enter("exchange")
        for worker, work in decision.release:
            self._work[worker] = work
            self._seen[worker] = self._updates
            if worker != self.group.rank:
                self.group.send(self.shard.parameters, worker, PULLED)
                cost.bytes_sent += 4.0 * self.shard.parameters.numel()
        cost.update_seconds += updating
        cost.exchange_seconds += time.perf_counter() - start - updating

    def _command(self, kind: int) -> None:
        if kind == ASK:
            self.group.send(pack(self.shard.state()), 0, STATE)
        else:  # LOAD
            self.shard.parameters.copy_(self.group.receive(0, STATE)[1])
            self.shard.load(unpack(self.group.receive(0, STATE)[1]))


def check_owner(shard: Shard, policy: Policy, owners: int) -> None:
    """Raises JobError, with the names, for a policy that needs more than owners of shards do, where several might apply
    different contributions, and where a shard that is received in rank order would wait for whoever is left out."""
    name = type(policy).__name__
    needs = [need for need, asked in vars(policy.needs).items() if asked and need != "one_decider"]
    if needs:
        raise JobError(
            f"{name} needs {', '.join(needs)}, and an owner of a shard follows neither work nor recall; run it by the "
            "server of policies (lockstep.engine.sync.policy_server)"
        )
    if owners > 1 and policy.needs.one_decider:
        raise JobError(f"{name} needs one decider, and shards={owners} have an owner each; give shards=1")
    if shard.in_rank_order and not policy.takes_all:
        raise JobError(
            f"{name} may leave workers out, and {type(shard).__name__} receives in rank order: it would wait for "
            "them for ever; give policy='wait_for_all'"
        )
