"""Images of 50 x 50 pixels, decoded once and kept in memory: thousands of them are some tens of megabytes.

The first process to use a data set decodes it, in threads, and stores the pixels in the user's cache: one file per data
set. Every other process of the machine maps that file into its memory, so that they share it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray

from lockstep.engine.data.affine import varied
from lockstep.engine.data.folders import SPLITS
from lockstep.engine.data.keyed import STREAM_FLIP, STREAM_SHIFT, keyed_uniform
from lockstep.engine.data.photos import decode_small
from lockstep.engine.data.readable_cache import cache_folder, key_of
from lockstep.engine.data.sources import Ids, Images, Photos, prepare
from lockstep.engine.data.threads import in_threads, with_progress
from lockstep.engine.files import WriteError, write_atomically
from lockstep.engine.models.layers import SIZE

SHIFT = SIZE // 10
"""Pixels that `shift` moves an image by at most, to each side."""
LEAST_DEVIATION = np.float32(1e-3)
"""What `standardise` divides by at least: an image of one colour becomes zeros."""

_SCALE = np.float32(1 / 255)
_KEPT = 8  # sets of this process
_DIGEST = 24  # bytes

Pixels = NDArray[np.uint8]
# By content list. Ranks that are threads share the pixels, and so do the parts of one data set.
_known: OrderedDict[str, tuple[Pixels, int]] = OrderedDict()
_looking = threading.Lock()


@dataclass(frozen=True, eq=False)
class SmallImages:
    """Some of `photos`, the centre square scaled to 50 x 50, grey (`channels` 1) or RGB (3), as numbers from 0 to 1.

    `augment` is keyed by (seed, epoch, sample id): none | flip: half of the images are mirrored | shift: mirrored in
    the same way, and shifted by up to `SHIFT` pixels in each direction, with the edge's pixels repeated | affine: see
    `lockstep.engine.data.affine`. With `standardise` each image gets mean 0 and standard deviation 1 over its channels
    and pixels. Pickling sends only the names of the files to a worker.
    """

    photos: Photos
    ids: Ids  # those of `photos` that are in this set
    labels: NDArray[np.int64]
    channels: int
    augment: str
    key: str  # of the content list
    standardise: bool = False

    @classmethod
    def of(cls, photos: Photos, channels: int, augment: str = "none", standardise: bool = False) -> SmallImages:
        """All of `photos`; their own augmentation is ignored."""
        content = "\0".join((f"{channels} x {SIZE}", *photos.folders, *map(str, np.bincount(photos.labels)), ""))
        key = blake2b(os.fsencode(content) + photos.names + photos.ends.tobytes(), digest_size=_DIGEST).hexdigest()
        return cls(photos, np.arange(len(photos)), photos.labels, channels, augment, key, standardise)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.photos.classes

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.channels, SIZE, SIZE)

    @property
    def source(self) -> str:
        return self.photos.source

    def name(self, sample_id: int) -> bytes:
        """The name of a sample's file, without its folder."""
        return self.photos.name(int(self.ids[sample_id]))

    def picked(self, ids: Ids, augment: bool) -> SmallImages:
        """Those with these ids, numbered from 0 and standardized as here. `augment`: as in this set, or not at all."""
        how = self.augment if augment else "none"
        return replace(self, ids=self.ids[ids], labels=self.labels[ids], augment=how)

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`. The first call in a process decodes all of `photos`; DataError for an unreadable one."""
        ids, out = prepare(ids, len(self), self.shape, out)
        pixels, _ = _pixels(self)
        if self.augment == "affine":
            images = varied(pixels[self.ids[ids]], ids, epoch, seed)
        else:
            chosen = pixels[self.ids[ids]] if self.augment == "none" else self._moved(pixels, ids, epoch, seed)
            images = np.multiply(chosen, _SCALE, out=None if self.standardise else out)
        if self.standardise:
            images -= images.mean(axis=(1, 2, 3), dtype=np.float64, keepdims=True).astype(np.float32)
            images /= np.maximum(images.std(axis=(1, 2, 3), keepdims=True), LEAST_DEVIATION)
        if images is not out:
            out[...] = images
        return out

    def _moved(self, pixels: Pixels, ids: Ids, epoch: int, seed: int) -> Pixels:
        down, right = np.zeros((2, len(ids)), np.int64)
        if self.augment == "shift":
            draws = keyed_uniform(seed, epoch, ids, STREAM_SHIFT, 2)
            down, right = np.floor(draws * (2 * SHIFT + 1)).astype(np.int64).T - SHIFT
        places = np.arange(SIZE)
        rows = np.clip(places - down[:, None], 0, SIZE - 1)
        columns = np.clip(places - right[:, None], 0, SIZE - 1)
        mirrored = keyed_uniform(seed, epoch, ids, STREAM_FLIP) < 0.5
        columns[mirrored] = columns[mirrored, ::-1]
        channels = np.arange(self.channels)[:, None, None]
        which = self.ids[ids][:, None, None, None]
        return pixels[which, channels, rows[:, None, :, None], columns[:, None, None, :]]

    @property
    def enlarged(self) -> int:
        """How many of `photos` were smaller than 50 x 50."""
        return _pixels(self)[1]


def _pixels(data: SmallImages) -> tuple[Pixels, int]:
    """uint8 [photos, channels, 50, 50], and how many were enlarged."""
    with _looking:  # one rank thread decodes, the others wait for it
        if data.key not in _known:
            path, dates = _file_of(data), _dates(data)
            _known[data.key] = _recalled(data, path, dates) or _decoded(data, path, dates)
            if len(_known) > _KEPT:
                _known.popitem(last=False)
        _known.move_to_end(data.key)
        return _known[data.key]


def _decoded(data: SmallImages, path: Path | None, dates: bytes) -> tuple[Pixels, int]:
    count = len(data.photos)
    pixels, enlarged = np.empty((count, *data.shape), np.uint8), 0

    def decode(place: int) -> bool:
        pixels[place], small = decode_small(data.photos.path(place), data.channels, SIZE)
        return small

    what = f"decoding the images of {_dataset(data)!r}, once"
    enlarged = sum(with_progress(in_threads(decode, range(count)), count, what))
    if path is not None:
        with contextlib.suppress(OSError, WriteError):  # a cache that can't be written is no error
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            # Perhaps of patients, and a copy of what its owner may have kept from others.
            write_atomically(path, (dates, enlarged.to_bytes(8), pixels), private=True)
    return pixels, enlarged


def _dataset(data: SmallImages) -> str:
    above = Path(data.photos.folders[0]).parent
    return above.parent.name if above.name.casefold() in SPLITS else above.name


def _recalled(data: SmallImages, path: Path | None, dates: bytes) -> tuple[Pixels, int] | None:
    if path is None or not dates:
        return None
    with contextlib.suppress(OSError, ValueError):  # no such file, or a damaged one
        with path.open("rb") as file:
            if file.read(_DIGEST) != dates:
                return None
            enlarged = int.from_bytes(file.read(8))
        return np.memmap(path, np.uint8, "r", _DIGEST + 8, (len(data.photos), *data.shape)), enlarged
    return None


def _dates(data: SmallImages) -> bytes:
    """A digest that changes with any file and with the decoder; empty if a file can't be read: decoding reports it."""
    digest = blake2b(f"small images, version 1, Pillow {PIL.__version__}".encode(), digest_size=_DIGEST)
    try:
        for place in range(len(data.photos)):
            digest.update(key_of("", os.stat(data.photos.path(place))))
    except OSError:
        return b""
    return digest.digest()


def _file_of(data: SmallImages) -> Path | None:
    """The cache file of the pixels; None if it would be among the images themselves."""
    try:
        base = cache_folder().resolve()
    except (OSError, RuntimeError):
        return None
    if any(base.is_relative_to(Path(folder).parent) for folder in data.photos.folders):
        return None
    return base / "small" / f"{data.key}.pixels"
