"""One worker's copy of the model. Strategies see flat tensors and never the framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.groups.wire import bytes_of, tensor_of
from lockstep.engine.replica.layout import TensorLayout, agreed

Ready = Callable[[int], None]


class Replica(ABC):
    """Flat views of one copy of the model.

        parameters |-- layer 0 --|---- layer 1 ----|- layer 2 -|     float32 [length]
        gradients  |-- layer 0 --|---- layer 1 ----|- layer 2 -|     float32 [length], sums, weighted by the caller
        buffers    running statistics of normalization layers        float32 [any]
        others     what is in neither: frozen parameters, counters   by name, of any type

    `layer_slices` are the layers in that vector. `gradients` is one vector only after `rebind(gradients=...)`; until
    then a replica may keep its gradients wherever its framework puts them, reached through `leaves[i].grad`.
    """

    parameters: Tensor
    buffers: Tensor
    layout: TensorLayout  # of the whole model
    layer_slices: list[slice]  # one for each layer with parameters, in the model's order
    leaves: Sequence[Tensor]  # what an optimizer of one worker steps on; `.grad` is set after `backward`
    forward_seconds: float = 0.0  # summed since the replica was made; NaN where the two passes can't be timed apart
    backward_seconds: float = 0.0
    idle_seconds: float = 0.0  # within `backward`: a stage's waiting for the others
    exchange_seconds: float = 0.0  # within `backward`: exchanging activations, waiting included
    bytes_sent: float = 0.0  # within `exchange_seconds`
    reads_images: bool = True  # False: it uses only the labels of a batch
    cuts: list[int] | None = None  # the first layer of each stage, if the model is cut into stages
    skips_empty: bool = True  # False: the other ranks need this one even for a batch without samples
    sharers: Group | None = None  # all ranks that hold this copy of the model, if it is divided among several
    other_buffers: bool = False  # whether there may be buffers among its `others`, such as counters

    @property
    @abstractmethod
    def gradients(self) -> Tensor:
        """float32 [length]."""

    @abstractmethod
    def rebind(self, parameters: Tensor | None = None, gradients: Tensor | None = None, *, adopt: bool = False) -> None:
        """Move onto memory that a Sync provides (float32 [length]).

        `adopt`: take over the parameters that this memory holds, instead of writing this replica's own into it.
        """

    @abstractmethod
    def clear_gradients(self) -> None:
        """The next `backward` replaces the gradients instead of adding to them."""

    @abstractmethod
    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        """Add sum_i weights[i] * gradient of sample i, and return sum_i weights[i] * loss_i.

        `on_ready(layer)` is called once for each layer, by its index in `layer_slices`, as soon as its gradient is
        complete. A batch may be empty.
        """

    @abstractmethod
    def predict(self, batch: Batch) -> Tensor:
        """float32 [samples, classes], in evaluation mode: for one logit x of two classes, 0 and x. Where the labels of
        `batch` are no classes, what the model returns."""

    def peers(self, group: Group) -> Group:
        """The ranks of `group` that hold the same part of the model as this one, with which its sync exchanges."""
        return group

    def whole(self, flat: Tensor) -> Tensor:
        """`flat`, which is laid out as `parameters`, put together for the whole model; the same on every rank of the
        replica. Collective over them."""
        return flat

    def part_of(self, whole: Tensor) -> Tensor:
        """The inverse of `whole`: the part that this rank holds. Raises ValueError if it is of another model."""
        return whole

    def whole_buffers(self) -> Tensor:
        """`buffers`, put together for the whole model. Collective, as `whole` is."""
        return self.buffers

    def buffers_of(self, whole: Tensor) -> Tensor:
        """The inverse of `whole_buffers`."""
        return whole

    def adopt_buffers(self) -> None:  # noqa: B027 - most models write into their buffers
        """Take up into `buffers` what the model has put in their place. Raises ValueError for another shape."""

    def others(self, frozen: bool = True) -> dict[str, Tensor]:
        """What training reads besides `parameters` and `buffers`, by name in the whole model, each in its own type:
        frozen parameters (unless not `frozen`), and buffers that are not float32. This rank's own memory."""
        return {}

    def take_others(self, values: Mapping[str, Tensor]) -> None:  # noqa: B027 - for those that have some
        """Write `values` into those of `others` that have their names."""

    def whole_others(self) -> dict[str, Tensor]:
        """`others`, put together for the whole model. Collective, as `whole` is."""
        return self.others()

    def others_of(self, whole: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The inverse of `whole_others`; it may hold more than this rank's own."""
        return whole

    def start_alike(self, group: Group) -> None:
        """Give every rank of `group` the first one's `others`, as far as its ranks have them in common. Collective.

        The job's seed need not decide what a model is initialised with, and a sync knows nothing of these.
        """
        own = self.common_others()
        if group.size == 1 or not own:
            return
        message = torch.from_numpy(
            np.concatenate([bytes_of(each.detach().cpu().contiguous()) for each in own.values()])
        )
        group.broadcast(message)
        pieces = message.split([each.nbytes for each in own.values()])
        self.take_others(
            {
                name: tensor_of(piece.clone().numpy(), each.dtype, list(each.shape))
                for piece, (name, each) in zip(pieces, own.items(), strict=True)
            }
        )

    def common_others(self) -> dict[str, Tensor]:
        """Those of `others` that all ranks of the sync have."""
        return self.others()

    def agree_on_others(self, group: Group) -> None:
        """Make the buffers among `others` the same on every rank of `group`: see `layout.agreed`. Collective."""
        if group.size > 1 and self.other_buffers:
            own = {name: each.detach().cpu().clone() for name, each in self.others(frozen=False).items()}
            self.take_others(agreed(allgather_object(group, own)))

    def stepped(self, exchange_seconds: float, update_seconds: float) -> None:  # noqa: B027 - most note nothing
        """Called after every step, with the time that its exchange and its update took."""

    def traced(self, held_bytes: int) -> dict[str, list[dict[str, float | str]]]:
        """Rows of traced tables about the last step; `held_bytes` is the size of the optimizer's state."""
        return {}

    @property
    def length(self) -> int:
        return self.parameters.numel()

    @property
    def common(self) -> slice:
        """The first numbers of `parameters`, which all ranks of the sync have; the others are this rank's own."""
        return slice(0, self.length)


def flat_views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Consecutive pieces of `flat` [length], shaped like the given tensors."""
    sizes = [tensor.numel() for tensor in like]
    return [piece.view(tensor.shape) for piece, tensor in zip(torch.split(flat, sizes), like, strict=True)]
