"""Torch's data sets, and anything with a length and samples by number, as this library's `ImageData`."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import Arrays, Ids, Labels, Samples, prepare
from lockstep.engine.own.samples import (
    as_numbers,
    check_shape,
    labels_of,
    listed_labels,
    places_over,
    same_label,
    sample_of,
)  # fmt: skip
from lockstep.engine.training.randomness import keeping_generators

# Torch's, numpy's and Python's generators are each one per process.
_SEEDING = threading.Lock()


class MapStyle:
    """A data set whose samples are read anew whenever they are needed, where they are needed.

    `draws`: whether samples are drawn at random (augmentation). Then each is read with generators that are seeded by
    (seed, epoch, sample id), so that it does not depend on the workers; `seeded` is False if it differs all the same.
    Raises DataError, when it is made or when it loads, for samples that are no pair, not all of one shape and type, or
    whose label is not the one in `labels`.
    """

    source = "own"

    def __init__(
        self, dataset: Any, labels: Labels, classes: tuple[str, ...], draws: bool, seeded: bool = True
    ) -> None:  # fmt: skip
        self.dataset, self.labels, self.classes, self.draws, self.seeded = dataset, labels, classes, draws, seeded
        first = sample_of(dataset, 0)[0]
        self.shape, self._scaled = first.shape, first.dtype == np.uint8
        tokens = first.dtype.kind in "iu" and not self._scaled
        self.dtype = np.dtype(np.int64 if tokens else np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, ids: Ids, epoch: int, seed: int, out: Samples | None = None) -> Samples:
        """As `ImageData.load`."""
        ids, out = prepare(ids, len(self), self.shape, out, self.dtype)
        for place, sample_id in enumerate(ids.tolist()):
            found, label = self._read(sample_id, epoch, seed)
            check_shape(sample_id, found.shape, self.shape)
            self._check(sample_id, found, label)
            out[place] = found
        if self._scaled:
            np.multiply(out, np.float32(1 / 255), out=out)
        return out

    def _read(self, sample_id: int, epoch: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if not self.draws:
            return sample_of(self.dataset, sample_id)
        with _SEEDING:
            _seed_all(zlib.crc32(np.array([seed, epoch, sample_id], np.int64).tobytes()))
            return sample_of(self.dataset, sample_id)

    def _check(self, sample_id: int, found: NDArray[Any], label: NDArray[Any]) -> None:
        if (found.dtype == np.uint8) != self._scaled or not np.can_cast(found.dtype, self.dtype, "same_kind"):
            wanted = "uint8" if self._scaled else str(self.dtype)
            raise DataError(
                f"sample {sample_id} of the data set is {found.dtype}, and sample 0 {wanted}; let all be of one type"
            )
        known = self.labels[sample_id]
        if not same_label(label.astype(self.labels.dtype), np.asarray(known)):
            raise DataError(
                f"the label of sample {sample_id} of the data set is {label.tolist()}, and was {known.tolist()} in its "
                "`targets`, or when it was read first; let a sample have one label"
            )


def open_dataset(dataset: Any, numbers: bool = False, classes: Sequence[str] | None = None) -> MapStyle:
    """A map-style data set, which is read by number. Its labels are what it lists (`targets`, as torchvision's have),
    or are read once, here. `numbers`, `classes`: as in `arrays_of`. Raises DataError."""
    _check_map_style(dataset)
    with keeping_generators():
        before = _states()
        labels = labels_of(dataset)
        drawn, places = _states() != before, places_over(labels)
        first, second = (_read_seeded(dataset, places) for _ in range(2))
        # Arrays checks labels and names classes; of the inputs it sees their number.
        named = Arrays(np.zeros(len(labels), np.float32), _reached(labels) if numbers else labels, classes)
        return MapStyle(dataset, named.labels, named.classes, drawn or first != second, first == second)


def first_two(dataset: Any) -> MapStyle | None:
    """A data set of which two samples have been read, for a first look at a model; None where its labels are known at
    once, or where it has no two. Raises DataError."""
    _check_map_style(dataset)
    if len(dataset) < 2 or listed_labels(dataset) is not None:
        return None
    with keeping_generators():
        known = [sample_of(dataset, place)[1] for place in (0, 1)]
        if known[0].shape != known[1].shape or known[0].dtype.kind not in "biuf":
            return None  # what is wrong is told when all are read
        labels = np.zeros((len(dataset), *known[0].shape), np.float32 if known[0].dtype.kind == "f" else np.int64)
        labels[:2] = known
        return MapStyle(dataset, labels, (), False)


def _check_map_style(dataset: Any) -> None:
    """Raises DataError unless `dataset` has samples by number, at least one."""
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(
            f"data is a {type(dataset).__name__}, which has no samples by number that workers could share; give a "
            "map-style data set (with __getitem__ and __len__), or (images, labels) as arrays"
        )
    if not len(dataset):
        raise DataError(f"data, a {type(dataset).__name__}, is empty; give at least one sample")


def arrays_of(images: Any, labels: Any, numbers: bool = False, classes: Sequence[str] | None = None) -> Arrays:
    """Two arrays or tensors of all samples; values of other types become float32 or int64. `numbers`: whole numbers as
    labels are numbers to reach. `classes`: their names, if they are known. Raises DataError."""
    found = as_numbers(images, "images")
    if found.dtype.kind == "f" or found.dtype == bool:
        found = found.astype(np.float32, copy=False)
    elif found.dtype.kind in "iu" and found.dtype != np.uint8:
        found = found.astype(np.int64, copy=False)
    known = as_numbers(labels, "labels")
    return Arrays(found, _reached(known) if numbers else known, classes)


def _reached(labels: NDArray[Any]) -> NDArray[Any]:
    return labels.astype(np.float32) if labels.dtype.kind in "biu" else labels


def _read_seeded(dataset: Any, places: list[int]) -> list[bytes]:
    """The inputs at `places`, each read with all generators seeded alike."""
    found = []
    for place in places:
        _seed_all(place)
        found.append(sample_of(dataset, place)[0].tobytes())
    return found


def _seed_all(key: int) -> None:
    random.seed(key)
    np.random.seed(key)
    torch.default_generator.manual_seed(key)


def _states() -> tuple[str, str, bytes]:
    return repr(np.random.get_state()), repr(random.getstate()), torch.random.get_rng_state().numpy().tobytes()
