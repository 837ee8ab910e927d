"""One copy of the parameters per node; every rank sums and updates its own slice of them in place.

                rank 0's slice   rank 1's slice
    gradients 0 |====== a ======|====== b ======|      1. barrier: all gradients are complete
    gradients 1 |====== c ======|====== d ======|      2. rank 0: a += c, updates its slice of the parameters
    parameters  |--- rank 0 ----|--- rank 1 ----|         rank 1: d += b, updates its own
                                                       3. barrier: the parameters are whole again

Each rank reads every gradient of its slice once and writes its slice once: nothing is copied, no
gradient is sent, and the optimiser's work and memory are divided by the number of ranks.

Between nodes, each rank sums its slice with the ranks that hold the same slice elsewhere, all slices at once:

    node A     rank 0 |-- slice 0 --|   rank 1 |-- slice 1 --|     summed within the node
                          ^ all-reduce             ^ all-reduce    step 2 1/2, between nodes
    node B     rank 2 |-- slice 0 --|   rank 3 |-- slice 1 --|     same sums, so the same update on both

The alternative, a leader per node that all-reduces for the others, moves as many bytes, but only one core of each node
sums and sends while the others wait. Of a gradient of G bytes, two hosts send G each way, the least that a sum on both
can take. An exchange of every rank with every other one (transport="sockets") sends G each way for each rank of a host.
An all-reduce by halving and doubling whose first partners share a host, as MPICH's of two hosts with two ranks, sends
as few bytes as this one between the hosts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lockstep.engine.declared import Chain, Equality, Values, doubling
from lockstep.engine.sync.base import StepCost, Sync, cut, gather, group_error, leaf_of
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM

if TYPE_CHECKING:
    from lockstep.engine.groups import Group
    from lockstep.engine.replica import Replica


class SharedMemorySync(Sync):
    """Synchronous data parallelism with one copy of the parameters per node, for any number of nodes.

    If the nodes have different numbers of ranks, there are as many slices as the smallest node has ranks; the other
    ranks hold an empty slice.
    """

    does = "one copy of the parameters per host; every worker sums and updates its own slice of them in place"
    label = "shared memory"
    preserves = "equal, whatever the optimiser"
    options = (SYNC_BATCH_NORM,)
    between_replicas = True
    hosts_of_threads = True
    one_copy_per_host = True
    meets = True

    @classmethod
    def equality(cls, values: Values) -> Equality:
        return Equality("exact", "every step takes the sum of all gradients")

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain:
        """Within a host nothing is sent: every rank reads its slice of all gradients between two barriers."""
        return doubling(parties, message_bytes) if values["hosts"] > 1 else Chain(2, message_bytes)

    def attach(self, replica: Replica, group: Group) -> None:
        self._check_all_common(replica)
        if replica.parameters.device.type != "cpu":
            raise group_error(
                f"sync='shared_memory' shares the CPU's memory, and this replica is on {replica.parameters.device}; "
                "use sync='allreduce' or 'ddp' for a GPU per process"
            )
        self.replica, self.group, self.node = replica, group, group.node
        self._find_slice(replica.length)
        length, node = replica.length, self.node
        parameters = node.share(length)[0]
        if node.rank == 0:
            replica.rebind(parameters=parameters)
            if self.same_slice is not None:
                self.same_slice.broadcast(parameters)
        node.barrier()
        if node.rank != 0:
            replica.rebind(parameters=parameters, adopt=True)
        if replica.buffers.numel():
            group.broadcast(replica.buffers)
        gradients = node.share(length)
        replica.rebind(gradients=gradients[node.rank])
        self._sum = gradients[node.rank][self.own]
        self._addends = [g[self.own] for r, g in enumerate(gradients) if r != node.rank]
        self.optimiser = self.make_optimiser([leaf_of(parameters[self.own], self._sum)])
        replica.clear_gradients()

    def _find_slice(self, length: int) -> None:
        """Find this rank's slice, and the ranks of other nodes that hold the same slice (None on a single node)."""
        self.same_slice: Group | None = None
        self.slices = self.node.size
        if self.node.size != self.group.size:
            self.slices = min(gather(self.group, self.node.size))
            self.same_slice = self.group.split(self.node.rank)
        holds_one = self.node.rank < self.slices
        self.own = cut(length, self.slices)[self.node.rank] if holds_one else slice(length, length)

    def step(self) -> StepCost:
        self.group.enter("wait")
        start = time.perf_counter()
        self.group.barrier()
        self.group.enter("exchange")
        met = time.perf_counter()
        for addend in self._addends:
            self._sum += addend
        sent = 4.0 * self._sum.numel() * len(self._addends)
        if self.same_slice is not None and self._sum.numel():
            self.same_slice.allreduce(self._sum)
            nodes = self.same_slice.size
            sent += 2 * (nodes - 1) / nodes * self._sum.numel() * 4  # a ring's
        self.group.enter("update")
        summed = time.perf_counter()
        self.optimiser.step()
        self.replica.clear_gradients()
        self.done += 1
        self.group.enter("wait")
        updated = time.perf_counter()
        self.node.barrier()
        waited = (met - start) + (time.perf_counter() - updated)
        return StepCost(waited, summed - met, updated - summed, sent)

    def parts_of_state(self) -> dict[str, int]:
        return {"slices": self.slices}

    def optimiser_state(self) -> Any:
        return gather(self.node, self.optimiser.state_dict())[: self.slices]

    def load_optimiser_state(self, state: Any) -> None:
        if len(state) != self.slices:
            per_node = " per node" if self.same_slice is not None else ""
            raise ValueError(
                f"this checkpoint holds the optimiser's state in {len(state)} slices, one per worker{per_node}; "
                f"resume it with workers={len(state)}{per_node}, not {self.slices}"
            )
        if self.node.rank < self.slices:
            self.optimiser.load_state_dict(state[self.node.rank])
