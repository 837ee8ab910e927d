"""The part of a training set that is held out to choose settings on: a function of file names alone."""

from __future__ import annotations

import math
import re
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import Ids, ImageData, Images, Photos

PARTS = ("all", "kept", "held_out")
SHARE = 5
"""One image in so many is held out."""
_PATIENT = re.compile(rb"(person\d+)_|((?:NORMAL\d*-)?IM-\d+)-")
"""How the public chest X-ray set begins the names of a patient's images."""


def part_of_training(data: ImageData, part: str) -> ImageData:
    """`all` of a training set, what is `held_out` of it, or the rest, which is `kept`; ids are new, from 0.

    Held out are, of each class, the fifth (rounded up) of its files with the lowest sha256 of "validation/<file name>";
    of images that are no files, the number stands for the name. Images of one patient, as far as names tell, stay
    together (the patient stands for the name, so a few more may be held out): a network would know the patient again
    and validation promise too much. Photos that are held out are not augmented. Raises DataError for a class of one
    image, or of one patient.
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
    """Some images of another set."""

    def __init__(self, data: ImageData, ids: Ids) -> None:
        self.data, self.ids = data, ids
        self.classes, self.shape, self.source, self.labels = data.classes, data.shape, data.source, data.labels[ids]

    def __len__(self) -> int:
        return len(self.ids)

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`."""
        return self.data.load(self.ids[np.asarray(ids, np.int64)], epoch, seed, out)


def _held_out(data: ImageData) -> NDArray[np.bool_]:
    held = np.zeros(len(data), bool)
    for label, name in enumerate(data.classes):
        of_class = np.flatnonzero(data.labels == label)
        groups: dict[bytes, list[int]] = {}
        for sample_id in of_class.tolist():
            groups.setdefault(_group(_name(data, sample_id)), []).append(sample_id)
        if len(groups) == 1:
            what = "image" if len(of_class) == 1 else "patient"
            raise DataError(
                f"class {name!r} has one training {what}, too few to hold some out for validation; add images, or give "
                "scored_on='test'"
            )
        # Never the last one: something must be left to train on.
        for group in sorted(groups, key=lambda group: sha256(b"validation/" + group).digest())[:-1]:
            if held[of_class].sum() < math.ceil(len(of_class) / SHARE):
                held[groups[group]] = True
    return held


def _group(name: bytes) -> bytes:
    """What stays together: a patient's images, else each for itself."""
    found = _PATIENT.match(name)
    return (found[1] or found[2]) if found else name


def _name(data: ImageData, sample_id: int) -> bytes:
    return data.name(sample_id) if isinstance(data, Photos | SmallImages) else str(sample_id).encode()
