"""The interface between a training loop and a set of images, and its two implementations: photo files and arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.keyed import STREAM_FLIP, keyed_uniform
from lockstep.engine.data.photos import SIZE, decode_photo

Images = NDArray[np.float32]
Samples = NDArray[Any]  # of any shape: float32, or int64 where they are token ids
Labels = NDArray[Any]
Ids = NDArray[np.int64]


@runtime_checkable
class ImageData(Protocol):
    """Labelled samples that can be loaded by sample id: images, or rows and sequences of a reader's own.

    Implementations are picklable and safe to load from threads. Where samples are not float32, they have a `dtype`.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names; empty where labels are no classes."""

    @property
    def labels(self) -> Labels:
        """int64 [n], the class of each sample as an index into `classes`; or targets of any other kind [n, ...]."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample; (channels, height, width) of an image."""

    @property
    def source(self) -> str:
        """real | synthetic | own"""

    def __len__(self) -> int: ...
    def load(self, ids: Ids, epoch: int, seed: int, out: Samples | None = None) -> Samples:
        """Samples float32 (or `dtype`) [len(ids), *shape]; written into `out` (that shape) if given.

        Augmentation depends on (seed, epoch, sample id) alone. Raises DataError.
        """


def sample_dtype(data: ImageData) -> np.dtype[Any]:
    """The type of the samples of `data`: float32, unless it says otherwise."""
    return np.dtype(getattr(data, "dtype", np.float32))


def are_classes(labels: Labels) -> bool:
    """Are these labels a class each (int64 [n]), and not numbers to reach, several labels per sample, or tokens?"""
    return labels.ndim == 1 and labels.dtype == np.int64


