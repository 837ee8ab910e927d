"""Your own network, trained by two processes: the parameters are those that one would reach."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import lockstep

dice = np.random.default_rng(0)
labels = dice.integers(0, 3, size=300)
images = dice.normal(size=(300, 1, 12, 12)).astype(np.float32)
images += labels.reshape(-1, 1, 1, 1)  # something to learn: a class is a brightness


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(400, 3))


def train(workers: int) -> lockstep.Trained:
    return lockstep.train(
        network,
        (images[:240], labels[:240]),
        test=(images[240:], labels[240:]),
        workers=workers,
        epochs=5,
        batch_size=48,  # of all workers together
        lr=0.01,
    )


if __name__ == "__main__":
    one, two = train(workers=1), train(workers=2)
    pairs = zip(one.model.parameters(), two.model.parameters(), strict=True)
    apart = max((alone - together).abs().max().item() for alone, together in pairs)
    assert apart < 1e-5
    for workers, trained in ((1, one), (2, two)):
        print(f"workers={workers}: {trained.images_per_second:.0f} images/s, {trained.scores}")
    print(f"the parameters differ by {apart:.0e} at most")

    with torch.no_grad():  # what comes back is a plain model of torch, in evaluation mode
        print("classes of five test images:", two.model(torch.from_numpy(images[240:245])).argmax(dim=1).tolist())
