"""FLOP of one image's forward pass through each layer of a network, counted by hand.

The paper's equations, *ConvLSTM-D-Accel* section 5:

    (1) convolution       2 x kernels x kernel size x output shape
    (2) fully connected   2 x input size x output shape
    (3) pooling           image height x image depth x image width

Equation (1) is right for one input channel: with c channels each output value sums c times as many products, and the
equation has no c. There is no equation for an LSTM. All of them count operations, not operations per second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.engine.models.layers import KERNEL, Network

_NAMES: Mapping[str, str] = {
    "conv": "convolution", "max_pool": "pooling", "average_pool": "pooling", "conv_lstm": "convolutional LSTM",
    "lstm": "LSTM", "frozen_lstm": "LSTM", "gated": "LSTM", "dense": "dense",
}  # fmt: skip


def convolution(kernels: float, kernel_size: float, output_shape: float) -> float:
    """Equation (1). 32 kernels of 5 x 5 with 46 x 46 outputs each: 2 x 32 x 25 x 2116 = 3 385 600."""
    return 2 * kernels * kernel_size * output_shape


def fully_connected(input_size: float, output_shape: float) -> float:
    """Equation (2). 512 features to one output: 1024."""
    return 2 * input_size * output_shape


def pooling(height: float, depth: float, width: float) -> float:
    """Equation (3). 32 channels of 46 x 46: 67 712."""
    return height * depth * width


def lstm(positions: float, inputs: float, units: float) -> float:
    """The products of an LSTM: 4 gates with weights for the input, and for the last state, which is zero at first.

    4 positions of 128 into 128 units: 2 x 4 x 128 x (4 x 128 + 3 x 128) = 917 504.
    """
    return 2 * 4 * units * (positions * inputs + (positions - 1) * units)


@dataclass(frozen=True)
class LayerFlops:
    """A layer of Table 2's network: what the paper's equation gives for it (NaN: it has none), and what it computes
    (products and sums of convolutions and matrix products; a pooling compares, which is no FLOP)."""

    name: str
    equation: float
    computed: float


def network_layers(network: Network) -> list[LayerFlops]:
    """The layers of a network that compute, for one image of 50 x 50: convolutions, poolings, LSTMs and dense ones."""
    found: list[LayerFlops] = []
    counts = Counter[str]()
    for layer, before, after in zip(network.layers, network.shapes, network.shapes[1:], strict=False):
        if name := _NAMES.get(layer.kind):
            counts[name] += 1
            found.append(LayerFlops(f"{name} {counts[name]}", *_flops_of(layer.kind, layer.size, before, after)))
    return found


def _flops_of(kind: str, size: int, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[float, float]:
    """(by equation, computed) of a layer of `size` filters or units, from its input's and its output's shape."""
    if kind == "conv":
        by_equation = convolution(size, KERNEL**2, math.prod(after[1:]))
        return by_equation, by_equation * before[0]
    if kind == "conv_lstm":
        frames, channels = before[:2]
        gates = convolution(4 * size, KERNEL**2, math.prod(after[1:]))
        return math.nan, gates * (frames * channels + (frames - 1) * size)
    if kind in ("lstm", "frozen_lstm"):
        positions, inputs = before
        return math.nan, lstm(positions, inputs, size)
    if kind == "gated":  # an LSTM's only step, without its forget gate
        return math.nan, 0.75 * lstm(1, math.prod(before), size)
    if kind == "dense":
        by_equation = fully_connected(math.prod(before), size)
        return by_equation, by_equation
    depth, height, width = before
    return pooling(height, depth, width), 0.0
