"""The schedules, as torch offers them: in which order a rank works on micro-batches. Two ranks, four micro-batches:

    naive              0: F . . B      1: . F B .                 the whole batch; one rank works at a time
    gpipe              0: 0 1 2 3 . . . . 0 1 2 3                 all forward, then all backward; holds 4 micro-batches
                       1: . 0 1 2 3 0 1 2 3 . . .
    1f1b               0: 0 1 . 0 2 1 3 2 . 3                     one forward, one backward in turn; holds 2
    interleaved_1f1b   several stages per rank, in turn           a shorter way in and out, more messages
    zero_bubble        the backward pass in two halves            the weights' half, for which nobody waits, fills gaps
    zero_bubble_v      the same, and stages there and back        who ends the forward pass begins the backward pass

GPipe: Huang et al. 2019. 1F1B: Narayanan et al. 2019 (PipeDream); interleaved: 2021 (Megatron-LM). Zero bubble: Qi et
al. 2023 (arXiv:2401.10241).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from lockstep.engine.replica.pipeline.stage import TimedStage

SINGLE: dict[str, Any] = {"naive": ScheduleGPipe, "gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
"""With one stage on each rank."""
MULTI: dict[str, Any] = {
    "interleaved_1f1b": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleInterleavedZeroBubble,
    "zero_bubble_v": ScheduleZBVZeroBubble,
}


def make_schedule(
    name: str, stages: list[TimedStage], micro_batches: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> Any:
    """torch's schedule of that name over this rank's `stages`. Gradients are sums: our losses are weighted already."""
    options = {"loss_fn": loss, "scale_grads": False}
    if name in SINGLE:
        return SINGLE[name](stages[0], micro_batches, **options)
    return MULTI[name](stages, micro_batches, **options)
