"""Every replica has its own parameters; gradients are summed over all ranks, then everybody updates.

one bucket      backward layer 3, 2, 1 |            sum 1-3 | update
bucket="layer"  backward layer 3, 2, 1 | sum 3, sum 2, sum 1 | update
overlapped      backward layer 3, 2, 1 | sum 1 | update              layer-wise (ConvLSTM-D-Accel, Table 5)
                        sum 3, sum 2 ^
"""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING, Any

from lockstep.engine import registry
from lockstep.engine.declared import Chain, Equality, Values, doubling
from lockstep.engine.options import JobError, Option
from lockstep.engine.sync.background import Background
from lockstep.engine.sync.base import StepCost, Sync, group_error, leaf_of
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM
from lockstep.engine.sync.compression import COMPRESSION, DENSITY, check_compression, equality_of_sums

if TYPE_CHECKING:
    from lockstep.engine.groups import Group
    from lockstep.engine.job import Job
    from lockstep.engine.replica import Replica
    from lockstep.engine.sync.codecs import Codec
    from lockstep.engine.sync.plan import OptimiserFactory, Plan

_DIRECT = {"sockets": 2, "rma": 7}
"""Transports with a direct connection between every two ranks -> the messages of their longest chain."""


def bucket_elements(bucket: str) -> int | None:
    """float32 numbers in a bucket of that size; None for `whole` and `layer`. Raises JobError."""
    if bucket in ("whole", "layer"):
        return None
    found = re.fullmatch(r"([1-9]\d*)(B|KiB|MiB)", bucket) if isinstance(bucket, str) else None
    if found is None:
        raise JobError(f"bucket={bucket!r} is no size; give 'whole', 'layer' or a size such as '64KiB' or '4MiB'")
    return max(1, int(found[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[found[2]] // 4)


BUCKET = Option(
    "bucket", "whole", "gradients are exchanged in pieces: whole, one per layer, or of a size such as 64KiB or 4MiB",
    parse=bucket_elements, same_on_resume=False,
)  # fmt: skip
OVERLAP = Option(
    "overlap", False, "pieces are exchanged while the backward pass still runs", same_on_resume=False
)  # fmt: skip
TRANSPORT = Option(
    "transport", "messages", "how sums travel: the group's own messages, one-sided MPI (rma), plain TCP (sockets)",
    choices=("messages", "rma", "sockets"), same_on_resume=False,
)  # fmt: skip


class AllreduceSync(Sync):
    """Synchronous data parallelism over a transport: by default the group's own all-reduce (gloo, memory or MPI).

    `bucket`: gradients are summed whole, layer by layer, or in pieces of a size, the last layer first. `overlap`: a
    piece is summed by another thread as soon as the gradients of its layers are complete. The pieces and their order
    are the same on every rank, so the result does not depend on timing. `codec`: each rank sends its encoded gradient
    to all others, and all add up the same messages in rank order. If a replica has parameters of its own besides the
    common ones (`Replica.common`), only the common ones are exchanged, and all of them are updated.
    """

    does = "every worker has its own parameters and steps with the sum of all workers' gradients"
    label = "all-reduce"
    preserves = "equal, whatever the optimiser, unless compression leaves out a part of the gradient"
    options = (BUCKET, OVERLAP, TRANSPORT, COMPRESSION, DENSITY, SYNC_BATCH_NORM)
    between_replicas = True
    sums_common_part = True
    meets = True
    variants = {
        "allreduce-layer-overlap": {"bucket": "layer", "overlap": True},
        "allreduce-100B-overlap": {"bucket": "100B", "overlap": True},
        "allreduce-1KiB": {"bucket": "1KiB"},
        "allreduce-topk-of-all": {"compression": "topk", "bucket": "layer", "overlap": True},
        "allreduce-sockets": {"transport": "sockets"},
        "allreduce-sockets-layer-overlap": {"transport": "sockets", "bucket": "layer", "overlap": True},
        "allreduce-rma": {"transport": "rma"},
        "allreduce-rma-layer": {"transport": "rma", "bucket": "layer"},
        "allreduce-rma-layer-overlap": {"transport": "rma", "bucket": "layer", "overlap": True},
        "topk": {"compression": "topk", "density": 0.1, "bucket": "layer"},
        "terngrad": {"compression": "terngrad", "bucket": "layer", "overlap": True},
    }

    @classmethod
    def check(cls, values: Values) -> None:
        check_compression(values)
        if values["transport"] == "messages":
            return
        given = f"transport={values['transport']!r}"
        if values["compression"] != "none":
            raise JobError(f"compression={values['compression']!r} is sent as messages; give transport='messages'")
        if values["device"] != "cpu":
            raise JobError(f"{given} sends from the CPU's memory; give device='cpu'")
        launcher = registry.launcher_of(values["launcher"])
        if values["transport"] == "rma" and launcher is not None and not launcher.mpi:
            with_mpi = " or ".join(repr(name) for name, each in registry.launchers().items() if each.mpi)
            raise JobError(
                f"{given} is one-sided MPI, which launcher={values['launcher']!r} has not; give {with_mpi}, or "
                "transport='sockets'"
            )

    @classmethod
    def equality(cls, values: Values) -> Equality:
        return equality_of_sums(values, "every step takes the sum of all gradients")

    @classmethod
    def chain(cls, values: Values, parties: int, message_bytes: float) -> Chain | None:
        if values["compression"] != "none":
            return None
        if values["transport"] == "messages":
            return doubling(parties, message_bytes)
        if parties != values["workers"]:  # ranks of a host exchange with those of the other hosts one by one
            return None
        return Chain(_DIRECT[values["transport"]], 2 * (parties - 1) / parties * message_bytes)

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> AllreduceSync:
        from lockstep.engine.sync.codecs import codec_of

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
        from lockstep.engine.sync.transports import transport_of

        if self.overlap and replica.parameters.device.type != "cpu":
            raise group_error(f"overlap=True can't follow gradients on {replica.parameters.device}; give overlap=False")
        self.replica, self.group, common = replica, group, replica.common.stop
        group.broadcast(replica.parameters[:common])
        if replica.buffers.numel():
            group.broadcast(replica.buffers)
        self._transport = transport_of(self.transport, group)
        self.gradients = self._transport.buffer(replica.parameters)
        replica.rebind(gradients=self.gradients)
        self.optimiser = self.make_optimiser([leaf_of(replica.parameters, self.gradients)])
        replica.clear_gradients()
        self.buckets = buckets([layer for layer in replica.layer_slices if layer.stop <= common], common, self.bucket)
        self._missing = [_overlapping(bucket, replica.layer_slices) for bucket in self.buckets]
        self._background = Background()
        if self.codec is not None:
            self.codec.attach(common, group.rank)
        self._begin_step()

    def _begin_step(self) -> None:
        self._next, self._sent = 0, 0.0
        self._ready: set[int] = set()

    def layer_ready(self, layer: int) -> None:
        if not self.overlap or self.group.size == 1:
            return
        self._ready.add(layer)
        while self._next < len(self.buckets) and self._missing[self._next] <= self._ready:
            self._background.submit(functools.partial(self._sum, self.buckets[self._next]))
            self._next += 1

    def step(self) -> StepCost:
        start = met = time.perf_counter()
        if not self.overlap:  # with `overlap`, two collectives at once could take each other's messages
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


def buckets(layers: list[slice], length: int, bucket: str) -> list[slice]:
    """The pieces of a gradient of `length` numbers, in the order in which a backward pass completes them."""
    size = bucket_elements(bucket)
    if size is not None:
        return [slice(max(0, stop - size), stop) for stop in range(length, 0, -size)]
    return [slice(0, length)] if bucket == "whole" else list(reversed(layers))


def _overlapping(bucket: slice, layers: list[slice]) -> set[int]:
    return {number for number, layer in enumerate(layers) if layer.start < bucket.stop and bucket.start < layer.stop}
