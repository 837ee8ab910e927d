"""Networks of the papers, as flat `nn.Sequential`s: any cut between two layers gives two stages."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lockstep.models.alexnet import alexnet
from lockstep.models.vgg import vgg16

MODELS: dict[str, Callable[[int], nn.Sequential]] = {"alexnet": alexnet, "vgg16": vgg16}

__all__ = ["MODELS", "alexnet", "vgg16"]
