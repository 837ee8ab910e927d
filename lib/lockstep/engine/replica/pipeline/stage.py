"""A stage of torch's pipelining that records its times and knows the samples of each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from lockstep.engine.replica.dropout import SampleKeys
from lockstep.engine.replica.pipeline.memory import HeldMemory
from lockstep.engine.replica.pipeline.recording import Recorder
from lockstep.engine.replica.torch import formatted


class _Formatted(torch.autograd.Function):
    """[n, channels, height, width] in channels_last; its gradient, which is sent, contiguous."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return formatted(x, torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].contiguous()


class Layers(nn.Module):
    """The layers of one stage, in one precision. `recomputed`: activations are computed again in the backward pass.

    Input and output are contiguous, as gloo requires; in between, tensors have `memory_format`.
    """

    def __init__(
        self,
        layers: nn.Sequential,
        device: torch.device,
        precision: str,
        recomputed: bool,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__()
        self.layers, self.device, self.precision, self.recomputed = layers, device, precision, recomputed
        self.memory_format = memory_format

    def forward(self, x: Tensor) -> Tensor:
        if self.recomputed and self.training and torch.is_grad_enabled():
            # Dropout is keyed by sample, so there is no generator whose state would have to be kept.
            output: Tensor = checkpoint(self._run, x, use_reentrant=False, preserve_rng_state=False)
            return output
        return self._run(x)

    def _run(self, x: Tensor) -> Tensor:
        if self.memory_format is torch.channels_last and x.dim() == 4:
            x = _Formatted.apply(x)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            output: Tensor = self.layers(x).contiguous()
        # torch detaches in place what a stage has sent, which a view does not allow; a linear layer may return one.
        return output.clone() if output._is_view() else output


class TimedStage(PipelineStage):
    """A `PipelineStage` whose passes and messages `recorder` records, with dropout keyed by sample.

    `shapes`: one micro-batch's input and output on the device `meta`, so that torch needs no trial run to find them.
    """

    def __init__(
        self,
        layers: Layers,
        index: int,
        count: int,
        shapes: tuple[Tensor, Tensor],
        group: dist.ProcessGroup,
        recorder: Recorder,
        keys: SampleKeys,
    ) -> None:
        super().__init__(layers, index, count, layers.device, input_args=shapes[0], output_args=shapes[1], group=group)
        self.layers, self.recorder, self.keys = layers.layers, recorder, keys
        self.sample_ids: Sequence[np.ndarray] = ()  # of each micro-batch
        self.activation_bytes = 0  # held for one micro-batch's backward pass; known after the first
        self.output_bytes: list[int] = []  # of each layer, of one micro-batch; known then, too

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        self.keys.sample_ids = self.sample_ids[fwd_chunk_id]
        if not self.activation_bytes:
            return self._measured(fwd_chunk_id, *arguments, **named)
        with self.recorder.timing(self.stage_index, fwd_chunk_id, "forward"):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)

    def _measured(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        held = HeldMemory(self.submod)
        hooks = [layer.register_forward_hook(self._note_output) for layer in self.layers]
        with self.recorder.timing(self.stage_index, fwd_chunk_id, "forward"), held.saving():
            output = super().forward_one_chunk(fwd_chunk_id, *arguments, **named)
        for hook in hooks:
            hook.remove()
        outputs, inputs = self.fwd_cache[fwd_chunk_id]
        for tensor in (*outputs, *inputs):
            held.add(tensor)
        self.activation_bytes = held.bytes
        return output

    def _note_output(self, _layer: nn.Module, _given: Any, output: Any) -> None:
        self.output_bytes.append(sum(each.nbytes for each in tree_leaves(output) if isinstance(each, Tensor)))

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        # Recomputed activations need the masks of these samples, not those of the latest forward pass.
        self.keys.sample_ids = self.sample_ids[bwd_chunk_id]
        with self.recorder.timing(self.stage_index, bwd_chunk_id, "backward" if full_backward else "input_backward"):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        with self.recorder.timing(self.stage_index, bwd_chunk_id, "weight_backward"):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_fwd_recv_ops(fwd_chunk_id), fwd_chunk_id, "receive")

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_bwd_recv_ops(bwd_chunk_id), bwd_chunk_id, "receive")

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_fwd_send_ops(fwd_chunk_id), fwd_chunk_id, "send")

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_bwd_send_ops(bwd_chunk_id), bwd_chunk_id, "send")

    def _noted(self, operations: list[dist.P2POp], micro_batch: int, action: str) -> list[dist.P2POp]:
        self.recorder.asks(self.stage_index, micro_batch, action, operations)
        return operations
