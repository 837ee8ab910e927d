"""Folders of photos: found in any case, in a stable order; whatever is missing is named with its fix."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_photos
from lockstep.engine.data.keyed import STREAM_FLIP, keyed_uniform
from lockstep.engine.data.photos import decode_photo
from lockstep.engine.data.sources import ImageData, Photos


def touch(root: Path, *names: str) -> None:
    """Empty files: only names are read when a folder is opened."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def names_of(photos: Photos) -> list[str]:
    return [os.path.basename(photos.path(sample_id)) for sample_id in range(len(photos))]


def small_set(root: Path, per_class: int = 3) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            touch(root, *(f"set/{split}/{name}/{split}{number}.jpg" for number in range(per_class)))


def test_labels_classes_and_paths(tmp_path: Path) -> None:
    small_set(tmp_path)
    photos = open_photos(tmp_path, "set", "train")
    assert isinstance(photos, ImageData)
    assert (photos.classes, photos.shape, photos.source, len(photos)) == (("a", "b"), (3, 224, 224), "real", 6)
    assert photos.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert photos.labels.dtype == np.int64
    assert photos.path(0) == str(tmp_path / "set/train/a/train0.jpg")
    assert photos.path(5) == str(tmp_path / "set/train/b/train2.jpg")
    assert names_of(open_photos(tmp_path, "set", "test"))[0] == "test0.jpg"


def test_names_in_any_case_and_other_files(tmp_path: Path) -> None:
    touch(tmp_path, "Fire-Smoke/TRAIN/NORMAL/b.JPEG", "Fire-Smoke/TRAIN/NORMAL/a.Png", "Fire-Smoke/TRAIN/Fire/é.JPG")
    touch(tmp_path, "Fire-Smoke/Test/normal/x.jpg", "Fire-Smoke/Test/fire/y.jpg", "Fire-Smoke/val/normal/z.jpg")
    touch(tmp_path, "Fire-Smoke/MANIFEST.csv", "Fire-Smoke/TRAIN/NORMAL/Thumbs.db", "Fire-Smoke/TRAIN/NORMAL/._a.jpg")
    touch(tmp_path, "Fire-Smoke/TRAIN/.cache/a.jpg", "Fire-Smoke/TRAIN/__MACOSX/a.jpg")
    train, test = (open_photos(tmp_path, "fire-smoke", split) for split in ("train", "test"))
    assert train.classes == test.classes == ("fire", "normal")
    assert names_of(train) == ["é.JPG", "a.Png", "b.JPEG"]
    assert names_of(test) == ["y.jpg", "x.jpg"]


def test_the_order_does_not_depend_on_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_set(tmp_path, per_class=20)
    expected = names_of(open_photos(tmp_path, "set", "train"))
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(real(path), reverse=True))
    assert names_of(open_photos(tmp_path, "set", "train")) == expected


@pytest.mark.parametrize("inner", ["", "train/"])
def test_without_a_test_folder_a_fifth_is_set_aside(tmp_path: Path, inner: str) -> None:
    for name, count in (("a", 50), ("b", 7), ("c", 2)):
        touch(tmp_path, *(f"set/{inner}{name}/{number}.jpg" for number in range(count)))
    train, test = (open_photos(tmp_path, "set", split) for split in ("train", "test"))
    assert np.bincount(test.labels).tolist() == [10, 1, 1]
    assert np.bincount(train.labels).tolist() == [40, 6, 1]
    paths = [photos.path(sample_id) for photos in (train, test) for sample_id in range(len(photos))]
    assert len(set(paths)) == 59
    assert names_of(test)[:10] != [f"{number}.jpg" for number in range(10)]
    assert names_of(open_photos(tmp_path, "set", "test")) == names_of(test)


def test_photos_survive_pickling(tmp_path: Path) -> None:
    small_set(tmp_path)
    photos = open_photos(tmp_path, "set", "train")
    copy = pickle.loads(pickle.dumps(photos))
    assert names_of(copy) == names_of(photos)
    assert copy.classes == photos.classes
    np.testing.assert_array_equal(copy.labels, photos.labels)


