"""What you may already have: a model, a DataLoader, an optimizer over the model's parameters and a loss of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lockstep


class Noisy(Dataset[Any]):
    """Points on two spirals, each time with other noise: augmentation that is drawn from torch's generator."""

    def __init__(self, count: int) -> None:
        self.labels = torch.arange(count) % 2
        angle = torch.linspace(0.5, 6.0, count) + torch.pi * self.labels
        length = torch.linspace(0.2, 1.0, count)
        self.points = torch.stack([length * angle.cos(), length * angle.sin()], dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.points[place] + 0.02 * torch.randn(2), self.labels[place]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    loader = DataLoader(Noisy(400), batch_size=50, shuffle=True)
    trained = lockstep.train(
        model,  # copied, with the weights that it has; it stays as it is
        loader,  # its data set and batch size; who loads, and in which order, is Lockstep's
        test=Noisy(100),
        workers=2,
        epochs=60,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        loss=nn.CrossEntropyLoss(),
    )
    assert trained.losses[-1] < trained.losses[0]
    print(f"loss {trained.losses[0]:.2f} -> {trained.losses[-1]:.2f}, {trained.scores}")
