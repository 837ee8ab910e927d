"""The small networks of *ConvLSTM-D-Accel* in torch: a CNN, a CNN followed by an LSTM, and a ConvLSTM2D.

`lockstep.engine.models.layers` describes them.

The paper's "ConvLSTM" is the second: an LSTM that reads the flattened features of a CNN. ConvLSTM2D is what the name
means elsewhere (Shi et al. 2015): an LSTM whose products with input and state are convolutions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lockstep.engine.models.layers import KERNEL, Layer, Network, shuffled_order


def build_network(network: Network) -> nn.Sequential:
    """`network` for float images [n, channels, 50, 50]; returns logits [n, network.outputs].

    Of grey images and two classes: 257,537 parameters (cnn), 396,929 (convlstm), 98,049 (convlstm2d). Initialised
    from torch's generator (`torch.manual_seed`).
    """
    pairs = zip(network.layers, network.shapes[:-1], strict=True)
    layers = [_layer(layer, before, network.dropout) for layer, before in pairs]
    for layer in layers:
        _initialise(layer)
    return nn.Sequential(*layers)


class Positions(nn.Module):
    """[n, channels, rows, columns] -> [n, rows x columns, channels]: as Keras's Flatten lays them out."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2).contiguous()


class Shuffled(nn.Module):
    """[n, positions, channels] with the positions in the order of `shuffled_order`."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.order = list(shuffled_order(positions))

    def extra_repr(self) -> str:
        return f"{self.order}"

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.order]


class Values(nn.Module):
    """[n, channels, rows, columns] -> [n, rows x columns x channels, 1]: all features as steps of one value."""

    def forward(self, x: Tensor) -> Tensor:
        # A copy: a stage of a pipeline can't end with a view.
        return x.flatten(2).transpose(1, 2).flatten(1).unsqueeze(2).clone()


class Gated(nn.Module):
    """The state of an LSTM after its first and only step: [n, inputs] -> [n, units].

    The cell before is 0, so neither a forget gate nor recurrent weights would change anything: there are none.
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 3 * units)

    def forward(self, x: Tensor) -> Tensor:
        passed, new, shown = self.input(x).chunk(3, dim=1)
        return shown.sigmoid() * (passed.sigmoid() * new.tanh()).tanh()


class Frames(nn.Module):
    """[n, channels, rows, columns] -> [n, frames, channels, rows / frames, columns], top to bottom."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames

    def extra_repr(self) -> str:
        return f"{self.frames}"

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.frames, -1)).transpose(1, 2).contiguous()


class LSTM(nn.Module):
    """The last state of an LSTM: [n, steps, inputs] -> [n, units].

    Unrolled by hand: torch's own is no faster beside three convolutions, hides its products from
    `torch.utils.flop_counter`, and has two biases, whose sum Adam would move twice as fast as Keras's one.
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 4 * units)
        self.recurrent = nn.Linear(units, 4 * units, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return _unrolled(self.input(x), self.recurrent)


class ConvLSTM2D(nn.Module):
    """The last state of a convolutional LSTM (without peepholes, as Keras's): [n, steps, c, h, w] -> [n, filters, …].

    The frames are not padded, so the state has `KERNEL` - 1 rows and columns less; the state is, with zeros.
    """

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.input = nn.Conv2d(channels, 4 * filters, KERNEL)
        self.recurrent = nn.Conv2d(filters, 4 * filters, KERNEL, padding=KERNEL // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return _unrolled(self.input(x.flatten(0, 1)).unflatten(0, x.shape[:2]), self.recurrent)


def _unrolled(given: Tensor, recurrent: nn.Module) -> Tensor:
    """The last state of an LSTM, from the input's contribution to the gates in each step: [n, steps, 4 units, …]."""
    first, *others = given.unbind(1)
    passed, _, new, shown = first.chunk(4, dim=1)  # the order of the gates, in Keras as in torch
    cell = passed.sigmoid() * new.tanh()  # the state and the cell are 0 at first
    state = shown.sigmoid() * cell.tanh()
    for each in others:
        passed, kept, new, shown = (each + recurrent(state)).chunk(4, dim=1)
        cell = kept.sigmoid() * cell + passed.sigmoid() * new.tanh()
        state = shown.sigmoid() * cell.tanh()
    return state


def _layer(layer: Layer, before: tuple[int, ...], dropout: float) -> nn.Module:
    match layer.kind:
        case "conv":
            return nn.Conv2d(before[0], layer.size, KERNEL)
        case "batch_norm":
            return nn.BatchNorm2d(before[0])
        case "relu":
            return nn.ReLU(inplace=True)
        case "max_pool":
            return nn.MaxPool2d(2)
        case "average_pool":
            return nn.AvgPool2d(2)
        case "dropout":
            return nn.Dropout(dropout)
        case "flatten":
            return nn.Flatten()
        case "positions":
            return Positions()
        case "frames":
            return Frames(layer.size)
        case "shuffled":
            return Shuffled(before[0])
        case "values":
            return Values()
        case "gated":
            return Gated(before[0], layer.size)
        case "lstm":
            return LSTM(before[1], layer.size)
        case "frozen_lstm":
            return LSTM(before[1], layer.size).requires_grad_(False)
        case "conv_lstm":
            return ConvLSTM2D(before[1], layer.size)
        case "dense":
            return nn.Linear(before[0], layer.size)
    raise AssertionError(layer)


def _initialise(layer: nn.Module) -> None:
    """Initialize a layer as Keras does, so that both frameworks learn alike."""
    own = layer.input if isinstance(layer, LSTM | ConvLSTM2D | Gated) else layer
    if not isinstance(own, nn.Conv2d | nn.Linear):
        return
    assert own.bias is not None
    nn.init.xavier_uniform_(own.weight)
    nn.init.zeros_(own.bias)
    if isinstance(layer, LSTM | ConvLSTM2D):
        nn.init.orthogonal_(layer.recurrent.weight)
        with torch.no_grad():
            own.bias.chunk(4)[1].fill_(1.0)  # biases of the forget gates, so that the cell is kept at first
