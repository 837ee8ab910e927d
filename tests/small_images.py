"""Images of 50 x 50 pixels that can be told apart, and use cases that train small networks on them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tiny
from lockstep.engine.data.sources import Arrays
from lockstep.engine.models.layers import SIZE, Network
from lockstep.engine.usecases import UseCase
from lockstep.measure.environment import NO_TENSORFLOW, has_tensorflow

needs_tensorflow = pytest.mark.skipif(not has_tensorflow(), reason=NO_TENSORFLOW)


def images(samples: int, network: Network) -> Arrays:
    """float32 images from 0 to 1; each class has a bright band of its own, under noise."""
    dice = np.random.default_rng(11)
    labels = np.arange(samples) % network.classes
    pixels = dice.random((samples, network.channels, SIZE, SIZE), dtype=np.float32)
    band = SIZE // network.classes
    for image, label in zip(pixels, labels, strict=True):
        image[:, label * band : (label + 1) * band] += 0.5
    return Arrays(pixels / np.float32(1.5), labels)


def small_case(network: Network, *, adam: bool = False, **changes: Any) -> UseCase:
    """37 images for training and 11 for tests; SGD, which keeps roundings as small as they are, unless told."""
    case = UseCase.of(network, "own", train=images(tiny.SAMPLES, network), test=images(11, network))
    return dataclasses.replace(case, **({} if adam else {"optimiser": tiny.SGD}) | changes)
