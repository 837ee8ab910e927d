"""A `Network` as a Keras model whose variables are pieces of flat vectors, laid out as torch's.

    torch                          Keras, channels last
    convolution   [o, i, h, w]     [h, w, i, o]
    dense         [o, i]           [i, o]; behind Flatten, i is (channel, row, column) | (row, column, channel)
    (conv) LSTM   as a dense layer or convolution for 4 u gates, which are in the same order

Optimizers that work element by element do the same in either layout. So everything that is exchanged and saved has
torch's layout, and the graph transposes each piece.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lockstep.engine.models.layers import KERNEL, TORCH_HEADS, Layer, Network, shuffled_order

Shape = tuple[int, ...]
Turn = Callable[[Any], Any]  # a tensor of torch's shape -> the same numbers as Keras has them
_MOMENTUM, _EPSILON = 0.9, 1e-5  # torch's values; torch's momentum of 0.1 is Keras's 0.9


@dataclass(frozen=True)
class Piece:
    """So many numbers of a flat vector, and what they are in the Keras model."""

    variable: Any
    shape: Shape  # torch's
    turn: Turn = lambda tensor: tensor

    @property
    def length(self) -> int:
        return math.prod(self.shape)


@dataclass
class KerasModel:
    """A functional Keras model of [images, *masks], channels last, that returns logits.

    A mask is what its dropout layer multiplies with. `plain`, of images alone, shares all layers and has no dropout.
    `parameters` and `buffers` are in the order of torch's flat vectors.
    """

    network: Network
    model: Any = None
    plain: Any = None
    masks: list[Shape] = field(default_factory=list)  # torch's shape of each, without the samples
    parameters: list[Piece] = field(default_factory=list)
    buffers: list[Piece] = field(default_factory=list)
    normalised: list[tuple[Any, int]] = field(default_factory=list)  # each layer, and its pixels of a sample

    @property
    def length(self) -> int:
        return sum(piece.length for piece in self.parameters)

    @property
    def running(self) -> int:
        """Numbers in the flat buffers."""
        return sum(piece.length for piece in self.buffers)


def build_keras_model(network: Network) -> KerasModel:
    """`network` in Keras; to be called by one thread at a time. Its variables hold no weights of ours.

    Raises ValueError for a head that only torch has.
    """
    import keras

    if network.head in TORCH_HEADS:
        raise ValueError(f"head={network.head!r} is built in torch alone; give another head, or framework='torch'")

    made = KerasModel(network)
    shapes = network.shapes
    images = keras.Input(_channels_last(shapes[0]), dtype="float32")
    masks: list[Any] = []
    trained = plain = images
    flattened: Shape = ()  # what the last Flatten flattened, for the dense layer behind it
    for layer, before in zip(network.layers, shapes, strict=False):
        if layer.kind == "dropout":
            masks.append(keras.Input(_channels_last(before), dtype="float32"))
            made.masks.append(before)
            trained = keras.layers.Multiply()([trained, masks[-1]])
            continue
        apply = _layer(layer, before)
        trained, plain = apply(trained), apply(plain)
        _note(made, apply, layer, before, flattened)
        flattened = before if layer.kind == "flatten" else () if layer.kind == "dense" else flattened
    made.model, made.plain = keras.Model([images, *masks], trained), keras.Model(images, plain)
    return made


def _layer(layer: Layer, before: Shape) -> Any:
    """The Keras layer, for input that torch has as `before`."""
    import keras
    from keras import layers

    last = {"data_format": "channels_last", "dtype": "float32"}
    match layer.kind:
        case "conv":
            return layers.Conv2D(layer.size, KERNEL, **last)
        case "batch_norm":
            return layers.BatchNormalization(momentum=_MOMENTUM, epsilon=_EPSILON, dtype="float32")
        case "relu":
            return layers.ReLU(dtype="float32")
        case "max_pool":
            return layers.MaxPooling2D(2, **last)
        case "average_pool":
            return layers.AveragePooling2D(2, **last)
        case "flatten":
            return layers.Flatten(**last)
        case "positions":
            return layers.Reshape((before[1] * before[2], before[0]))
        case "shuffled":
            return functools.partial(keras.ops.take, indices=list(shuffled_order(before[0])), axis=1)
        case "frames":
            return layers.Reshape((layer.size, before[1] // layer.size, before[2], before[0]))
        case "lstm":  # written out: a loop inside the graph costs more than its few steps
            return layers.LSTM(layer.size, unroll=True, use_cudnn=False, dtype="float32")
        case "conv_lstm":
            return layers.ConvLSTM2D(layer.size, KERNEL, unroll=True, **last)
        case "dense":
            return layers.Dense(layer.size, dtype="float32")
    raise AssertionError(layer)


def _note(made: KerasModel, keras_layer: Any, layer: Layer, before: Shape, flattened: Shape) -> None:
    """Add the layer's variables, in torch's order."""
    size = layer.size
    match layer.kind:
        case "conv":
            kernel = Piece(keras_layer.kernel, (size, before[0], KERNEL, KERNEL), _kernel)
            made.parameters += [kernel, Piece(keras_layer.bias, (size,))]
        case "batch_norm":
            channels = (before[0],)
            mean, variance = keras_layer.moving_mean, keras_layer.moving_variance
            made.parameters += [Piece(keras_layer.gamma, channels), Piece(keras_layer.beta, channels)]
            made.buffers += [Piece(mean, channels), Piece(variance, channels)]
            made.normalised.append((keras_layer, math.prod(before[1:])))
        case "lstm" | "conv_lstm":
            cell, convolves = keras_layer.cell, layer.kind == "conv_lstm"
            square = (KERNEL, KERNEL) if convolves else ()
            turn: Turn = _kernel if convolves else _transposed
            of_input = Piece(cell.kernel, (4 * size, before[1], *square), turn)
            of_state = Piece(cell.recurrent_kernel, (4 * size, size, *square), turn)
            made.parameters += [of_input, Piece(cell.bias, (4 * size,)), of_state]
        case "dense":
            turn = _after_flatten(flattened) if flattened else _transposed
            made.parameters += [Piece(keras_layer.kernel, (size, before[0]), turn), Piece(keras_layer.bias, (size,))]


def _channels_last(shape: Shape) -> Shape:
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def _kernel(weight: Any) -> Any:
    import tensorflow as tf

    return tf.transpose(weight, (2, 3, 1, 0))


def _transposed(weight: Any) -> Any:
    import tensorflow as tf

    return tf.transpose(weight)


def _after_flatten(shape: Shape) -> Turn:
    """For a dense layer's weight, whose inputs were `shape` (channels, rows, columns) before they were flattened."""

    def turn(weight: Any) -> Any:
        import tensorflow as tf

        outputs = weight.shape[0]
        return tf.reshape(_kernel(tf.reshape(weight, (outputs, *shape))), (-1, outputs))

    return turn
