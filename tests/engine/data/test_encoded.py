"""Images that travel as bytes are those that files give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from lockstep.engine.data import DataError, open_folder
from lockstep.engine.data.encoded import encoded, received
from lockstep.engine.data.small import SmallImages
from photo_sets import photo_set


def test_photos_that_came_as_bytes_are_decoded_like_files(tmp_path: Path) -> None:
    data = open_folder(photo_set(tmp_path / "set"), "train")
    ids = np.array([3, 0, 17])
    there = received(data)
    there.contents.update({int(number): encoded(data, int(number)) for number in ids})
    for epoch in (0, 1):  # each has other photos mirrored
        assert np.array_equal(there.load(ids, epoch, 5), data.load(ids, epoch, 5))
    with pytest.raises(DataError, match="sample 4 has not come; 3 others have"):
        there.load(np.array([4]), 0, 5)


def test_a_damaged_photo_is_named(tmp_path: Path) -> None:
    data = open_folder(photo_set(tmp_path / "set"), "train")
    there = received(data)
    there.contents[0] = b"no photo"
    with pytest.raises(DataError, match=r"00\.jpg.*not an image"):
        there.load(np.array([0]), 0, 0)
    Path(data.path(1)).unlink()
    with pytest.raises(DataError, match=r"01\.jpg.*can't be read"):
        encoded(data, 1)


def test_small_images_travel_as_numbers_unless_augmented(tmp_path: Path) -> None:
    data = SmallImages.of(open_folder(photo_set(tmp_path / "set", 2, 1), "train"), 1)
    there = received(data)
    there.contents[3] = encoded(data, 3)
    assert np.array_equal(there.load(np.array([3]), 0, 0), data.load(np.array([3]), 0, 0))
    with pytest.raises(DataError, match="augmented images of a SmallImages can't travel as bytes"):
        encoded(SmallImages.of(data.photos, 1, "flip"), 3)


def test_arrays_travel_as_they_are() -> None:
    data, there = tiny.arrays(), received(tiny.arrays())
    there.contents[2] = encoded(data, 2)
    out = np.empty((1, *data.shape), np.float32)
    assert np.array_equal(there.load(np.array([2]), 0, 0, out), data.images[[2]]) and np.array_equal(
        out, data.images[[2]]
    )
    assert len(there) == len(data) and there.classes == data.classes
