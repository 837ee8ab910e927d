"""A worker's connection to the owners of all shards.

    servers=2        worker 0  worker 1  worker 2 | server 3: first half   server 4: second half
    shards=3         worker 0: first third   worker 1: second third   worker 2: last third

With dedicated servers, each of the W workers sends the whole gradient and receives the whole model once per exchange,
and a server handles W times its part of both. With a shard on every worker, all ranks send and receive equally much.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from lockstep.engine.groups import Group, GroupError, allgather_object
from lockstep.engine.policies import Policy
from lockstep.engine.sync.base import StepCost, cut
from lockstep.engine.sync.owner import (
    ASK,
    HEAD,
    LOAD,
    PULLED,
    PUSH,
    PUSHED,
    START,
    STATE,
    STOP,
    Owner,
    head,
    pack,
    unpack,
)
from lockstep.engine.sync.shard import Shard

MakeShard = Callable[[Tensor], Shard]
PolicyFor = Callable[[int], Policy]
"""The policy of a server of so many workers."""


class Client:
    """Made on all workers at once, while the servers call `serve_from`. `workers` is the group of the workers alone.

    Servers are the last ranks, so that worker number r is rank r of both groups. (In the papers the server is rank 0.)
    """

    def __init__(self, group: Group, servers: int, shards: int) -> None:
        self.group, self.servers = group, servers
        self.workers = group.split(0) if servers else group
        first = group.size - servers
        if first < 1 or shards > (servers or group.size):
            raise GroupError(f"{shards} shards on {servers} servers in a group of {group.size}: give more ranks")
        self.owners = list(range(first, group.size)) if servers else list(range(shards))
        self.owner: Owner | None = None  # if this worker owns a shard itself

    def start(self, parameters: Tensor, make_shard: MakeShard, policy: PolicyFor) -> None:
        """Assign the slices of `parameters`, float32 [length], which are the same on all workers, to their owners."""
        self.parameters = parameters
        self.slices = dict(zip(self.owners, cut(parameters.numel(), len(self.owners)), strict=True))
        if self.servers and self.workers.rank == 0:
            for rank, place in self.slices.items():
                self.group.send(parameters[place], rank, START)
        if self.group.rank in self.slices:
            own = parameters[self.slices[self.group.rank]]
            self.owner = Owner(self.group, make_shard(own), policy(self.workers.size), len(self.owners))

    def exchange(self, encode: Callable[[slice], Tensor], done: int, loss: float = 0.0) -> StepCost:
        """Send `encode(slice)` to each slice's owner, serve the own shard, and receive the new parameters. Collective.

        `wait_seconds` lasts until the new parameters arrive. If the servers are other ranks, it includes their work,
        which a worker can't distinguish from waiting for the other workers.
        """
        self.group.enter("exchange")
        start = time.perf_counter()
        cost, own, mine = StepCost(), None, self.group.rank
        # Each worker starts with a different owner, so that they do not all send to the first one at once.
        turned = sorted(self.slices, key=lambda rank: (rank - mine) % self.group.size)
        for rank in turned:
            message = encode(self.slices[rank])
            note = head(PUSH, done, loss)
            self.group.send(note, rank, HEAD)
            if rank == mine:
                own = message
            else:
                self.group.send(message, rank, PUSHED)
                cost.bytes_sent += note.numel() * note.element_size() + message.numel() * message.element_size()
        cost.exchange_seconds = time.perf_counter() - start
        if self.owner is not None:
            _add(cost, self.owner.update(own))
        for rank in turned:
            if rank != mine:
                self._pull(rank, cost)
        return cost

    def _pull(self, rank: int, cost: StepCost) -> None:
        self.group.enter("wait")
        start = time.perf_counter()
        received = self.group.receive(rank, PULLED)[1]
        self.group.enter("exchange")
        came = time.perf_counter()
        self.parameters[self.slices[rank]].copy_(received)
        cost.wait_seconds += came - start
        cost.exchange_seconds += time.perf_counter() - came

    def states(self) -> list[Any]:
        """The state of every shard, on every worker. Collective among workers; between steps."""
        held: dict[int, Any] = {}
        if self.owner is not None:
            held[self.group.rank] = self.owner.shard.state()
        if self.servers and self.workers.rank == 0:
            for rank in self.owners:
                self.group.send(head(ASK), rank, HEAD)
            held = {rank: unpack(self.group.receive(rank, STATE)[1]) for rank in self.owners}
        gathered = {rank: state for part in allgather_object(self.workers, held) for rank, state in part.items()}
        return [gathered[rank] for rank in self.owners]

    def load(self, states: list[Any]) -> None:
        """Restore every shard from `states` and this worker's parameters. Raises ValueError if the shards differ."""
        if len(states) != len(self.owners):
            raise ValueError(
                f"this checkpoint holds the state of {len(states)} shards; resume it with shards={len(states)}, "
                f"not {len(self.owners)}"
            )
        for rank, state in zip(self.owners, states, strict=True):
            if self.servers and self.workers.rank == 0:
                self.group.send(head(LOAD), rank, HEAD)
                self.group.send(self.parameters[self.slices[rank]], rank, STATE)
                self.group.send(pack(state), rank, STATE)
            elif self.owner is not None and rank == self.group.rank:
                self.owner.shard.load(state)

    def close(self) -> None:
        """Tell the servers that training has ended."""
        if self.servers and self.workers.rank == 0:
            for rank in self.owners:
                with contextlib.suppress(GroupError):  # the server may have ended first
                    self.group.send(head(STOP), rank, HEAD)


def serve_from(group: Group, make_shard: MakeShard, policy: PolicyFor, servers: int) -> tuple[Group, Owner]:
    """A server's counterpart to `Client`: the group of the servers, and this server's owner."""
    among = group.split(1)
    parameters = group.receive(0, START)[1].clone()
    return among, Owner(group, make_shard(parameters), policy(group.size - servers), servers)


def _add(cost: StepCost, more: StepCost | None) -> None:
    if more is not None:
        cost.wait_seconds += more.wait_seconds
        cost.exchange_seconds += more.exchange_seconds
        cost.update_seconds += more.update_seconds
        cost.bytes_sent += more.bytes_sent
