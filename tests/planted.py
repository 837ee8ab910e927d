"""Models and data with something planted in them that slows training down."""

from __future__ import annotations

import threading
import time

import torch
from torch import Tensor, nn

from lockstep.engine.data.sources import Arrays, Ids, Images

INPUT = "3,64,64"


def healthy() -> nn.Module:
    """A step of 64 images takes some ten milliseconds, and what does not depend on the batch far less than that."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 4)),
    )


class HalfSpeed(nn.Module):
    """Rank 1 computes everything twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = healthy()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        if threading.current_thread().name.endswith("-rank-1"):
            output = (output + self.inner(x)) / 2
        return output


SMALL_NUMBERS = (64, 1024)
"""As many as `Denormal` multiplies at a time. Seen with 64 x 256 of them, on a processor with fast cores: a step took
1.9 times as long where they are kept, which is below the twofold from which on a cause is named."""


class Denormal(nn.Module):
    """Most of its products are numbers below 1e-38."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = healthy()
        self.register_buffer("small", torch.full(SMALL_NUMBERS, 1e-39))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        return output + shrunk(self.small).sum()


def shrunk(numbers: Tensor) -> Tensor:
    for _ in range(200):
        numbers = numbers * 0.999
    return numbers


def denormals_are_slow_here() -> bool:
    """Whether this processor multiplies denormal numbers by microcode: Intel's do, AMD's of late do not."""

    def seconds(value: float) -> float:
        numbers, taken = torch.full(SMALL_NUMBERS, value), []
        for _ in range(7):
            begun = time.perf_counter()
            shrunk(numbers)
            taken.append(time.perf_counter() - begun)
        return min(taken)

    return seconds(1e-39) > 5 * seconds(1.0)


def wide() -> nn.Module:
    """Few products for many parameters, all of which are exchanged."""
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, 1500), nn.ReLU(), nn.Linear(1500, 4))


class SlowPhotos(Arrays):
    """Each image takes so long to decode, in whichever thread."""

    SECONDS = 0.005

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        time.sleep(self.SECONDS * len(ids))
        return super().load(ids, epoch, seed, out)
