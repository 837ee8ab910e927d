"""What each layer of a model costs on this machine: seconds measured, bytes counted.

    image -> layer 0 -> leaf -> layer 1 -> leaf -> layer 2 -> loss      forward, each layer a graph of its own
             layer 0 <- grad <- layer 1 <- grad <- layer 2 <- loss      backward, from the gradient of the layer after

All layers go forward before the first goes backward, as in training, so a layer finds caches as it would there.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map_only

from lockstep.engine.models.losses import Loss
from lockstep.engine.pipelines.partition import LayerCost
from lockstep.engine.replica.pipeline.cut import uncuttable


def static_costs(layers: Sequence[nn.Module]) -> list[LayerCost]:
    """What is known about each layer without running it: name, trainable parameters, whether a stage may end there."""
    joined = uncuttable(layers)
    return [
        LayerCost(
            type(layer).__name__,
            sum(parameter.numel() for parameter in layer.parameters() if parameter.requires_grad),
            cuttable=index not in joined,
        )
        for index, layer in enumerate(layers)
    ]


def profile(
    layers: Sequence[nn.Module],
    images: Tensor,
    loss: Loss | None = None,
    repeats: int = 5,
    *,
    warmup: int = 1,
    accumulated: bool = True,
    precision: str = "float32",
    typical: Callable[[Sequence[float]], float] = statistics.median,
) -> list[LayerCost]:
    """The cost of every layer for `images` [samples, channels, height, width], on their device and in their format.

    Seconds are the `typical` ones of `repeats`, after `warmup` repetitions that don't count. `loss(output, labels)`,
    one value per sample, belongs to the last layer; None: the backward pass starts from a random gradient.
    `accumulated`: add the gradients to those of the micro-batch before, as all micro-batches but a step's first do.
    Layers whose output turns out to be more than one tensor are not `cuttable`.

    Afterwards gradients, buffers (running statistics) and torch's generator are as they were before. Raises ValueError
    for less than one repetition, and whatever a layer raises.
    """
    if repeats < 1:
        raise ValueError(f"repeats={repeats} measures nothing; give at least 1")
    chain = _Chain(layers, images, loss, precision)
    with _untouched(layers, images):
        costs = [
            replace(cost, **vars(seen) | {"cuttable": cost.cuttable and seen.cuttable})
            for cost, seen in zip(static_costs(layers), _seen(layers, images, precision), strict=True)
        ]
        for repetition in range(warmup + repeats):
            if not accumulated:
                _forget_gradients(layers)
            chain.run()
            if repetition < warmup:
                chain.forward, chain.backward = [[] for _ in layers], [[] for _ in layers]
    return [_timed(*each, typical) for each in zip(costs, chain.forward, chain.backward, strict=True)]


def _timed(
    cost: LayerCost, forward: list[float], backward: list[float], typical: Callable[[Sequence[float]], float]
) -> LayerCost:
    there, back = typical(forward), typical(backward)
    return replace(cost, seconds=there + back, forward_seconds=there, backward_seconds=back)


class _Chain:
    """The layers one after the other, each in a graph of its own; the seconds of each repetition by layer."""

    def __init__(self, layers: Sequence[nn.Module], images: Tensor, loss: Loss | None, precision: str) -> None:
        self.layers, self.images, self.loss, self.precision = layers, images, loss, precision
        self.forward: list[list[float]] = [[] for _ in layers]
        self.backward: list[list[float]] = [[] for _ in layers]

    def run(self) -> None:
        leaves: list[Any] = [self.images]
        outputs: list[Any] = []
        for index, layer in enumerate(self.layers):
            # A layer that works in place may overwrite this copy, but not a leaf, nor what the previous layer has
            # saved.
            given = tree_map_only(Tensor, torch.clone, leaves[-1])
            start = _now(self.images)
            with _precision(self.images, self.precision):
                output = layer(given)
            if self.loss is not None and index == len(self.layers) - 1:
                output = self.loss(output, torch.zeros(len(output), dtype=torch.int64, device=output.device)).sum()
            self.forward[index].append(_now(self.images) - start)
            outputs.append(output)
            leaves.append(tree_map_only(Tensor, _leaf, output))
        for leaf in _tensors(leaves[-1]):
            leaf.grad = torch.ones_like(leaf) if leaf.dim() == 0 else torch.randn_like(leaf)
        for index in reversed(range(len(self.layers))):
            # Removed from the lists, so that what this layer saved is freed with its backward pass.
            self.backward[index].append(self._back(_tensors(outputs.pop()), _tensors(leaves.pop())))

    def _back(self, outputs: list[Tensor], leaves: list[Tensor]) -> float:
        """The seconds of one layer's backward pass, from the gradients in `leaves` (None: zero)."""
        pairs = [(own, leaf) for own, leaf in zip(outputs, leaves, strict=True) if own.requires_grad]
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for _, leaf in pairs]
        start = _now(self.images)
        if pairs:
            torch.autograd.backward([own for own, _ in pairs], gradients)
        return _now(self.images) - start


