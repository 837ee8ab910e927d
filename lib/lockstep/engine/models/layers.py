"""The small networks of *ConvLSTM-D-Accel* as lists of layers, which torch and Keras build alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("cnn", "convlstm", "convlstm2d")
POOLINGS = ("max", "average", "none")
HEADS = ("default", "lstm", "dense", "one_step", "shuffled", "frozen", "long")
"""What reads the features of a convlstm: its LSTM (default, lstm), or a control that stands beside it.

dense      a dense layer of all features and a ReLU, as wide as gives the head as many parameters as the LSTM's, within
           1 %: 242 units instead of an LSTM of 128 over 4 positions of 128 channels
one_step   an LSTM that reads all features in its only step, likewise as wide (87 units). No step is before it, so a
           forget gate and recurrent weights would have nothing to act on: it has three gates and no such weights
shuffled   the LSTM, over the positions in another order, which is the same for all images, seeds and runs
frozen     the LSTM with the weights that it starts with: all layers but this one are trained
long       the LSTM, over all features one by one, position by position: 512 steps of 1 value, not 4 of 128
"""

# Table 2 of the paper: 50 x 50 pixels, and three 5 x 5 convolutions without padding.
SIZE = 50
KERNEL = 5
FILTERS = (32, 64, 128)
# The paper gives no sizes for the layers after the flattened features: LSTM, dense, output (section 3).
LSTM_UNITS = 128
DENSE_UNITS = 64
# An LSTM is written out step by step: its time grows with the positions that it reads.
MOST_STEPS = 512
# The share of parameters by which a head that is to be as large as the LSTM's may differ.
_SAME_SIZE = 0.01
# A true convolutional LSTM (Shi et al. 2015) needs a sequence of images, and an X-ray is one: its rows are cut into
# frames, top to bottom. With 16 filters its four gates cost about as much as Table 2's convolutions.
FRAMES = 5
FRAME_FILTERS = 16


_OF_HEAD = {"lstm_units": LSTM_UNITS, "dense_units": DENSE_UNITS, "head": "default"}
_WIDE = {"dense": 1, "one_step": 3}
"""Heads that are as large as the LSTM's: how many weights a unit has for each feature."""


TORCH_HEADS = ("one_step", "frozen", "long")
"""Heads that are not built in Keras: it has no such layer, no place for frozen weights, and 512 steps in its graph."""


class Layer(NamedTuple):
    """One layer, and how many filters, units, classes or frames it has.

    conv         `size` filters of 5 x 5, no padding             batch_norm   over samples and pixels, by channel
    max_pool     2 x 2, a last odd row or column is left out     average_pool likewise
    dropout      the n-th one draws from its own stream          relu         behind max_pool: a quarter of the work
    flatten      pixels and channels in a row                    positions    [h, w, c] -> [h w, c], by rows
    lstm         the last state of `size` units                  frames       [rows, w] -> [`size`, rows / `size`, w]
    conv_lstm    the last state of `size` filters of 5 x 5: no padding of frames, zero padding of the state
    frozen_lstm  an lstm that is not trained             gated        the state after the only step of an LSTM
    shuffled     positions, see `shuffled_order`         values       [h, w, c] -> [h w c, 1], position by position
    dense        `size` units
    """

    kind: str
    size: int = 0


