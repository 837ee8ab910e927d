"""The small networks of *ConvLSTM-D-Accel* as lists of layers, which torch and Keras build alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("cnn", "convlstm", "convlstm2d")
POOLINGS = ("max", "average", "none")

# Table 2 of the paper: 50 x 50 pixels, and three 5 x 5 convolutions without padding.
SIZE = 50
KERNEL = 5
FILTERS = (32, 64, 128)
# The paper gives no sizes for the layers after the flattened features: LSTM, dense, output (section 3).
LSTM_UNITS = 128
DENSE_UNITS = 64
# A true convolutional LSTM (Shi et al. 2015) needs a sequence of images, and an X-ray is one: its rows are cut into
# frames, top to bottom. With 16 filters its four gates cost about as much as Table 2's convolutions.
FRAMES = 5
FRAME_FILTERS = 16


class Layer(NamedTuple):
    """One layer, and how many filters, units, classes or frames it has.

    conv         `size` filters of 5 x 5, no padding             batch_norm   over samples and pixels, by channel
    max_pool     2 x 2, a last odd row or column is left out     average_pool likewise
    dropout      the n-th one draws from its own stream          relu         behind max_pool: a quarter of the work
    flatten      pixels and channels in a row                    positions    [h, w, c] -> [h w, c], by rows
    lstm         the last state of `size` units                  frames       [rows, w] -> [`size`, rows / `size`, w]
    conv_lstm    the last state of `size` filters of 5 x 5: no padding of frames, zero padding of the state
    dense        `size` units
    """

    kind: str
    size: int = 0


@dataclass(frozen=True)
class Network:
    """A network for images of `channels` x 50 x 50; two classes have one output, a logit for the second of them.

    `dropout` follows each pooling (or what stands in its place) and the dense layer before the output. Weights start
    as Keras's do: Glorot uniform (an LSTM's recurrent ones orthogonal) and biases 0 (those of forget gates 1). Raises
    ValueError for what can't be built.
    """

    kind: str = "cnn"
    channels: int = 3
    classes: int = 2
    pooling: str = "max"
    dropout: float = 0.0
    batch_norm: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("pooling", POOLINGS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} does not exist; there are: {', '.join(allowed)}")
        for name, least in (("channels", 1), ("classes", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least {least}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout!r} is no share of units; give at least 0 and less than 1")
        if self.kind == "convlstm" and self.pooling == "none":
            raise ValueError(
                "kind='convlstm' with pooling='none': an LSTM over the 1,444 positions of unpooled features; give "
                "'max' or 'average', or kind='cnn'"
            )

    @property
    def outputs(self) -> int:
        """The number of outputs: one logit for two classes, otherwise one for each class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of one image, and of the output of each layer: (channels, rows, columns), after frames or
        positions."""
        found: list[tuple[int, ...]] = [(self.channels, SIZE, SIZE)]
        for layer in self.layers:
            found.append(_shape_after(layer, found[-1]))
        return tuple(found)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, first to last."""
        if self.kind == "convlstm2d":
            return (
                *(Layer("frames", FRAMES), Layer("conv_lstm", FRAME_FILTERS), *self._normalised(), *self._pooled()),
                *(Layer("flatten"), *self._dense()),
            )
        blocks = [each for filters in FILTERS for each in self._block(filters)]
        if self.kind == "cnn":
            return (*blocks, Layer("flatten"), Layer("dense", self.outputs))
        return (*blocks, Layer("positions"), Layer("lstm", LSTM_UNITS), *self._dense())

    def _block(self, filters: int) -> tuple[Layer, ...]:
        before = (Layer("conv", filters), *self._normalised())
        if self.pooling == "max":  # the maximum of what is positive: the same function as in the paper's order
            return (*before, Layer("max_pool"), Layer("relu"), *self._dropping())
        return (*before, Layer("relu"), *self._pooled())

    def _normalised(self) -> tuple[Layer, ...]:
        return (Layer("batch_norm"),) if self.batch_norm else ()

    def _pooled(self) -> tuple[Layer, ...]:
        pooling = () if self.pooling == "none" else (Layer(f"{self.pooling}_pool"),)
        return (*pooling, *self._dropping())

    def _dense(self) -> tuple[Layer, ...]:
        return (Layer("dense", DENSE_UNITS), Layer("relu"), *self._dropping(), Layer("dense", self.outputs))

    def _dropping(self) -> tuple[Layer, ...]:
        return (Layer("dropout"),) if self.dropout else ()


def _shape_after(layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    size, cut = layer.size, KERNEL - 1
    match layer.kind, shape:
        case "conv", (_, rows, columns):
            return size, rows - cut, columns - cut
        case "max_pool" | "average_pool", (channels, rows, columns):
            return channels, rows // 2, columns // 2
        case "frames", (channels, rows, columns):
            return size, channels, rows // size, columns
        case "conv_lstm", (_, _, rows, columns):
            return size, rows - cut, columns - cut
        case "positions", (channels, rows, columns):
            return rows * columns, channels
        case "lstm" | "dense", _:
            return (size,)
        case "flatten", _:
            return (math.prod(shape),)
    return shape  # of batch_norm, relu and dropout
