"""The rows that one rank of a pipeline adds to the tables `stages` and `actions` after its last measured step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from lockstep.engine.pipelines.order import KINDS, Action, in_flight
from lockstep.engine.replica.pipeline.building import Built
from lockstep.engine.replica.pipeline.memory import PeakTensorMemory
from lockstep.engine.replica.pipeline.recording import Recorder
from lockstep.engine.replica.pipeline.stage import TimedStage
from lockstep.engine.resident_memory import rss_bytes

Rows = list[dict[str, float | str]]
BACKWARD = KINDS[1:]


class Stages(Protocol):
    """What these rows are made from: the stages that one rank holds, and what was recorded of their last step.

    `PipelineReplica` has all of it. That it need not be imported here keeps the two modules free of a circle.
    """

    built: Built
    stages: Sequence[TimedStage]
    recorder: Recorder
    rise: PeakTensorMemory | None
    images_bytes: int
    parameters: Tensor
    buffers: Tensor

    @property
    def length(self) -> int: ...

    @property
    def bound_gradients(self) -> Tensor | None: ...


def stage_rows(replica: Stages, held_bytes: int) -> Rows:
    """A row per stage of this rank; `held_bytes` of optimiser state are divided among them as parameters are."""
    rows: Rows = []
    actions, rss = replica.recorder.actions, rss_bytes(peak=True)
    held = in_flight(
        {0: [Action(each.stage, each.micro_batch, each.action) for each in actions if each.action in KINDS]}
    )
    for stage in replica.stages:
        index = stage.stage_index
        first, last = replica.built.ends(index)
        count = replica.built.parameter_counts[index]
        own = [each for each in actions if each.stage == index]
        rows.append(
            {
                "replica": replica.built.mesh.replica,
                "stage": index,
                "first_layer": first,
                "last_layer": last,
                "parameters": count,
                "forward_seconds": sum(each.seconds for each in own if each.action == "forward"),
                "backward_seconds": sum(each.seconds for each in own if each.action in BACKWARD),
                "in_flight": held.get(index, 0),
                "parameter_bytes": 2 * 4 * count + held_bytes * count / replica.length,
                "activation_bytes": stage.activation_bytes,
                "working_bytes": _working_bytes(replica, held),
                "peak_bytes": _peak_bytes(replica, held_bytes),
                "rss_bytes": rss,
            }
        )
    return rows


def _peak_bytes(replica: Stages, held_bytes: int) -> float:
    """Tensors of this rank: what stood when the step began, and the most that came on top; nan if not counted."""
    if replica.rise is None:
        return math.nan
    standing = replica.parameters.nbytes + replica.buffers.nbytes + held_bytes + _received_bytes(replica)
    standing += replica.images_bytes
    if replica.bound_gradients is not None:
        standing += replica.bound_gradients.nbytes
    return standing + replica.rise.most_bytes


def _working_bytes(replica: Stages, held: Mapping[int, int]) -> int:
    """The memory besides parameters and activations in flight: receive buffers of all micro-batches, and the temporary
    tensors of one backward pass."""
    inputs = {index: given.nbytes for index, (given, _) in replica.built.shapes.items()}
    standing = _received_bytes(replica) + replica.images_bytes
    standing -= sum(held.get(index, 0) * size for index, size in inputs.items())  # those are activations in flight
    return max(standing, 0) + max(_momentary_bytes(replica, stage) for stage in replica.stages)


def _momentary_bytes(replica: Stages, stage: TimedStage) -> int:
    """The temporary tensors of one micro-batch's backward pass: the gradients of a layer's output and input, of a
    parameter that already has a gradient, and the activations, if they are recomputed."""
    momentary = 2 * max(stage.output_bytes, default=0)
    if len(stage.sample_ids) > 1 or replica.bound_gradients is not None:
        momentary += max(parameter.nbytes for parameter in stage.submod.parameters())
    return momentary + (sum(stage.output_bytes) if stage.submod.recomputed else 0)


def _received_bytes(replica: Stages) -> int:
    """The bytes of the receive buffers, one per micro-batch, which are kept as long as the replica."""
    buffers = [
        getattr(info, "buffer", None)  # the images of the first stage have none
        for stage in replica.stages
        for received in (stage.args_recv_info, stage.grad_recv_info)
        for each in received.values()
        for info in each
    ]
    return sum(buffer.nbytes for buffer in buffers if isinstance(buffer, Tensor))


def action_rows(replica: Stages) -> Rows:
    return [
        {
            "replica": replica.built.mesh.replica,
            "stage": each.stage,
            "micro_batch": each.micro_batch,
            "action": each.action,
            "start_seconds": each.began,
            "seconds": each.seconds,
        }
        for each in sorted(replica.recorder.actions, key=lambda each: each.began)
    ]
