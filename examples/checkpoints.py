"""Break off and go on: a training that is resumed from its checkpoint ends with the parameters of one that never was
interrupted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import lockstep

dice = np.random.default_rng(0)
rows = dice.normal(size=(320, 10)).astype(np.float32)
reached = (rows @ dice.normal(size=(10, 1)) + 0.1 * dice.normal(size=(320, 1))).astype(np.float32)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))


def train(epochs: int, **options: Any) -> lockstep.Trained:
    data, test = (rows[:256], reached[:256]), (rows[256:], reached[256:])
    return lockstep.train(
        network, data, test=test, workers=2, epochs=epochs, batch_size=32, loss="mse",
        optimizer=torch.optim.Adam, lr=0.01, **options,
    )  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "own.checkpoint"  # written after every epoch, whole or not at all
        train(2, checkpoint=file)
        resumed = train(6, checkpoint=file, resume=True)  # four more epochs
    whole = train(6)
    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    apart = max((one - other).abs().max().item() for one, other in pairs)
    assert apart < 1e-5
    print(f"{len(resumed.losses)} steps after the checkpoint; the parameters differ by {apart:.0e} at most")
    print(resumed.scores)
