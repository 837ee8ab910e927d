"""Gradients as shorter messages, and back.

    encode(values, ...)  float32 [n]  ->  uint8 [bytes]     what is sent, and counted
    add(message, into)   uint8 [bytes] -> into += decoded   at the receiver

    topk      | n x index int32 | n x value float32 |       8 bytes for each entry that is sent
    terngrad  | scale float32 | 4 entries in a byte ... |   1/16 of the gradient

Single-to-Multi, section 2, names both families: gradient sparsification (Sattler et al. 2019, Kuang et al. 2019) and
gradient quantization (Wen et al. 2017).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.data.keyed import GOLDEN, STREAM_DROPOUT, mix64, stream_key
from lockstep.engine.job import Job

STREAM_TERNGRAD = STREAM_DROPOUT + 1_000_000  # + worker; far above the streams of the dropout layers
_PACK = 4  # ternary entries in a byte
_BLOCK = 1 << 18  # entries coded at once, so few that intermediate results stay in the cache
# The four entries that a byte stands for; two bits each, 0: 0, 1: s, 2: -s.
_DIGITS = torch.arange(256)[:, None] >> torch.tensor([0, 2, 4, 6]) & 3
_ENTRIES = torch.tensor([0.0, 1.0, -1.0, 0.0])[_DIGITS]


class Codec(ABC):
    """One worker's encoder, with the state that it keeps, and a decoder for the messages of all workers."""

    def attach(self, length: int, worker: int) -> None:  # noqa: B027 - one that holds nothing back needs neither
        """Prepare for the gradients of worker number `worker`, of `length` numbers each."""

    @abstractmethod
    def encode(self, values: Tensor, start: int, step: int) -> Tensor:
        """The message for `values` [n], which begin at `start` in the gradient of `step`. `values` are not changed."""

    @abstractmethod
    def add(self, message: Tensor, into: Tensor) -> None:
        """Add the decoded `message` to `into` [n]."""

    def state(self) -> Tensor | None:
        """The state that a checkpoint must keep, so that a resumed run is exactly the same."""
        return None

    def load(self, state: Tensor | None) -> None:  # noqa: B027
        """Restore what `state` returned."""


class TopK(Codec):
    """The share `density` of the entries with the largest magnitude; the others are kept and added next time.

    Error feedback: the sent and the kept entries add up exactly to the gradient plus what was kept before, so that
    nothing is lost, only delayed.
    """

    def __init__(self, density: float) -> None:
        if not 0 < density <= 1:
            raise ValueError(f"density={density!r} is no share of a gradient; give more than 0 and at most 1")
        self.density = density
        self.kept = torch.empty(0)

    def attach(self, length: int, worker: int) -> None:
        self.kept = torch.zeros(length)

    def encode(self, values: Tensor, start: int, step: int) -> Tensor:
        kept = self.kept[start : start + values.numel()]
        kept += values
        count = min(values.numel(), math.ceil(self.density * values.numel()))
        places = largest(kept, count)
        sent = kept[places]
        kept[places] = 0.0
        return torch.cat([places.to(torch.int32).view(torch.uint8), sent.view(torch.uint8)])

    def add(self, message: Tensor, into: Tensor) -> None:
        half = message.numel() // 2
        into.index_add_(0, message[:half].view(torch.int32), message[half:].view(torch.float32))

    def state(self) -> Tensor:
        return self.kept.clone()

    def load(self, state: Tensor | None) -> None:
        if state is None or state.shape != self.kept.shape:
            raise ValueError("this checkpoint holds nothing that compression='topk' kept back; it is of another run")
        self.kept.copy_(state)


def largest(values: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest magnitudes, ascending; the first of equal ones. NaN counts as the largest."""
    if count == values.numel():
        return torch.arange(count)
    magnitudes = values.abs().nan_to_num_(nan=math.inf, posinf=math.inf)
    # Selecting only the threshold takes a tenth of torch.topk's time for tens of millions of entries.
    bound = float(np.partition(magnitudes.numpy(), values.numel() - count)[values.numel() - count])
    above = (magnitudes > bound).nonzero().view(-1)
    equal = (magnitudes == bound).nonzero().view(-1)[: count - above.numel()]
    return torch.cat([above, equal]).sort().values


class TernGrad(Codec):
    """Every entry becomes -s, 0 or s, where s is the largest magnitude, so that its mean is the entry itself.

    Wen et al. 2017, without the clipping, which would shift that mean. An entry g is sent as sign(g) x s with
    probability |g| / s. The draws depend only on (seed, step, worker, index). A bucket per layer gives each
    layer its own s.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.worker = seed, 0

    def attach(self, length: int, worker: int) -> None:
        self.worker = worker

    def encode(self, values: Tensor, start: int, step: int) -> Tensor:
        scale = values.abs().max() if values.numel() else torch.tensor(0.0)
        # Numpy's keyed, counter-based generator: a word per entry, as in data.keyed, would take several times as long.
        key = mix64(stream_key(self.seed, step, STREAM_TERNGRAD + self.worker) + GOLDEN * (start + 1))
        generator = np.random.Generator(np.random.Philox(key=key))
        packed = [_packed(block, scale, generator) for block in values.split(_BLOCK) if block.numel()]
        return torch.cat([scale.reshape(1).view(torch.uint8), *packed])

    def add(self, message: Tensor, into: Tensor) -> None:
        # A gradient that is not finite must not disappear: 0 x NaN is NaN, which then shows in the loss.
        entries = _ENTRIES * message[:4].view(torch.float32)
        for block, packed in zip(into.split(_BLOCK), message[4:].split(_BLOCK // _PACK), strict=False):
            block += entries[packed.int()].view(-1)[: block.numel()]


def _packed(values: Tensor, scale: Tensor, generator: np.random.Generator) -> Tensor:
    """uint8 [a quarter of the values]."""
    draws = torch.from_numpy(generator.random(values.numel(), dtype=np.float32))
    sent = draws * scale < values.abs()  # never where the scale is 0
    codes = torch.zeros(-(-values.numel() // _PACK) * _PACK, dtype=torch.uint8)
    codes[: values.numel()] = sent.to(torch.uint8) << (values < 0).to(torch.uint8)
    quads = codes.view(-1, _PACK)
    return quads[:, 0] | quads[:, 1] << 2 | quads[:, 2] << 4 | quads[:, 3] << 6


def codec_of(job: Job) -> Codec | None:
    """The codec that `job.compression` names; None without one."""
    if job.compression == "topk":
        return TopK(job.density)
    return TernGrad(job.seed) if job.compression == "terngrad" else None
