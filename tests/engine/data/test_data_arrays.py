"""A reader's own arrays."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.loader import Loader
from lockstep.engine.data.sources import Arrays, ImageData, are_classes

IMAGES = np.random.default_rng(0).normal(size=(5, 2, 6, 4)).astype(np.float32)
LABELS = [0, 2, 1, 0, 2]


def test_floats_are_used_as_they_are() -> None:
    data = Arrays(IMAGES, LABELS)
    assert isinstance(data, ImageData)
    assert (data.shape, data.classes, data.source, len(data)) == ((2, 6, 4), ("0", "1", "2"), "own", 5)
    assert data.labels.dtype == np.int64
    np.testing.assert_array_equal(data.load(np.array([3, 1]), epoch=4, seed=5), IMAGES[[3, 1]])
    out = np.empty((1, 2, 6, 4), dtype=np.float32)
    assert data.load(np.array([2]), 0, 0, out) is out
    np.testing.assert_array_equal(out[0], IMAGES[2])


def test_bytes_are_scaled_to_one() -> None:
    images = np.array([0, 51, 255], dtype=np.uint8).reshape(3, 1, 1, 1)
    loaded = Arrays(images, [0, 1, 1], ["no", "yes"]).load(np.arange(3), 0, 0)
    assert loaded.dtype == np.float32
    np.testing.assert_allclose(loaded.ravel(), [0, 0.2, 1], rtol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2), (5, 1, 2, 3, 4)])
def test_samples_have_any_shape(shape: tuple[int, ...]) -> None:
    images = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    data = Arrays(images, LABELS)
    assert data.shape == shape[1:] and data.dtype == np.float32
    np.testing.assert_array_equal(data.load(np.array([4, 0]), 0, 0), images[[4, 0]])


def test_whole_numbers_stay_whole_numbers() -> None:
    data = Arrays(np.arange(15).reshape(5, 3), LABELS)
    assert data.dtype == data.load(np.arange(2), 0, 0).dtype == np.int64
    with Loader(data, 0) as loader:
        np.testing.assert_array_equal(loader.take(0, [3]).images, [[9, 10, 11]])


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [(np.linspace(0, 1, 5), np.float32), (np.eye(5), np.float32), (np.eye(5, dtype=int), np.int64)],
)
def test_labels_may_be_no_classes(labels: np.ndarray, dtype: type) -> None:
    data = Arrays(IMAGES, labels)
    assert data.classes == () and data.labels.dtype == dtype and not are_classes(data.labels)
    np.testing.assert_allclose(data.labels, labels)


def test_arrays_survive_pickling() -> None:
    copy = pickle.loads(pickle.dumps(Arrays(IMAGES, LABELS, ["a", "b", "c"])))
    assert copy.classes == ("a", "b", "c")
    np.testing.assert_array_equal(copy.load(np.arange(5), 0, 0), IMAGES)


@pytest.mark.parametrize(
    ("images", "labels", "classes", "message"),
    [
        (IMAGES.tolist(), LABELS, None, r"images is a list; give a numpy array \[n, \.\.\.\]"),
        (IMAGES[0], LABELS, None, r"labels has shape \[5\] for 2 images"),
        (IMAGES.astype(float), LABELS, None, r"images has type float64; give float32"),
        (IMAGES[:0], [], None, r"images has shape \[0, 2, 6, 4\].*at least one image"),
        (np.zeros((5, 8, 8, 3), np.uint8), LABELS, None, r"looks like channels last.*transpose\(0, 3, 1, 2\)"),
        (IMAGES, LABELS[:4], None, r"labels has shape \[4\] for 5 images; give one label per image"),
        (IMAGES, [[0]] * 5, None, r"labels has shape \[5, 1\] for 5 images; give \[5\] for classes"),
        (IMAGES, ["a", "b", "a", "b", "a"], None, r"labels has type <U1; give whole numbers"),
        (IMAGES, [0, 1, -1, 0, 1], None, r"label -1 at place 2 is negative; number the classes from 0"),
        (IMAGES, LABELS, ["a", "b"], r"label 2 has no name among the 2 classes"),
        (IMAGES, [0] * 5, None, r"labels hold only 1 class; training needs at least 2"),
    ],
)
def test_arrays_that_do_not_fit(images: object, labels: object, classes: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Arrays(images, labels, classes)  # type: ignore[arg-type]


def test_wrong_ids_and_memory() -> None:
    data = Arrays(IMAGES, LABELS)
    for wrong in (5, -1):
        with pytest.raises(DataError, match=f"sample id {wrong} does not exist in a set of 5"):
            data.load(np.array([wrong]), 0, 0)
    with pytest.raises(DataError, match=r"out is float64 \[1, 2, 6, 4\]; give float32 \[1, 2, 6, 4\]"):
        data.load(np.array([0]), 0, 0, np.empty((1, 2, 6, 4)))  # type: ignore[arg-type]
