"""Divides a training set into a part to train on and a held-out part for validation, by file names alone."""

from __future__ import annotations

import math
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.patients import patient_or_name
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import Ids, ImageData, Photos, Samples, sample_dtype

PARTS = ("all", "kept", "held_out")
SHARE = 5
"""One image in so many is held out."""


def part_of_training(data: ImageData, part: str) -> ImageData:
    """`all` of a training set, its `held_out` part, or the `kept` rest; the new sample ids count from 0.

    In each class, the fifth (rounded up) of the files with the lowest sha256 of "validation/<file name>" is held out;
    images without a file are hashed by their number. Images of one patient, as far as the names say, stay together, so
    a few more may be held out; otherwise the network could recognize the patient, and validation would be too
    optimistic. Held-out photos are not augmented. Raises DataError for a class of one image, or of one patient.
    """
    if part not in PARTS:
        raise DataError(f"part={part!r} does not exist; there are: {', '.join(PARTS)}")
    if part == "all":
        return data
    held = _held_out(data)
    ids = np.flatnonzero(held if part == "held_out" else ~held)
    if isinstance(data, Photos):
        return data.picked(ids, augment=data.augment and part == "kept")
    if isinstance(data, SmallImages):
        return data.picked(ids, augment=part == "kept")
    return Selection(data, ids)


class Selection:
    """Some of the images of another data set."""

    def __init__(self, data: ImageData, ids: Ids) -> None:
        self.data, self.ids = data, ids
        self.classes, self.shape, self.source, self.labels = data.classes, data.shape, data.source, data.labels[ids]
        self.dtype = sample_dtype(data)

    def __len__(self) -> int:
        return len(self.ids)

    def load(self, ids: Ids, epoch: int, seed: int, out: Samples | None = None) -> Samples:
        """As `ImageData.load`."""
        return self.data.load(self.ids[np.asarray(ids, np.int64)], epoch, seed, out)


def _held_out(data: ImageData) -> NDArray[np.bool_]:
    held = np.zeros(len(data), bool)
    for label, name in enumerate(data.classes):
        of_class = np.flatnonzero(data.labels == label)
        groups: dict[bytes, list[int]] = {}
        for sample_id in of_class.tolist():
            groups.setdefault(patient_or_name(data, sample_id), []).append(sample_id)
        if len(groups) == 1:
            what = "image" if len(of_class) == 1 else "patient"
            raise DataError(
                f"class {name!r} has one training {what}, too few to hold some out for validation; add images, or give "
                "scored_on='test'"
            )
        # Never all of them, because some must be left to train on.
        for group in sorted(groups, key=lambda group: sha256(b"validation/" + group).digest())[:-1]:
            if held[of_class].sum() < math.ceil(len(of_class) / SHARE):
                held[groups[group]] = True
    return held
