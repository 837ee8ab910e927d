"""How many images of a set are trained on, and that workers find small ones decoded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import lockstep.engine.data.small as small
from lockstep.engine.usecases import USE_CASES, find_images
from photo_sets import photo_set

PNEUMONIA = dataclasses.replace(USE_CASES["Pneumonia"], images=24)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)
    monkeypatch.setattr(small, "_known", type(small._known)())


@pytest.mark.filterwarnings("ignore:.*smaller than 50 x 50")
def test_a_real_set_is_used_whole_however_its_publisher_split_it(tmp_path: Path) -> None:
    """Of 22 training and 2 test images, an 11:1 split, 20 were trained on: four fifths of 24."""
    photo_set(tmp_path / "pneumonia", 11, 1)
    root = str(tmp_path)
    assert find_images(PNEUMONIA, root).train_images == 22
    assert find_images(dataclasses.replace(PNEUMONIA, images=23), root).train_images == 19, "a larger set is cut"
    assert find_images(PNEUMONIA, root, images=24).train_images == 20, "and so is one that is asked for in part"


def test_photos_of_a_smaller_set_are_all_used(tmp_path: Path) -> None:
    photo_set(tmp_path / "fire-smoke", 9, 1, "abc")
    case = dataclasses.replace(USE_CASES["SimpleBig"], images=30)
    assert find_images(case, str(tmp_path)).train_images == 27


@pytest.mark.filterwarnings("ignore:.*smaller than 50 x 50")
def test_both_splits_are_decoded_before_workers_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them decoded the test images at once, at the end of the first training."""
    photo_set(tmp_path / "pneumonia", 4, 3)
    source = find_images(PNEUMONIA, str(tmp_path), images=8)
    small._known.clear()  # as in a worker, which has the cache alone
    monkeypatch.setattr(small, "decode_small", lambda *_: pytest.fail("decoded again"))
    splits = [PNEUMONIA.open("train", source.root, source.train_images), PNEUMONIA.open("test", source.root)]
    assert [len(data) for data in splits] == [6, 6], "of test images all are used"
    assert [data.load([0, 5], 0, 0).shape for data in splits] == [(2, 1, 50, 50)] * 2  # type: ignore[arg-type]
