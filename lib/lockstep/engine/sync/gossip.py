"""Each worker exchanges parameters with its two neighbours in a ring, and with nobody else. Not synchronous SGD.

        0 --- 1                 x_i  <-  sum over i and its neighbours j of  w_ij x_j
        |     |                 w_ij  =  1 / (1 + max(degree_i, degree_j))     Metropolis
        3 --- 2                 w_ii  =  1 - sum of the others

The weights are symmetric and sum to 1, so an exchange does not change the mean over the workers, and brings the workers
closer together: it shrinks their distance to the mean at least by the second largest eigenvalue of the weights. Among
up to three workers all are neighbors, and an exchange is a mean over all of them.

Single-to-Multi, section 2: "an algorithm that sends local gradient to its direct neighbors" (Cong and Bhardwaj 2017).
Here parameters are exchanged after each worker's own step, as in decentralised SGD (Lian et al. 2017): exchanged
gradients alone would let the replicas drift apart for ever.
"""

from __future__ import annotations

import time

from lockstep.engine.declared import Chain, Equality, Values
from lockstep.engine.sync.base import StepCost
from lockstep.engine.sync.private import EXCHANGE_EVERY, PrivateSync, equality_of_averages

_ALL_NEIGHBOURS = 3
"""Up to this number of workers in a ring, every two of them are neighbors."""


class GossipSync(PrivateSync):
    """The trained model is the mean over the workers."""

    does = "every worker steps by itself and mixes its parameters with those of its two neighbours in a ring"
    label = "gossip"
    preserves = (
        "equal for up to three workers, who are all neighbours, where parameters are mixed in every step "
        "(exchange_every=1) and the optimiser is linear in the gradient (SGD)"
    )
    options = (EXCHANGE_EVERY,)
    between_replicas = True
    variants = {"gossip-every-3": {"exchange_every": 3}}

    @classmethod
    def equality(cls, values: Values) -> Equality:
        if values["workers"] > _ALL_NEIGHBOURS:
            return Equality("no", "of more than three workers in a ring not all are neighbours")
        return equality_of_averages(values)

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain:
        return Chain(1, min(2, parties - 1) * message_bytes)

    def mix(self) -> StepCost:
        if self.group.size == 1:
            return StepCost()
        waited, start = self.meet(), time.perf_counter()
        own, weights = self.replica.parameters, ring_weights(self.group.rank, self.group.size)
        neighbours = [other for other in weights if other != self.group.rank]
        for other in neighbours:
            self.group.send(own, other, "gossip")
        # In rank order, so that workers that are all neighbors compute the same bits.
        theirs = {other: self.group.receive(other, "gossip")[1].to(own.device) for other in sorted(neighbours)}
        mixed = own.new_zeros(own.shape)
        for other, weight in sorted(weights.items()):
            mixed.add_(theirs.get(other, own), alpha=weight)
        own.copy_(mixed)
        sent = 4.0 * own.numel() * len(neighbours)
        return StepCost(waited, time.perf_counter() - start, bytes_sent=sent)

    @property
    def agreed(self) -> bool:
        """False for rings of four or more workers, where only neighbors have exchanged."""
        return super().agreed and self.group.size <= _ALL_NEIGHBOURS


def ring_weights(rank: int, size: int) -> dict[int, float]:
    """The weight of `rank` itself and of each neighbour, by rank; they sum to 1."""
    neighbours = {(rank - 1) % size, (rank + 1) % size} - {rank}
    each = 1.0 / (1 + len(neighbours))  # all have the same degree in a ring
    return {rank: 1.0 - each * len(neighbours)} | dict.fromkeys(sorted(neighbours), each)