@dataclass(frozen=True, eq=False)
class Photos:
    """One split of a folder of photos (see `lockstep.engine.data.folders.open_photos`).

    Decoded anew at each load; if `augment`, half of them are mirrored, chosen by (seed, epoch, sample id).
    """

    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    folders: tuple[str, ...]  # of each class
    names: bytes  # file names, one after the other: 200 000 `str` objects would be slow to send to a worker
    ends: NDArray[np.int64]  # [n], where each name ends in `names`
    source: str
    augment: bool
    size: int = SIZE

    @classmethod
    def of(
        cls, classes: Sequence[str], folders: Sequence[str], names: Sequence[Sequence[str]], source: str, augment: bool
    ) -> Photos:
        """From the file names in each class's folder, in that order."""
        encoded = [os.fsencode(name) for of_class in names for name in of_class]
        counts = [len(of_class) for of_class in names]
        return cls(
            classes=tuple(classes),
            labels=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
            folders=tuple(folders),
            names=b"".join(encoded),
            ends=np.cumsum([len(name) for name in encoded], dtype=np.int64),
            source=source,
            augment=augment,
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (3, self.size, self.size)

    def name(self, sample_id: int) -> bytes:
        """The name of a sample's file, without its folder."""
        return self.names[int(self.ends[sample_id - 1]) if sample_id else 0 : int(self.ends[sample_id])]

    def path(self, sample_id: int) -> str:
        """The path of a sample's file."""
        return os.path.join(self.folders[int(self.labels[sample_id])], os.fsdecode(self.name(sample_id)))

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`. DataError for a file that can't be read and for an id that does not exist."""
        ids, out = prepare(ids, len(self), self.shape, out)
        flips = (keyed_uniform(seed, epoch, ids, STREAM_FLIP) < 0.5).tolist() if self.augment else [False] * len(ids)
        for place, (sample_id, flip) in enumerate(zip(ids.tolist(), flips, strict=True)):
            self._decode(sample_id, flip, out[place])
        return out

    def _decode(self, sample_id: int, flip: bool, out: Images) -> None:
        decode_photo(self.path(sample_id), flip, self.size, out)

    def subset(self, count: int) -> Photos:
        """`count` of the photos, each class in proportion (at least one of each), chosen by a hash of the file name.

        The same files on every machine; ids are new, 0 to count - 1. A count of all or more gives all.
        Raises DataError for a count below the number of classes.
        """
        if count >= len(self):
            return self
        if count < len(self.classes):
            raise DataError(
                f"images={count} is less than one for each of the {len(self.classes)} classes "
                f"({', '.join(self.classes)}); give at least {len(self.classes)}"
            )
        chosen: list[int] = []
        for label, share in enumerate(_proportional(np.bincount(self.labels), count)):
            of_class = np.flatnonzero(self.labels == label).tolist()
            chosen += sorted(of_class, key=lambda sample_id: sha256(self.name(sample_id)).digest())[:share]
        return self.picked(np.sort(np.array(chosen, np.int64)), self.augment)

    def picked(self, ids: Ids, augment: bool) -> Photos:
        """The photos with these ids, in ascending order; the new ids count from 0."""
        names: list[list[str]] = [[] for _ in self.classes]
        for sample_id in ids.tolist():
            names[int(self.labels[sample_id])].append(os.fsdecode(self.name(sample_id)))
        return Photos.of(self.classes, self.folders, names, self.source, augment)


class Arrays:
    """A reader's own images, rows or sequences in memory.

    `images` [n, ...] of any shape: float32 and int64 (token ids) are used as they are, uint8 is scaled to 0 … 1.
    `labels`: whole numbers from 0 [n], a class each, whose names are `classes` (without them, "0", "1", …); or targets,
    float [n] and [n, k], and whole numbers [n, k], as several labels per sample are. Nothing is augmented, and nothing
    is copied but labels of another type than float32 and int64. Raises DataError for arrays that don't fit together.
    """

    source = "own"

    def __init__(self, images: Samples, labels: ArrayLike, classes: Sequence[str] | None = None) -> None:
        self.images = _check_images(images)
        self.labels = _check_labels(labels, len(self.images))
        self.classes: tuple[str, ...] = ()
        if are_classes(self.labels):
            self.classes = _named_classes(self.labels, classes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what `load` gives."""
        return np.dtype(np.int64 if self.images.dtype == np.int64 else np.float32)

    def load(self, ids: Ids, epoch: int, seed: int, out: Samples | None = None) -> Samples:
        """As `ImageData.load`; `epoch` and `seed` change nothing."""
        ids, out = prepare(ids, len(self), self.shape, out, self.dtype)
        np.copyto(out, self.images[ids])
        if self.images.dtype == np.uint8:
            np.multiply(out, np.float32(1 / 255), out=out)
        return out


def prepare(
    ids: Ids, count: int, shape: tuple[int, ...], out: Samples | None, dtype: Any = np.float32
) -> tuple[Ids, Samples]:
    """Ids that exist, and memory [len(ids), *shape] for their samples: `out`, if it is given. Raises DataError."""
    ids = np.asarray(ids, dtype=np.int64)
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
        raise DataError(f"sample id {wrong} does not exist in a set of {count} images; give 0 to {count - 1}")
    wanted = (len(ids), *shape)
    if out is None:
        out = np.empty(wanted, dtype=dtype)
    elif out.shape != wanted or out.dtype != dtype:
        raise DataError(f"out is {out.dtype} {list(out.shape)}; give {np.dtype(dtype)} {list(wanted)}")
    return ids, out


def _proportional(sizes: NDArray[np.int64], count: int) -> list[int]:
    """`count` divided in proportion to `sizes`, at least 1 each, by the method of largest remainders."""
    exact = sizes * count / sizes.sum()
    shares = np.maximum(np.floor(exact).astype(np.int64), 1)
    while shares.sum() < count:
        shares[np.argmax(np.where(shares < sizes, exact - shares, -np.inf))] += 1
    while shares.sum() > count:
        shares[np.argmax(np.where(shares > 1, shares - exact, -np.inf))] -= 1
    return [int(share) for share in shares]


def _check_images(images: Samples) -> Samples:
    if not isinstance(images, np.ndarray):
        raise DataError(
            f"images is a {type(images).__name__}; give a numpy array [n, ...], of images [n, channels, height, width]"
        )
    if images.ndim < 1 or 0 in images.shape:
        raise DataError(f"images has shape {list(images.shape)}, so it holds nothing; give at least one image")
    if images.dtype not in (np.float32, np.uint8, np.int64):
        raise DataError(
            f"images has type {images.dtype}; give float32, uint8 (0 … 255) or, for token ids, int64: "
            "images.astype('float32')"
        )
    if images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] > 4:
        raise DataError(
            f"images has shape {list(images.shape)}, which looks like channels last; "
            "give [n, channels, height, width]: images.transpose(0, 3, 1, 2)"
        )
    return images


def _check_labels(labels: ArrayLike, count: int) -> Labels:
    array = np.asarray(labels)
    if not array.ndim or len(array) != count or 0 in array.shape:
        raise DataError(f"labels has shape {list(array.shape)} for {count} images; give one label per image, [{count}]")
    if np.issubdtype(array.dtype, np.floating):
        return array.astype(np.float32, copy=False)
    if array.dtype.kind not in "iub":
        raise DataError(
            f"labels has type {array.dtype}; give whole numbers from 0 for classes (of names: "
            "np.unique(labels, return_inverse=True)[1]), or floats"
        )
    if array.shape == (count, 1):
        raise DataError(
            f"labels has shape {list(array.shape)} for {count} images; give [{count}] for classes: labels.reshape(-1), "
            "or floats for numbers to reach: labels.astype('float32')"
        )
    if array.ndim == 1 and array.min() < 0:
        raise DataError(f"label {array.min()} at place {int(array.argmin())} is negative; number the classes from 0")
    return array.astype(np.int64, copy=False)


def _named_classes(labels: Labels, classes: Sequence[str] | None) -> tuple[str, ...]:
    largest = int(labels.max())
    named = tuple(str(label) for label in range(largest + 1)) if classes is None else tuple(classes)
    if largest >= len(named):
        raise DataError(
            f"label {largest} has no name among the {len(named)} classes {named}; "
            f"give at least {largest + 1} class names, or labels from 0 to {len(named) - 1}"
        )
    if len(named) < 2:
        raise DataError(f"labels hold only {len(named)} class; training needs at least 2")
    return named
