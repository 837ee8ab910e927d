"""Dropout whose mask depends on (seed, epoch, sample, layer) alone.

Torch's generator is one per process: threads would race on it, and the mask of a sample would depend on
which worker got it. Keyed masks are the same for every number and kind of workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.keyed import STREAM_DROPOUT, keyed_uniform


@dataclass
class SampleKeys:
    """The samples that are in the forward pass at present."""

    seed: int
    epoch: int = 0
    sample_ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


class KeyedDropout(nn.Module):
    """`nn.Dropout` with probability `p` for input [samples, ...], keyed by sample.

    `first`: the index of the input's first unit, if the input is a part of the whole layer's units.
    """

    def __init__(self, p: float, keys: SampleKeys, stream: int, first: int = 0) -> None:
        super().__init__()
        self.p, self.keys, self.stream, self.first = p, keys, stream, first

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        keys = self.keys
        if len(keys.sample_ids) != x.shape[0]:
            raise ValueError(
                f"dropout got {x.shape[0]} rows for {len(keys.sample_ids)} samples; "
                f"keep the sample dimension first, so that every sample has its own mask"
            )
        draws = keyed_uniform(keys.seed, keys.epoch, keys.sample_ids, self.stream, math.prod(x.shape[1:]), self.first)
        kept = torch.from_numpy(np.asarray(draws) >= self.p).view(x.shape).to(x.device)
        return x * kept * (1.0 / (1.0 - self.p))


def key_dropout(model: nn.Module, keys: SampleKeys) -> nn.Module:
    """`model` with every `nn.Dropout` replaced, in place; the n-th one draws from stream STREAM_DROPOUT + n."""
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()  # not named_children, which skips a module that occurs twice
        if isinstance(child, nn.modules.dropout._DropoutNd)
    ]
    for _, name, child in found:
        if type(child) is not nn.Dropout:
            raise ValueError(
                f"layer {name!r} is {type(child).__name__}, whose masks can't be keyed by sample: they would depend on "
                "the number of workers; use nn.Dropout"
            )
    for number, (parent, name, child) in enumerate(found):
        assert isinstance(child, nn.Dropout)
        setattr(parent, name, KeyedDropout(child.p, keys, STREAM_DROPOUT + number).train(child.training))
    return model
