"""Models and data as readers bring them to `lockstep.train`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import lockstep
from here import Here
from lockstep.api import Trained
from lockstep.engine.launch import LAUNCHERS

DICE = np.random.default_rng(5)
ROWS = DICE.normal(size=(24, 4)).astype(np.float32)
CLASSES = (ROWS[:, 0] > 0).astype(np.int64)
REACHED = (ROWS[:, :2] * 2 + 1).astype(np.float32)
SEVERAL = (ROWS[:, :2] > 0).astype(np.int64)
TOKENS = DICE.integers(0, 9, size=(24, 3))
IMAGES = DICE.normal(size=(24, 3, 5, 5)).astype(np.float32)
PAIR = (ROWS, CLASSES)
SPOILT = ROWS.copy()
SPOILT[17, 3] = np.nan


def linear(outputs: int = 2, inputs: int = 4) -> Any:
    return functools.partial(nn.Linear, inputs, outputs)


class Wrapped(nn.Module):
    """A model whose output is what `wrap` makes of it."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.inner, self.wrap = nn.Linear(4, 2), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.inner(x))


class Output:
    """As HuggingFace's models return."""

    def __init__(self, logits: Tensor) -> None:
        self.loss, self.logits = None, logits


class Pairs(Dataset):
    """Map style, with labels that are known only sample by sample."""

    def __init__(self, shift: Any = None, make: Any = lambda x, y: (x, y)) -> None:
        self.shift, self.make = shift, make

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, place: int) -> Any:
        if place >= len(ROWS):
            raise IndexError(place)
        row = torch.from_numpy(ROWS[place])
        return self.make(row if self.shift is None else row + self.shift(), int(CLASSES[place]))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        yield ROWS[0], 0


class Ragged(Pairs):
    def __getitem__(self, place: int) -> Any:
        return torch.zeros(5 if place == 9 else 4), int(CLASSES[place])


def tensors() -> TensorDataset:
    return TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(CLASSES))


def train_here(model: Any, data: Any = PAIR, **options: Any) -> Trained:
    """`lockstep.train` by one worker in this process, unless `options` say otherwise; warnings are in its cautions."""
    settings: dict[str, Any] = {"launcher": "here", "workers": 1, "epochs": 2, "batch_size": 10}
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(action="ignore"):
        patched.setitem(LAUNCHERS, "here", Here)
        return lockstep.train(model, data, **(settings | options))
