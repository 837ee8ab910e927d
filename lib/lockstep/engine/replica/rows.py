"""Two exchanges of a batch's rows between ranks in the middle of a model; each one is the other's gradient.

    gather          rank 0 |a|   |a|              sum_own         rank 0 |p a|        |p a + r a|
                    rank 1 |b|   |b|  on all                             |p b|
                                                                  rank 1 |r a|
                                                                         |r b|        |p b + r b|
    its gradient: sum_own                         its gradient: gather

They use gloo's messages between two ranks, which wait without spinning, are received in place, and need not be of equal
size: shares of a batch may be uneven or empty.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups import Group, GroupAborted

_TAG = 1


class Rows:
    """The rows that each rank of `group` has of a batch. Making one is collective.

    `seconds` and `bytes_sent` are totals over its exchanges, including the waiting for other ranks. Raises
    GroupError where there can be no torch.distributed (ranks that are threads); every exchange raises GroupAborted when
    another rank is gone.
    """

    def __init__(self, group: Group) -> None:
        self.group, self._gloo = group, group.torch_group()
        self.counts = [0] * group.size
        self.seconds, self.bytes_sent = 0.0, 0.0

    def begin(self, sample_ids: np.ndarray) -> np.ndarray:
        """The sample ids, int64, of all ranks' rows. Collective; to be called at the start of every batch."""
        start = time.perf_counter()
        ids = self.group.allgather(torch.tensor(sample_ids))
        self.counts = [len(each) for each in ids]
        self.seconds += time.perf_counter() - start
        return torch.cat(ids).numpy()

    def gather(self, own: Tensor) -> Tensor:
        """Own rows [own, ...] -> those of all ranks [all, ...], by rank. Collective."""
        whole = torch.empty(sum(self.counts), *own.shape[1:], dtype=own.dtype)
        pieces = whole.split(self.counts)
        mine = pieces[self.group.rank].copy_(own)
        self._swap([mine] * self.group.size, pieces)
        return whole.to(own.device)

    def sum_own(self, partial: Tensor) -> Tensor:
        """Each rank's addends for all rows [all, ...] -> the sums of own rows [own, ...], added by rank. Collective."""
        pieces = partial.cpu().contiguous().split(self.counts)
        mine = pieces[self.group.rank]
        addends = torch.empty(self.group.size, *mine.shape, dtype=partial.dtype)
        addends[self.group.rank] = mine
        self._swap(pieces, addends.unbind())
        return addends.sum(0).to(partial.device)  # summed in float32, whatever the precision, and rounded once

    def _swap(self, out: Sequence[Tensor], into: Sequence[Tensor]) -> None:
        """Sends piece r of `out` to rank r, and receives from rank r into piece r of `into`."""
        start = time.perf_counter()
        others = [rank for rank in range(self.group.size) if rank != self.group.rank]
        try:
            works = [self._gloo.recv([into[other]], other, _TAG) for other in others if into[other].numel()]
            works += [self._gloo.send([out[other]], other, _TAG) for other in others if out[other].numel()]
            for work in works:
                work.wait()
        except RuntimeError as error:  # gloo's: the connection has closed
            raise GroupAborted(f"another rank has left the exchange of rows: {error}") from error
        self.bytes_sent += sum(out[other].nbytes for other in others)
        self.seconds += time.perf_counter() - start


class Gather(torch.autograd.Function):
    """`Rows.gather`, differentiable: apply(own rows, rows)."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return rows.gather(own)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.rows.sum_own(gradients[0]), None


class SumOwn(torch.autograd.Function):
    """`Rows.sum_own`, differentiable: apply(addends for all rows, rows)."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return rows.sum_own(partial)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.rows.gather(gradients[0]), None
