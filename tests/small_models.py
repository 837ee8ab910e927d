"""Small models of other kinds than `tiny`'s, on its images [n, 3, 7, 6]: what a reader may bring along."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import tiny


class Attending(nn.Module):
    """A transformer encoder over the 7 rows of an image; `dropout` also drops weights of its attention."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.widen = nn.Linear(18, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 9, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.widen(x.transpose(1, 2).flatten(2))
        output: Tensor = self.head(self.encoder(rows).mean(1))
        return output


class Recurrent(nn.Module):
    """Two LSTM layers over the rows of an image, with `dropout` between them, and keyed dropout behind them."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(18, 5, 2, dropout=dropout, batch_first=True)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.drop(self.lstm(x.transpose(1, 2).flatten(2))[0][:, -1]))
        return output


class Tied(nn.Module):
    """A layer whose weight is used once more, transposed, by a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(18, 18), nn.Linear(18, 18, bias=False)
        self.outer.weight = self.inner.weight
        self.head = nn.Linear(18, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).flatten(2).mean(1)
        output: Tensor = self.head(self.outer(torch.relu(self.inner(rows))))
        return output


class Unused(nn.Module):
    """A parameter that no forward pass reads."""

    def __init__(self) -> None:
        super().__init__()
        self.spare, self.head = nn.Parameter(torch.ones(4)), nn.Linear(126, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(x.flatten(1))
        return output


class Normalised(nn.Module):
    """A convolution, batch normalization with these options, which may be frozen, or used twice, and a linear layer."""

    def __init__(self, frozen: bool = False, twice: bool = False, **options: Any) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, **options)
        self.norm.requires_grad_(not frozen)
        self.mix, self.head = nn.Conv2d(5, 5, 1), nn.Linear(100, 3)
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(torch.relu(self.norm(self.convolution(x))))
        output: Tensor = self.head((self.norm(x) if self.twice else x).flatten(1))
        return output


class Evaluating(Normalised):
    """Whose batch normalization is left as it was before training: it evaluates while all else trains."""

    def train(self, mode: bool = True) -> Evaluating:
        super().train(mode)
        self.norm.eval()
        return self


class NormalisedInput(nn.Module):
    """Batch normalization of images, which have no gradient, without parameters: nothing goes back through it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3, affine=False), nn.Linear(126, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.norm(x).flatten(1))
        return output


class Fails(nn.Module):
    """Passes on what it gets; rank 1 misbehaves, in the forward pass or on the way back."""

    def __init__(self, how: str, backward: bool) -> None:
        super().__init__()
        self.how, self.backward = how, backward

    def forward(self, x: Tensor) -> Tensor:
        if tiny.rank() == 1:
            if not self.backward:
                tiny.misbehave(self.how)
            elif x.requires_grad:
                x.register_hook(lambda _: tiny.misbehave(self.how))
        return x


def failing_at_normalisation(how: str, backward: bool) -> nn.Module:
    """`tiny.normalised_net`, whose rank 1 fails before the statistics are summed, or before their gradients are."""
    first, norm, *others = tiny.normalised_net().children()
    fails = Fails(how, backward)
    return nn.Sequential(first, *([norm, fails] if backward else [fails, norm]), *others)


class Embedded(nn.Module):
    """An embedding of what the pixels are rounded to: most of its rows get no gradient in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.flatten(1) * 7).long().clamp(-25, 24) + 25
        output: Tensor = self.head(self.words(ids).mean(1))
        return output