@dataclass(frozen=True)
class Network:
    """A network for images of `channels` x 50 x 50; two classes have one output, a logit for the second of them.

    `dropout` follows each pooling (or what stands in its place) and the dense layer before the output. Weights start
    as Keras's do: Glorot uniform (an LSTM's recurrent ones orthogonal) and biases 0 (those of forget gates 1).
    `convolutions`: the first ones of Table 2. The units of the LSTM and of the dense layer behind it, and the `head`
    (see HEADS), are a convlstm's alone. Raises ValueError for what can't be built.
    """

    kind: str = "cnn"
    channels: int = 3
    classes: int = 2
    pooling: str = "max"
    dropout: float = 0.0
    batch_norm: bool = False
    lstm_units: int = LSTM_UNITS
    dense_units: int = DENSE_UNITS
    convolutions: int = len(FILTERS)
    head: str = "default"

    def __post_init__(self) -> None:
        for name, allowed in (("kind", KINDS), ("pooling", POOLINGS), ("head", HEADS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} does not exist; there are: {', '.join(allowed)}")
        for name, least in (("channels", 1), ("classes", 2), ("lstm_units", 1), ("dense_units", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least {least}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout!r} is no share of units; give at least 0 and less than 1")
        self._check_convolutions()
        if self.kind == "convlstm":
            self._check_head()
        elif given := [name for name, usual in _OF_HEAD.items() if getattr(self, name) != usual]:
            raise ValueError(
                f"{given[0]}={getattr(self, given[0])!r} with kind={self.kind!r}, which has no such layer; give "
                "kind='convlstm', or leave it out"
            )

    def _check_convolutions(self) -> None:
        given, most = self.convolutions, len(FILTERS)
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
            raise ValueError(
                f"convolutions={given!r} is not possible: {SIZE} x {SIZE} pixels carry {most} of {KERNEL} x {KERNEL} "
                f"pixels with a pooling behind each; give a whole number from 1 to {most}"
            )
        if self.kind == "convlstm2d" and given != most:
            raise ValueError(
                f"convolutions={given} with kind='convlstm2d', whose LSTM has the convolutions; give kind='cnn' or "
                "'convlstm', or leave it out"
            )

    def _check_head(self) -> None:
        """Raises ValueError for features that the head can't read: too many steps, or too many of them for its size."""
        if self.head in _WIDE:
            self.head_units  # noqa: B018
            return
        channels, rows, columns = self._features
        steps = rows * columns * (channels if self.head == "long" else 1)
        if steps <= MOST_STEPS:
            return
        if self.pooling == "none":
            given, of, fix = "pooling='none'", "of unpooled features", "'max' or 'average'"
        else:
            given, of = f"convolutions={self.convolutions}", f"of their features, and it reads at most {MOST_STEPS}"
            fix = f"convolutions={len(FILTERS)}"
        head = f", head={self.head!r}" if self.head == "long" else ""
        what = "values" if self.head == "long" else "positions"
        raise ValueError(
            f"kind='convlstm' with {given}{head}: an LSTM over the {steps:,} {what} {of}; give {fix}, or kind='cnn'"
        )

    @property
    def _features(self) -> tuple[int, int, int]:
        """Channels, rows and columns of what the convolutions and poolings give."""
        shape: tuple[int, ...] = (self.channels, SIZE, SIZE)
        for layer in self._blocks:
            shape = _shape_after(layer, shape)
        channels, rows, columns = shape
        return channels, rows, columns

    @property
    def head_units(self) -> int:
        """The units of the layer that reads the features: the LSTM's, or as many as give an equally large head.

        Raises ValueError where no whole number of them comes within 1 % of the parameters of the LSTM's head.
        """
        if self.head not in _WIDE:
            return self.lstm_units
        channels, rows, columns = self._features
        behind = self.dense_units + (self.dense_units + 1) * self.outputs  # biases of the dense layer, and the output
        wanted = self.lstm_units * (4 * (channels + self.lstm_units + 1) + self.dense_units)
        each = _WIDE[self.head] * (channels * rows * columns + 1) + self.dense_units
        units = max(1, round(wanted / each))
        if abs(units * each - wanted) > _SAME_SIZE * (wanted + behind):
            raise ValueError(
                f"head={self.head!r} of {units} unit(s) has {units * each + behind:,} parameters and the LSTM's "
                f"{wanted + behind:,}: over {channels * rows * columns:,} features no whole number of units comes "
                f"within {100 * _SAME_SIZE:g} %; give convolutions={len(FILTERS)} with a pooling, and other lstm_units"
            )
        return units

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
    def parameters(self) -> int:
        """The number of weights and biases, those of a frozen LSTM too."""
        return sum(map(_parameters_of, self.layers, self.shapes))

    @property
    def head_parameters(self) -> int:
        """Those behind the convolutions and their poolings; of a convlstm2d all."""
        behind = 0 if self.kind == "convlstm2d" else len(self._blocks)
        return sum(map(_parameters_of, self.layers[behind:], self.shapes[behind:]))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, first to last."""
        if self.kind == "convlstm2d":
            return (
                *(Layer("frames", FRAMES), Layer("conv_lstm", FRAME_FILTERS), *self._normalised(), *self._pooled()),
                *(Layer("flatten"), *self._dense()),
            )
        if self.kind == "cnn":
            return (*self._blocks, Layer("flatten"), Layer("dense", self.outputs))
        return (*self._blocks, *self._head(), *self._dense())

    @property
    def _blocks(self) -> tuple[Layer, ...]:
        return tuple(each for filters in FILTERS[: self.convolutions] for each in self._block(filters))

    def _head(self) -> tuple[Layer, ...]:
        units = self.head_units
        match self.head:
            case "dense":
                return Layer("flatten"), Layer("dense", units), Layer("relu")
            case "one_step":
                return Layer("flatten"), Layer("gated", units)
            case "long":
                return Layer("values"), Layer("lstm", units)
            case "shuffled":
                return Layer("positions"), Layer("shuffled"), Layer("lstm", units)
        return Layer("positions"), Layer("frozen_lstm" if self.head == "frozen" else "lstm", units)

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
        return (Layer("dense", self.dense_units), Layer("relu"), *self._dropping(), Layer("dense", self.outputs))

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
        case "values", _:
            return math.prod(shape), 1
        case "lstm" | "frozen_lstm" | "gated" | "dense", _:
            return (size,)
        case "flatten", _:
            return (math.prod(shape),)
    return shape  # of batch_norm, relu, dropout and shuffled


def _parameters_of(layer: Layer, before: tuple[int, ...]) -> int:
    size = layer.size
    match layer.kind:
        case "conv":
            return size * (before[0] * KERNEL**2 + 1)
        case "batch_norm":
            return 2 * before[0]
        case "conv_lstm":
            return 4 * size * ((before[1] + size) * KERNEL**2 + 1)
        case "lstm" | "frozen_lstm":
            return 4 * size * (before[1] + size + 1)
        case "gated":
            return 3 * size * (before[0] + 1)
        case "dense":
            return size * (before[0] + 1)
    return 0


def shuffled_order(positions: int) -> tuple[int, ...]:
    """The one order in which a shuffled head reads so many positions: the even ones, last to first, then the odd ones.

    Of four positions 2, 0, 3, 1. From four on no two neighbors are read one after the other.
    """
    return (*range(0, positions, 2),)[::-1] + (*range(1, positions, 2),)[::-1]
