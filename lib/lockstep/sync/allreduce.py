"""Every replica has its own parameters; gradients are summed over all ranks, then everybody updates.

one bucket      backward layer 3, 2, 1 |            sum 1-3 | update
bucket="layer"  backward layer 3, 2, 1 | sum 3, sum 2, sum 1 | update
overlapped      backward layer 3, 2, 1 | sum 1 | update              layer-wise (ConvLSTM-D-Accel, Table 5)
                        sum 3, sum 2 ^
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

from lockstep.groups import Group, GroupError
from lockstep.job import Job
from lockstep.options import bucket_elements
from lockstep.replica import Replica
from lockstep.sync.background import Background
from lockstep.sync.base import OptimiserFactory, Plan, StepCost, Sync
from lockstep.sync.codecs import Codec, codec_of
from lockstep.sync.transports import transport_of


class AllreduceSync(Sync):
    """Synchronous data parallelism over a transport: by default the group's own all-reduce (gloo, memory or MPI).

    `bucket`: gradients are summed whole, layer by layer, or in pieces of a size, the last layer first. `overlap`: a
    piece is summed by another thread as soon as its layers' gradients stand. The pieces and their order are the same
    on every rank, so the result does not depend on timing. `codec`: each rank sends its encoded gradient to
    all others, and all add up the same messages in rank order. Of a replica with parameters of its own
    (`Replica.common`) only the common ones are exchanged, and all are updated.
    """

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> AllreduceSync:
        return cls(plan, optimiser, job.bucket, job.overlap, codec_of(job), job.transport)

    def __init__(
        self,
        plan: Plan,
        optimiser: OptimiserFactory,
        bucket: str = "whole",
        overlap: bool = False,
        codec: Codec | None = None,
        transport: str = "messages",
    ) -> None:
        super().__init__(plan, optimiser)
        self.bucket, self.overlap, self.codec, self.transport = bucket, overlap, codec, transport

    def attach(self, replica: Replica, group: Group) -> None:
        if self.overlap and replica.parameters.device.type != "cpu":
            raise GroupError(f"overlap=True can't follow gradients on {replica.parameters.device}; give overlap=False")
        self.replica, self.group, common = replica, group, replica.common.stop
        group.broadcast(replica.parameters[:common])
        if replica.buffers.numel():
            group.broadcast(replica.buffers)
        self._transport = transport_of(self.transport, group)
        self.gradients = self._transport.buffer(replica.parameters)
        replica.rebind(gradients=self.gradients)
        leaf = torch.nn.Parameter(replica.parameters)
        leaf.grad = self.gradients
        self.optimiser = self.make_optimiser([leaf])
        replica.clear_gradients()
        self.buckets = buckets([part for part in replica.parts if part.stop <= common], common, self.bucket)
        self._missing = [_overlapping(bucket, replica.parts) for bucket in self.buckets]
        self._background = Background()
        if self.codec is not None:
            self.codec.attach(common, group.rank)
        self._begin_step()

    def _begin_step(self) -> None:
        self._next, self._sent = 0, 0.0
        self._ready: set[int] = set()

    def part_ready(self, part: int) -> None:
        if not self.overlap or self.group.size == 1:
            return
        self._ready.add(part)
        while self._next < len(self.buckets) and self._missing[self._next] <= self._ready:
            self._background.submit(functools.partial(self._sum, self.buckets[self._next]))
            self._next += 1

    def step(self) -> StepCost:
        start = met = time.perf_counter()
        if not self.overlap:  # two collectives at once would take each other's messages
            self.group.enter("wait")
            self.group.barrier()
            met = time.perf_counter()
        self.group.enter("exchange")
        self._background.drain()
        for bucket in self.buckets[self._next :]:
            self._sum(bucket)
        self.group.enter("update")
        summed = time.perf_counter()
        self.optimiser.step()
        self.replica.clear_gradients()
        sent = self._sent
        self.done += 1
        self._begin_step()
        return StepCost(met - start, summed - met, time.perf_counter() - summed, sent)

    def _sum(self, bucket: slice) -> None:
        """Sum one piece over all ranks, in place."""
        piece = self.gradients[bucket]
        if self.codec is not None:
            message = self.codec.encode(piece, bucket.start, self.done)
            self._sent += (self.group.size - 1) * message.numel()
            piece.zero_()
            for other in self.group.allgather(message):
                self.codec.add(other, piece)
        elif self.group.size > 1:
            self._sent += self._transport.allreduce(piece)

    def optimiser_state(self) -> Any:
        return self.optimiser.state_dict()

    def load_optimiser_state(self, state: Any) -> None:
        self.optimiser.load_state_dict(state)

    def close(self) -> None:
        self._background.close()
        self._transport.close()


def buckets(parts: list[slice], length: int, bucket: str) -> list[slice]:
    """The pieces of a gradient of `length` numbers, in the order in which a backward pass completes them."""
    size = bucket_elements(bucket)
    if size is not None:
        return [slice(max(0, stop - size), stop) for stop in range(length, 0, -size)]
    return [slice(0, length)] if bucket == "whole" else list(reversed(parts))


def _overlapping(bucket: slice, parts: list[slice]) -> set[int]:
    return {number for number, part in enumerate(parts) if part.start < bucket.stop and bucket.start < part.stop}