@dataclass(frozen=True)
class _Seen:
    """The memory that one layer used in a forward pass of the whole model; the fields are those of `LayerCost`."""

    output_bytes: int
    saved_bytes: int
    output_saved: bool
    in_place: bool
    cuttable: bool


def _seen(layers: Sequence[nn.Module], images: Tensor, precision: str) -> list[_Seen]:
    """Runs a forward pass of the whole model and records what autograd saves.

    Memory is counted once, for the layer that made it: what a layer saves of its input counts for the previous layer,
    even if that layer does not need it. Parameters, buffers and the images are not counted.
    """
    x: Any = images.clone()
    outputs, written = [x], []
    saved: list[dict[int, Tensor]] = [{} for _ in layers]  # by address; kept alive, so that no address is used twice
    maker: dict[int, int | None] = {_address(each): None for layer in layers for each in _own(layer)}
    maker[_address(x)] = None
    for index, layer in enumerate(layers):

        def note(tensor: Tensor, index: int = index) -> Tensor:
            owner = maker.setdefault(_address(tensor), index)
            if owner is not None:
                saved[owner][_address(tensor)] = tensor.detach()
            # Not the tensor itself, which may refer to the graph that holds this hook: a cycle that is never collected.
            return tensor.detach()

        given, before = _tensors(x), [each._version for each in _tensors(x)]
        with saved_tensors_hooks(note, lambda tensor: tensor), _precision(images, precision):
            x = layer(x)
        written.append(before != [each._version for each in given])
        outputs.append(x)
        for each in _tensors(x):
            maker.setdefault(_address(each), index)
    kept_at_all = {address for kept in saved for address in kept}
    return [
        _Seen(
            sum(each.numel() * each.element_size() for each in _tensors(output)),
            sum(each.untyped_storage().nbytes() for each in kept.values()),
            all(_address(each) in kept_at_all for each in _tensors(output)),
            in_place,
            isinstance(output, Tensor),
        )
        for output, kept, in_place in zip(outputs[1:], saved, written, strict=True)
    ]


@contextlib.contextmanager
def _untouched(layers: Sequence[nn.Module], images: Tensor) -> Iterator[None]:
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    buffers = [(buffer, buffer.clone()) for layer in layers for buffer in layer.buffers()]
    gradients = [parameter.grad for parameter in parameters]
    _forget_gradients(layers)
    try:
        with torch.random.fork_rng(devices=[images.device] if images.device.type == "cuda" else []):
            yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, was in buffers:
                buffer.copy_(was)


def _forget_gradients(layers: Sequence[nn.Module]) -> None:
    for layer in layers:
        layer.zero_grad(set_to_none=True)


def _precision(images: Tensor, precision: str) -> torch.autocast:
    return torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bfloat16")


def _leaf(output: Tensor) -> Tensor:
    return output.detach().requires_grad_(output.requires_grad)


def _own(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(), *layer.buffers()]


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _now(like: Tensor) -> float:
    if like.device.type == "cuda":
        torch.cuda.synchronize(like.device)
    return time.perf_counter()
