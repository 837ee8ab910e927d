"""AlexNet and VGG16 in numbers: what each layer computes and keeps, for an image of 3 x 224 x 224. No torch needed.

The same layers as `lockstep.engine.models.alexnet` and `vgg`. FLOP are counted as torch's own counter does, a
multiplication and an addition as two; bytes saved are those of the tensors that autograd keeps for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

SIDE, CHANNELS, CLASSES = 224, 3, 3
_FLOAT, _INDEX, _MASK = 4, 8, 1  # bytes of a number, of a pooling's index, of a dropout's bit

Spec = tuple[str, Sequence[int]]
"""conv (filters, kernel, stride, padding), pool (kernel, stride), dropout (), dense (units)."""

_ALEXNET: tuple[Spec, ...] = (
    ("conv", (64, 11, 4, 2)), ("pool", (3, 2)), ("conv", (192, 5, 1, 2)), ("pool", (3, 2)),
    *(("conv", (filters, 3, 1, 1)) for filters in (384, 256, 256)), ("pool", (3, 2)),
    ("dropout", ()), ("dense", (4096,)), ("dropout", ()), ("dense", (4096,)), ("dense", (CLASSES,)),
)  # fmt: skip
_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_VGG16: tuple[Spec, ...] = (
    *(spec for block in _BLOCKS for spec in (*(("conv", (filters, 3, 1, 1)) for filters in block), ("pool", (2, 2)))),
    ("dense", (4096,)), ("dropout", ()), ("dense", (4096,)), ("dropout", ()), ("dense", (CLASSES,)),
)  # fmt: skip
_SPECS: Mapping[str, tuple[Spec, ...]] = {"SimpleBig": _ALEXNET, "ComplexSmall": _VGG16}
NAMES: Mapping[str, str] = {"SimpleBig": "AlexNet", "ComplexSmall": "VGG16"}


@dataclass(frozen=True)
class Layer:
    """One layer, of one image."""

    kind: str
    parameters: int
    flops: float  # of the forward pass
    outputs: int  # numbers
    saved_bytes: int  # kept for the backward pass; a ReLU writes over its input and adds nothing


@dataclass(frozen=True)
class Network:
    """A use case's network."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        return _FLOAT * self.parameters

    @property
    def forward_flops(self) -> float:
        return math.fsum(layer.flops for layer in self.layers)

    @property
    def training_flops(self) -> float:
        """Of an image: the backward pass takes two forward passes, but no gradient of the image is needed."""
        return 3 * self.forward_flops - self.layers[0].flops

    @property
    def activation_bytes(self) -> int:
        """Of an image, itself included."""
        return _FLOAT * CHANNELS * SIDE**2 + sum(layer.saved_bytes for layer in self.layers)

    @property
    def largest_output_bytes(self) -> int:
        return _FLOAT * max(layer.outputs for layer in self.layers)

    @property
    def cut(self) -> int:
        """The first layer of the second stage, where the model is cut into two that compute as alike as can be."""
        flops = [layer.flops for layer in self.layers]
        return min(range(1, len(flops)), key=lambda at: max(sum(flops[:at]), sum(flops[at:])))

    @property
    def halves(self) -> tuple[Network, Network]:
        return Network(self.name, self.layers[: self.cut]), Network(self.name, self.layers[self.cut :])

    @property
    def imbalance(self) -> float:
        """FLOP of the slower half over the mean of both: 1 is even."""
        halves = [half.forward_flops for half in self.halves]
        return 2 * max(halves) / sum(halves)

    @property
    def sent_bytes(self) -> int:
        """From one half to the other, for an image; its gradient takes as much on the way back."""
        return _FLOAT * self.layers[self.cut - 1].outputs


@cache
def network(use_case: str) -> Network:
    """The network of SimpleBig or ComplexSmall. Raises KeyError for another use case."""
    shape: tuple[int, ...] = (CHANNELS, SIDE, SIDE)
    kinds = [kind for kind, _ in _SPECS[use_case]]
    found = []
    for (kind, sizes), after in zip(_SPECS[use_case], [*kinds[1:], ""], strict=True):
        layer, shape = _layer(kind, sizes, shape, after)
        found.append(layer)
    return Network(NAMES[use_case], tuple(found))


def _layer(kind: str, sizes: Sequence[int], shape: tuple[int, ...], after: str) -> tuple[Layer, tuple[int, ...]]:
    inputs = math.prod(shape)
    if kind == "conv":
        filters, kernel, stride, padding = sizes
        side = (shape[1] + 2 * padding - kernel) // stride + 1
        weights = shape[0] * kernel**2
        outputs = filters * side**2
        layer = Layer(kind, filters * (weights + 1), 2.0 * outputs * weights, outputs, _FLOAT * outputs)
        return layer, (filters, side, side)
    if kind == "pool":
        kernel, stride = sizes
        side = (shape[1] - kernel) // stride + 1
        outputs = shape[0] * side**2
        # A dropout behind it keeps its own output, and no longer needs this one.
        kept = _INDEX + (0 if after == "dropout" else _FLOAT)
        return Layer(kind, 0, 0.0, outputs, kept * outputs), (shape[0], side, side)
    if kind == "dropout":
        return Layer(kind, 0, 0.0, inputs, (_FLOAT + _MASK) * inputs), shape
    (units,) = sizes
    kept = _FLOAT * units if after else 0
    return Layer(kind, units * (inputs + 1), 2.0 * inputs * units, units, kept), (units,)
