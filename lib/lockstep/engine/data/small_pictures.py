"""Invented small pictures for the stand-ins of *ConvLSTM-D-Accel*'s data sets: textures with stripes.

The direction of the stripes is the class. Some are faint and some labels wrong on purpose, so that no network is
perfect. Integer arithmetic on textures made once: a picture costs a tenth of a millisecond, the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 64
_BANK_SIDE = 512
_NOISE = 6  # percent of pictures drawn as another class
_DIRECTIONS = ((1, 0), (0, 1), (1, 1), (1, -1))  # of each class: as many classes as a stand-in can have

Plane = NDArray[np.int16]


def draw_small_picture(seed: int, split: int, label: int, number: int, classes: int, grey: bool) -> Image.Image:
    """Picture `number` of a class (0 to `classes` - 1) and split; the same arguments give the same picture."""
    dice = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, split, label, number, classes, grey])))
    if dice.integers(100) < _NOISE:
        label = (label + int(dice.integers(1, classes))) % classes
    strength, period, phase = int(dice.integers(4, 56)), int(dice.integers(6, 15)), int(dice.integers(0, 64))
    light = _crop(dice) + (_stripes(label, period, phase) * np.int16(strength) >> 5)
    if grey:
        return Image.fromarray(_within(light + np.int16(dice.integers(80, 176))))
    hues = dice.integers(64, 192, size=3).astype(np.int16)
    return Image.fromarray(_within(light[:, :, None] + (_crop(dice) >> 1)[:, :, None] + hues))


def _stripes(label: int, period: int, phase: int) -> Plane:
    """A wave of triangles, -32 to 32."""
    across, down = _DIRECTIONS[label]
    places = np.arange(SIDE, dtype=np.int16)
    place = (across * places[None, :] + down * places[:, None] + np.int16(phase + 4 * SIDE)) % np.int16(period)
    return np.abs(2 * place - period) * np.int16(64) // np.int16(period) - np.int16(32)


def _crop(dice: np.random.Generator) -> Plane:
    top, left = (int(place) for place in dice.integers(0, _BANK_SIDE - SIDE + 1, size=2))
    crop = _bank()[top : top + SIDE, left : left + SIDE]
    return crop[:, ::-1] if dice.integers(2) else crop


def _within(picture: Plane) -> NDArray[np.uint8]:
    return np.clip(picture, 0, 255).astype(np.uint8)


@lru_cache(maxsize=1)
def _bank() -> Plane:
    """A square texture, about -100 to 100: clouds, blots and grain, smoothly enlarged (by Pillow: in integers)."""
    dice = np.random.Generator(np.random.PCG64(20_24))
    total = np.zeros((_BANK_SIDE, _BANK_SIDE), dtype=np.int32)
    for cells, weight in {8: 3, 24: 3, 64: 2, 512: 1}.items():
        grid = Image.fromarray(dice.integers(0, 256, size=(cells, cells), dtype=np.uint8))
        large = grid.resize((_BANK_SIDE, _BANK_SIDE), Image.Resampling.BICUBIC)
        total += weight * (np.asarray(large).astype(np.int32) - 128)
    return (total // 6).astype(np.int16)