def test_loading_flips_training_photos_by_seed_epoch_and_id_only(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / "set" / split / name).mkdir(parents=True)
            for number in range(4):
                pixels = dice.integers(0, 256, (256, 256, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / f"set/{split}/{name}/{number}.jpg")
    train, test = (open_photos(tmp_path, "set", split) for split in ("train", "test"))
    ids = np.array([6, 0, 3, 5, 1, 2, 4, 7])
    flips = keyed_uniform(9, 2, ids, STREAM_FLIP) < 0.5
    assert 0 < flips.sum() < 8
    expected = np.stack([decode_photo(train.path(i), bool(flip)) for i, flip in zip(ids, flips, strict=True)])
    np.testing.assert_array_equal(train.load(ids, 2, 9), expected)
    np.testing.assert_array_equal(train.load(ids[3:], 2, 9), expected[3:])
    assert not np.array_equal(train.load(ids, 3, 9), expected)
    np.testing.assert_array_equal(test.load(ids, 2, 9), test.load(ids, 3, 8))
    out = np.empty((8, 3, 224, 224), dtype=np.float32)
    assert train.load(ids, 2, 9, out) is out


def test_a_subset_keeps_the_proportions(tmp_path: Path) -> None:
    touch(tmp_path, *(f"set/train/a/{number}.jpg" for number in range(60)), "set/test/a/x.jpg", "set/test/b/x.jpg")
    touch(tmp_path, *(f"set/train/b/{number}.jpg" for number in range(30)))
    photos = open_photos(tmp_path, "set", "train")
    subset = photos.subset(9)
    assert np.bincount(subset.labels).tolist() == [6, 3]
    assert {subset.path(i) for i in range(9)} <= {photos.path(i) for i in range(90)}
    assert {subset.path(i) for i in range(9)} <= {photos.subset(40).path(i) for i in range(40)}
    assert names_of(subset) == names_of(photos.subset(9))
    for count in (2, 3, 50, 89, 90):
        assert len(photos.subset(count)) == count
    assert photos.subset(1000) is photos
    with pytest.raises(DataError, match=r"images=1 .*2 classes \(a, b\); give at least 2"):
        photos.subset(1)


def test_an_id_that_does_not_exist(tmp_path: Path) -> None:
    small_set(tmp_path)
    photos = open_photos(tmp_path, "set", "train")
    for wrong in (6, -1):
        with pytest.raises(DataError, match=rf"sample id {wrong} does not exist in a set of 6 images; give 0 to 5"):
            photos.load(np.array([0, wrong]), 0, 0)


def missing_root(root: Path) -> None:
    root.rmdir()


def missing_dataset(root: Path) -> None:
    touch(root, "pneumonia/train/a/1.jpg")


def no_classes(root: Path) -> None:
    touch(root, "set/train/1.jpg", "set/test/1.jpg")


def empty_class(root: Path) -> None:
    small_set(root)
    touch(root, "set/train/c/readme.txt", "set/test/c/1.jpg")


def empty_test_class(root: Path) -> None:
    small_set(root)
    touch(root, "set/train/c/1.jpg", "set/test/c/readme.txt")


def one_class(root: Path) -> None:
    touch(root, "set/train/a/1.jpg", "set/test/a/1.jpg")


def differing_classes(root: Path) -> None:
    small_set(root)
    touch(root, "set/train/cat/1.jpg", "set/test/dog/1.jpg")


def no_train(root: Path) -> None:
    touch(root, "set/test/a/1.jpg", "set/test/b/1.jpg")


def two_spellings(root: Path) -> None:
    small_set(root)
    touch(root, "set/train/A/1.jpg")


def too_few_to_split(root: Path) -> None:
    touch(root, "set/a/1.jpg", "set/b/1.jpg", "set/b/2.jpg")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (missing_root, r"data folder '.*' does not exist; give an existing one with --data-dir or LOCKSTEP_DATA"),
        (missing_dataset, r"data set 'set' has no folder in '.*' \(there: pneumonia\); lay it out as <root>"),
        (no_classes, r"train' holds no class folder; lay the data set out"),
        (empty_class, r"class 'c' has no photo in '.*train.c' \(endings .jpg, .jpeg, .png\); add photos"),
        (one_class, r"train' holds one class only, 'a'; classification needs at least 2"),
        (differing_classes, r"set' differ \(only in train: cat; only in test: dog\); give both splits the same"),
        (no_train, r"set' has a folder 'test' and none called 'train'; lay it out"),
        (two_spellings, r"train' holds A and a, which differ in case only; merge or rename"),
        (too_few_to_split, r"class 'a' has 1 photo in '.*', too few to set some aside.*add photos, or a test folder"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, prepare: object, message: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    prepare(root)  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        open_photos(root, "set", "train")


def test_an_empty_test_class_is_found_when_testing(tmp_path: Path) -> None:
    empty_test_class(tmp_path)
    with pytest.raises(DataError, match=r"class 'c' has no photo in '.*test.c'"):
        open_photos(tmp_path, "set", "test")


def test_an_unknown_split(tmp_path: Path) -> None:
    small_set(tmp_path)
    with pytest.raises(DataError, match="split='val' does not exist; give 'train' or 'test'"):
        open_photos(tmp_path, "set", "val")


@pytest.mark.realdata
def test_the_real_fire_and_smoke_photos() -> None:
    root = os.environ.get("LOCKSTEP_DATA")
    if not root:
        pytest.skip("LOCKSTEP_DATA names no folder of real photos")
    train, test = (open_photos(root, "fire-smoke", split) for split in ("train", "test"))
    assert train.classes == test.classes == ("fire", "none", "smoke")
    assert train.source == "real"
    assert min(np.bincount(train.labels)) > 100
    images = train.load(np.arange(0, len(train), len(train) // 12), 0, 0)
    # Normalised by the statistics of other photos: near, not at, mean 0 and deviation 1.
    assert abs(float(images.mean())) < 1
    assert 0.5 < float(images.std()) < 2
