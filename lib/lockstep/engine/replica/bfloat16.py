"""Training in bfloat16 without autocast's fresh copies.

    autocast, every step                     here, every step
      parameters f32 -> new bf16 tensors       parameters f32 -> the same bf16 tensors, in place
      gradients bf16 -> new f32 tensors        gradients bf16 -> the flat f32 buffer, in place

Both compute in bfloat16 and keep parameters and gradients in float32. The second saves memory that the first allocates,
touches and frees in every step: six bytes per parameter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.loader import Batch
from lockstep.engine.replica.base import Ready, flat_views
from lockstep.engine.replica.torch import TorchReplica

# The layers that autocast computes in bfloat16; the parameters of all other layers stay float32, as with autocast.
LOWERED = (nn.Linear, nn.modules.conv._ConvNd)


class Bfloat16Replica(TorchReplica):
    """A `TorchReplica` whose weights have one bfloat16 copy, refreshed from the float32 parameters once per step."""

    def __init__(self, model: nn.Module, *arguments: Any, **options: Any) -> None:
        super().__init__(model, *arguments, **options)
        if self.precision != "bfloat16":
            raise ValueError(f"precision={self.precision!r} has no copies to avoid; give precision='bfloat16'")
        wanted = {id(p) for module in self.model.modules() if isinstance(module, LOWERED) for p in module.parameters()}
        self._lowered = [index for index, leaf in enumerate(self._trained) if id(leaf) in wanted]
        self._copies = [torch.empty_like(self._trained[index], dtype=torch.bfloat16) for index in self._lowered]
        self._bind()
        super().rebind(gradients=torch.zeros_like(self.parameters))
        self.clear_gradients()

    def rebind(self, parameters: Tensor | None = None, gradients: Tensor | None = None, *, adopt: bool = False) -> None:
        if not hasattr(self, "_copies"):  # called by the constructor, when the layers are still float32
            super().rebind(parameters, gradients, adopt=adopt)
            return
        if parameters is not None:
            if not adopt:  # from the float32 values, because the layers no longer hold these
                parameters.copy_(self.parameters)
            super().rebind(parameters=parameters, adopt=True)
            self._bind()
        if gradients is not None:
            super().rebind(gradients=gradients)
        self.clear_gradients()

    def clear_gradients(self) -> None:
        super().clear_gradients()
        if self._gradients is not None:
            # A single tensor for the optimizer; its float32 gradient is the flat buffer, which the next pass
            # overwrites.
            self.leaves[0].grad = self._gradients

    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        if all(self._fresh):  # the first pass after the parameters may have changed
            self._refresh()
        return super().backward(batch, weights, on_ready)

    def predict(self, batch: Batch) -> Tensor:
        self._refresh()
        return super().predict(batch)

    def _bind(self) -> None:
        """The layers compute with the bfloat16 copies; an optimiser steps on the flat float32 parameters."""
        views = flat_views(self.parameters, self._trained)
        self._sources = [views[index] for index in self._lowered]
        for index, low in zip(self._lowered, self._copies, strict=True):
            self._trained[index].data = low
        self.leaves = [nn.Parameter(self.parameters)]

    def _refresh(self) -> None:
        for low, source in zip(self._copies, self._sources, strict=True):
            low.copy_(source)


def bfloat16_replica_class(kind: type[TorchReplica]) -> type[TorchReplica]:
    """The replica class that avoids copies, in place of `kind`. Raises ValueError if `kind` has its own exchange."""
    if kind is not TorchReplica:
        raise ValueError(
            f"copies='avoided' keeps weights in bfloat16, and {kind.__name__} would exchange them as such; "
            "use sync='shared_memory' or 'allreduce'"
        )
    return Bfloat16Replica
