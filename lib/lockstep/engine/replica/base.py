"""One worker's copy of the model. Strategies see flat tensors and never the framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group

Ready = Callable[[int], None]


class Replica(ABC):
    """Flat views of one copy of the model.

        parameters |-- part 0 --|---- part 1 ----|- part 2 -|     float32 [length]
        gradients  |-- part 0 --|---- part 1 ----|- part 2 -|     float32 [length], sums, weighted by the caller
        buffers    running statistics of normalisation layers     float32 [any]

    A part is a layer. `gradients` stands only after `rebind(gradients=...)`; until then a replica may keep
    its gradients wherever its framework likes best, reached through `leaves[i].grad`.
    """

    parameters: Tensor
    buffers: Tensor
    parts: list[slice]
    leaves: Sequence[Tensor]  # what an optimiser of one worker steps on; `.grad` is set after `backward`
    forward_seconds: float = 0.0  # summed since the replica was made; nan where they can't be told apart
    backward_seconds: float = 0.0
    idle_seconds: float = 0.0  # within `backward`: of a stage that waits for the others
    exchange_seconds: float = 0.0  # within `backward`: of activations, waiting for their ranks included
    bytes_sent: float = 0.0  # in that time
    reads_images: bool = True  # False: of a batch it uses the labels alone
    cuts: list[int] | None = None  # of a model in stages: the first layer of each
    skips_empty: bool = True  # a batch without samples is no work; False: the other ranks need this one all the same
    sharers: Group | None = None  # the ranks that hold this copy of the model together, if they are several

    @property
    @abstractmethod
    def gradients(self) -> Tensor:
        """float32 [length]."""

    @abstractmethod
    def rebind(self, parameters: Tensor | None = None, gradients: Tensor | None = None, *, adopt: bool = False) -> None:
        """Move onto memory that a Sync provides (float32 [length]).

        `adopt`: take over the parameters that stand there instead of writing this replica's into it.
        """

    @abstractmethod
    def clear_gradients(self) -> None:
        """The next `backward` replaces the gradients instead of adding to them."""

    @abstractmethod
    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        """Add sum_i weights[i] * gradient of sample i, and return sum_i weights[i] * loss_i.

        `on_ready(part)` is called once for each part as soon as its gradient stands. A batch may be empty.
        """

    @abstractmethod
    def predict(self, batch: Batch) -> Tensor:
        """float32 [samples, classes], in evaluation mode: for one logit x of two classes, 0 and x."""

    def peers(self, group: Group) -> Group:
        """Of all ranks with a part of a model, those that hold the same part: who a sync agrees with."""
        return group

    def whole(self, flat: Tensor) -> Tensor:
        """`flat`, laid out as `parameters`, for the whole model; on every rank. Collective over those of a replica."""
        return flat

    def part_of(self, whole: Tensor) -> Tensor:
        """The inverse of `whole`: what this rank holds. Raises ValueError if it is of another model."""
        return whole

    def whole_buffers(self) -> Tensor:
        """`buffers` for the whole model. Collective as `whole`."""
        return self.buffers

    def buffers_of(self, whole: Tensor) -> Tensor:
        """The inverse of `whole_buffers`."""
        return whole

    def stepped(self, exchange_seconds: float, update_seconds: float) -> None:  # noqa: B027 - most note nothing
        """A step has just ended with these."""

    def traced(self, held_bytes: int) -> dict[str, list[dict[str, float | str]]]:
        """Rows of traced tables about the last step; `held_bytes`: of the optimiser's state."""
        return {}

    @property
    def length(self) -> int:
        return self.parameters.numel()

    @property
    def common(self) -> slice:
        """The numbers, at the start of `parameters`, that all ranks of the sync have; those behind are its own."""
        return slice(0, self.length)


def flat_views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Consecutive pieces of `flat` [length], shaped like the given tensors."""
    sizes = [tensor.numel() for tensor in like]
    return [piece.view(tensor.shape) for piece, tensor in zip(torch.split(flat, sizes), like, strict=True)]
