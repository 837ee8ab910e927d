"""Invented pictures of fire, smoke and neither: photo-like in size, texture and decoding cost.

Everything is integer arithmetic on textures made once, so a picture costs about two milliseconds and is the same
on every machine. The classes overlap on purpose: smoke stands in front of fire, sunsets and fog have neither.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CLASSES = ("fire", "none", "smoke")
SHORT_SIDE = 256
_LONG_SIDES = (288, 320, 341, 360, 384, 400, 455)
_BANK_SIDE = 1024
_NOISE = 6  # percent of pictures drawn as another class: about the label noise of the real set

Plane = NDArray[np.int16]


def draw_picture(seed: int, split: int, label: int, number: int) -> Image.Image:
    """Picture `number` of a class (an index into CLASSES) and split; the same arguments give the same picture."""
    dice = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, split, label, number])))
    if dice.integers(100) < _NOISE:
        label = (label + int(dice.integers(1, 3))) % 3
    fire, smoke = _amounts(dice, CLASSES[label])
    height, width = SHORT_SIDE, int(dice.choice(_LONG_SIDES))
    if dice.integers(100) < 12:
        height, width = width, height
    return Image.fromarray(_compose(dice, height, width, fire, smoke))


def _amounts(dice: np.random.Generator, name: str) -> tuple[int, int]:
    """How much fire and smoke (0 … 100) a picture of a class shows."""
    if name == "fire":
        return int(dice.integers(20, 101)), int(dice.integers(0, 80))
    if name == "smoke":
        return (int(dice.integers(0, 40)) if dice.integers(100) < 35 else 0), int(dice.integers(25, 101))
    # A sunset or a red stage; fog, clouds or a grey wall.
    warm = int(dice.integers(0, 60)) if dice.integers(100) < 25 else 0
    grey = int(dice.integers(0, 60)) if dice.integers(100) < 30 else 0
    return warm, grey


def _compose(dice: np.random.Generator, height: int, width: int, fire: int, smoke: int) -> NDArray[np.uint8]:
    soft, rough, grain = _bank()
    shape = (height, width)
    shade, tint, plume, flames = (_crop(dice, soft, shape) for _ in range(4))
    texture = _crop(dice, rough, shape)
    light = _scaled(texture, int(dice.integers(20, 65))) + _scaled(shade, int(dice.integers(20, 70)))
    light += _scaled(_crop(dice, grain, shape), int(dice.integers(2, 18)))
    sky, ground = dice.integers(50, 200), dice.integers(30, 150)
    cast = dice.integers(-28, 29, size=(2, 3))
    hues = dice.integers(-24, 25, size=3)
    # Masks are 0 … 127: a difference of two colours times a mask still fits 16 bits.
    smoke_mask = _mask(plume + (texture >> 3), 60 - smoke, 5, smoke)
    fire_mask = _mask(flames + (texture >> 1), 130 - fire, 16, 40 + fire * 6 // 10)
    smoke_colour = dice.integers(90, 220) + dice.integers(-8, 9, size=3)
    fire_colour = np.array([255, dice.integers(110, 215), dice.integers(20, 110)])
    down = np.linspace(0, 256, height).astype(np.int64)
    picture = np.empty((height, width, 3), dtype=np.uint8)
    for channel in range(3):
        top, bottom = int(sky + cast[0, channel]), int(ground + cast[1, channel])
        plane = light + (top + ((bottom - top) * down >> 8)).astype(np.int16)[:, None]
        plane += _scaled(tint, int(hues[channel]))
        np.clip(plane, 0, 255, out=plane)
        _blend(plane, int(smoke_colour[channel]), smoke_mask)
        _blend(plane, int(fire_colour[channel]), fire_mask)
        plane += texture >> 3  # flames and smoke have texture too
        np.clip(plane, 0, 255, out=plane)
        picture[:, :, channel] = plane
    return picture


def _scaled(plane: Plane, percent: int) -> Plane:
    return plane * np.int16(percent * 128 // 100) >> 7


def _mask(field: Plane, threshold: int, gain: int, strength: int) -> Plane:
    """0 … 127 (times strength / 100) where the field is above the threshold, with an edge as steep as the gain."""
    mask = (field - np.int16(threshold)) * np.int16(gain)
    np.clip(mask, 0, 127, out=mask)
    return _scaled(mask, min(strength, 100))


def _blend(plane: Plane, colour: int, mask: Plane) -> None:
    plane += (np.int16(colour) - plane) * mask >> 7


def _crop(dice: np.random.Generator, texture: Plane, shape: tuple[int, int]) -> Plane:
    top, left = (int(dice.integers(0, _BANK_SIDE - side + 1)) for side in shape)
    crop = texture[top : top + shape[0], left : left + shape[1]]
    return crop[:, ::-1] if dice.integers(2) else crop


@lru_cache(maxsize=1)
def _bank() -> tuple[Plane, Plane, Plane]:
    """Three square textures with values within -128 … 127: soft, rough, and as fine as a pixel."""
    dice = np.random.Generator(np.random.PCG64(20_22))
    soft = _texture(dice, {6: 4, 12: 3, 24: 1})
    rough = _texture(dice, {24: 4, 48: 4, 96: 3, 192: 3, 384: 2})
    grain = _texture(dice, {384: 2, 640: 3, 1024: 1})
    return soft, rough, grain


def _texture(dice: np.random.Generator, octaves: dict[int, int]) -> Plane:
    """A weighted sum of random grids of so many cells each, smoothly enlarged (by Pillow: in integers)."""
    total = np.zeros((_BANK_SIDE, _BANK_SIDE), dtype=np.int32)
    for cells, weight in octaves.items():
        grid = Image.fromarray(dice.integers(0, 256, size=(cells, cells), dtype=np.uint8))
        large = grid.resize((_BANK_SIDE, _BANK_SIDE), Image.Resampling.BICUBIC)
        total += weight * (np.asarray(large).astype(np.int32) - 128)
    # The sum of several octaves has less contrast than one: three halves of the mean keeps about the same.
    return (total * 3 // (2 * sum(octaves.values()))).clip(-128, 127).astype(np.int16)
