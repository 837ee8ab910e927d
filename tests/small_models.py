"""Small models of other kinds than `tiny`'s, on its images [n, 3, 7, 6]: what a reader may bring along."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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


class Embedded(nn.Module):
    """An embedding of what the pixels are rounded to: most of its rows get no gradient in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.flatten(1) * 7).long().clamp(-25, 24) + 25
        output: Tensor = self.head(self.words(ids).mean(1))
        return output
