"""Augmentation by a random affine transformation and a random change of brightness and contrast per image."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.keyed import STREAM_AFFINE, STREAM_FLIP, keyed_uniform
from lockstep.engine.data.sources import Ids, Images

ANGLE = math.radians(15)  # at most, to each side
ZOOM = 0.2  # at most, more or less than 1
MOVED = 0.1  # of the side, at most, each way
BRIGHTNESS = 0.1  # at most, added or taken away
CONTRAST = 0.2  # at most, more or less than 1

_MOST = np.array([[ANGLE], [ZOOM], [MOVED], [MOVED], [BRIGHTNESS], [CONTRAST]], np.float32)
_SCALE = np.float32(1 / 255)


def varied(pixels: NDArray[np.uint8], ids: Ids, epoch: int, seed: int) -> Images:
    """Square images [n, channels, side, side] of the samples `ids`, as float32 from 0 to 1.

    All draws are uniform and keyed by (seed, epoch, sample id). Half of the images are mirrored. Each is rotated by up
    to `ANGLE`, scaled by 1 ± `ZOOM` and shifted by up to `MOVED` of its side, all in one bilinear interpolation; pixels
    outside the image repeat its edge. Then the contrast (the distance from the image's mean) is multiplied by
    1 ± `CONTRAST`, the brightness is shifted by up to `BRIGHTNESS`, and values are clipped to 0 … 1.
    """
    mirrored = np.where(keyed_uniform(seed, epoch, ids, STREAM_FLIP) < 0.5, np.float32(-1), np.float32(1))
    # Contiguous, so that sine and cosine use the same instructions, and give the same bits, for every batch.
    draws = np.ascontiguousarray(keyed_uniform(seed, epoch, ids, STREAM_AFFINE, len(_MOST)).T)
    draws = (2 * draws - 1) * _MOST
    images = _warped(pixels, mirrored, *draws[:4, :, None, None])
    mean = images.mean(axis=(1, 2, 3), keepdims=True)
    brighter, contrast = draws[4:, :, None, None, None]
    images -= mean
    images *= 1 + contrast
    images += mean + brighter
    return np.clip(images, 0, 1, out=images)


def _warped(
    pixels: NDArray[np.uint8], mirrored: Images, angle: Images, zoom: Images, down: Images, right: Images
) -> Images:
    """Bilinear interpolation of every pixel at the point that the inverse transformation maps it to."""
    count, channels, side, _ = pixels.shape
    middle = np.float32((side - 1) / 2)
    places = np.arange(side, dtype=np.float32) - middle
    y, x = places[:, None] - side * down, places - side * right
    cos, sin = np.cos(angle) / (1 + zoom), np.sin(angle) / (1 + zoom)
    rows = np.clip(cos * y - sin * x + middle, 0, side - 1)
    columns = np.clip((sin * y + cos * x) * mirrored[:, None, None] + middle, 0, side - 1)
    top = np.minimum(rows.astype(np.int64), side - 2)
    left = np.minimum(columns.astype(np.int64), side - 2)
    below, beside = (rows - top).astype(np.float32)[:, None], (columns - left).astype(np.float32)[:, None]
    flat = pixels.reshape(-1) * _SCALE
    corner = np.arange(count * channels).reshape(count, channels, 1, 1) * side**2 + (top * side + left)[:, None]
    upper, lower = flat.take(corner), flat[side:].take(corner)
    upper += beside * (flat[1:].take(corner) - upper)
    lower += beside * (flat[side + 1 :].take(corner) - lower)
    upper += below * (lower - upper)
    return upper
