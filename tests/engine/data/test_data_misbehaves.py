"""Every kind of file, link, name and layout that is found where photos should be."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from lockstep.engine.data.checking import BROKEN, LEAVES, check_photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_folder, open_photos
from lockstep.engine.data.photos import decode_photo
from photo_fixtures import cache as cache
from photo_fixtures import photos as photos
from photo_sets import huge_png, no_palette, photo_set, picture, text, truncate, unreadable

# --- kinds of files that are no photos ---


def empty(path: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere.jpg")


def circle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def link_outside(path: Path) -> None:
    outside = path.parents[3] / "outside.jpg"
    shutil.move(path, outside)
    path.symlink_to(outside)


def cut_png(path: Path) -> None:
    picture(1, 300, 300).save(path, "PNG")
    truncate(path)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (truncate, "image file is truncated"),
        (cut_png, "image file is truncated"),
        (text, "not an image: none of JPEG, PNG, GIF, WEBP, BMP"),
        (empty, "an empty file"),
        (a_folder, "a folder, not a file"),
        (a_pipe, "not a regular file"),
        (broken_link, BROKEN),
        (circle, BROKEN),
        (link_outside, LEAVES),
        (huge_png, "refused as a decompression bomb"),
        (no_palette, "damaged: AssertionError"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_photo_is_left_out_with_its_reason(photos: Path, spoil: Callable[[Path], None], why: str) -> None:
    spoil(photos / "train" / "a" / "03.jpg")
    checked = check_photos(photos)
    assert checked.counts == {"train": 40, "test": 40}
    assert checked.skipped == ("train/a/03.jpg",)
    assert why in checked.unreadable["train"]["train/a/03.jpg"]
    assert str(photos) not in checked.unreadable["train"]["train/a/03.jpg"], "the path is told once"
    train = open_folder(photos, "train", checked.skipped)
    assert np.bincount(train.labels).tolist() == [19, 20]
    assert [os.path.basename(train.path(i)) for i in (2, 3, 18)] == ["02.jpg", "04.jpg", "19.jpg"]
    assert np.isfinite(train.load(np.arange(39), 0, 0)).all(), "all that is left can be read"


def cmyk(path: Path) -> None:
    picture(7).convert("CMYK").save(path)


def grey(path: Path) -> None:
    picture(7).convert("L").save(path)


def palette(path: Path) -> None:
    picture(7).quantize(16).save(path, "PNG")


def alpha(path: Path) -> None:
    picture(7).convert("RGBA").save(path, "PNG")


def turned(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(7).save(path, exif=exif)


def deep(path: Path) -> None:
    Image.fromarray(np.full((30, 30), 40_000, dtype=np.uint16)).save(path, "PNG")


def one_pixel(path: Path) -> None:
    Image.new("RGB", (1, 1), "red").save(path)


def link_inside(path: Path) -> None:
    path.unlink()
    path.symlink_to(Path("..") / "b" / "05.jpg")


@pytest.mark.parametrize(
    "make", [cmyk, grey, palette, alpha, turned, deep, one_pixel, link_inside], ids=lambda make: make.__name__
)
def test_unusual_photos_are_photos(photos: Path, make: Callable[[Path], None]) -> None:
    make(photos / "train" / "a" / "03.jpg")
    assert unreadable(photos) == {}
    images = open_folder(photos, "train").load(np.array([3]), 0, 0)
    assert images.shape == (1, 3, 224, 224)
    assert np.isfinite(images).all()


@pytest.mark.parametrize("name", ["two words.jpg", "Übung ∞ 火.jpeg", "A.JPG", "b.JpEg", "c.PNG", "[x] %s {0}.jpg"])
def test_names_of_all_kinds(photos: Path, name: str) -> None:
    shutil.copy(photos / "train/a/00.jpg", photos / "train" / "a" / name)
    assert unreadable(photos) == {}
    text(photos / "train" / "a" / name)
    checked = check_photos(photos)
    assert checked.skipped == (f"train/a/{name}",)
    assert len(open_folder(photos, "train", checked.skipped)) == 40
    assert repr(f"train/a/{name}") in checked.caution


@pytest.mark.linux
def test_a_name_that_is_no_text(photos: Path) -> None:
    (photos / "train/a" / os.fsdecode(b"\xff\xfe.jpg")).write_text("no photo")
    checked = check_photos(photos)
    assert len(open_folder(photos, "train", checked.skipped)) == 40
    checked.caution.encode()  # would raise if it could not be printed


def test_a_bomb_is_refused_before_its_pixels_have_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge_png(tmp_path / "huge.png")
    assert (tmp_path / "huge.png").stat().st_size < 1e6

    def load(self: object) -> None:
        raise AssertionError("its pixels are asked for")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(DataError, match=r"huge\.png' can't be read \(refused as a decompression bomb: .*400000000"):
        decode_photo(tmp_path / "huge.png", flip=False)


def test_a_file_that_may_not_be_read(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, real = str(photos / "test/b/01.jpg"), open

    def guarded(path: Any, *arguments: Any, **options: Any) -> Any:
        if path == closed:
            raise PermissionError(13, "Permission denied", closed)
        return real(path, *arguments, **options)

    monkeypatch.setattr("builtins.open", guarded)
    assert unreadable(photos) == {"test/b/01.jpg": "Permission denied"}
    monkeypatch.undo()
    assert unreadable(photos) == {}, "bad news is not remembered"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_permissions_taken_away(photos: Path) -> None:
    assert unreadable(photos) == {}
    (photos / "test/b/01.jpg").chmod(0)
    assert unreadable(photos) == {"test/b/01.jpg": "Permission denied"}, "although its dates are as before"


# --- links ---


def test_the_data_sets_own_folder_may_be_a_link(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fire-smoke").symlink_to(photos, target_is_directory=True)
    assert unreadable(tmp_path / "other" / "fire-smoke") == {}
    assert len(open_photos(tmp_path / "other", "fire-smoke", "train")) == 40


@pytest.mark.parametrize("which", ["train/b", "test"])
def test_a_folder_that_is_a_link_to_elsewhere(photos: Path, tmp_path: Path, which: str) -> None:
    shutil.move(photos / which, tmp_path / "moved")
    (photos / which).symlink_to(tmp_path / "moved", target_is_directory=True)
    with pytest.raises(DataError, match=rf"{which}' is a link that leaves the data set's folder; put the photos"):
        check_photos(photos)


@pytest.mark.parametrize("which", ["train/b", "test"])
def test_a_folder_that_is_a_link_to_nothing(photos: Path, which: str) -> None:
    shutil.rmtree(photos / which)
    (photos / which).symlink_to("nowhere")
    with pytest.raises(DataError, match=rf"{which}' is a link to nothing; restore what it leads to, or remove it"):
        check_photos(photos)


def test_a_class_that_is_a_link_within_the_set(photos: Path) -> None:
    (photos / "hidden").mkdir()
    shutil.move(photos / "train/b", photos / "hidden/b")
    (photos / "train/b").symlink_to(Path("..") / "hidden" / "b", target_is_directory=True)
    truncate(photos / "hidden/b/00.jpg")
    checked = check_photos(photos)
    assert checked.skipped == ("train/b/00.jpg",)
    assert len(open_folder(photos, "train", checked.skipped)) == 39


# --- layouts and sizes ---


def test_kaggles_chest_x_rays_as_they_come(tmp_path: Path) -> None:
    folder = photo_set(tmp_path / "chest_xray", 6, 3, ("NORMAL", "PNEUMONIA"))
    photo_set(folder / "val", 1, 0, ("NORMAL",))
    shutil.copytree(folder / "train", folder / "chest_xray" / "train")
    for place in (tmp_path, folder, folder / "train", folder / "train/NORMAL", folder / "test"):
        (place / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
        (place / "__MACOSX").mkdir()
        (place / "__MACOSX" / "._IM-0001.jpeg").write_bytes(b"\x00\x05\x16\x07")
    (folder / "train/NORMAL/._00.jpg").write_bytes(b"\x00\x05\x16\x07")
    assert unreadable(folder) == {}
    train, test = (open_photos(tmp_path, "pneumonia", split) for split in ("train", "test"))
    assert train.classes == ("normal", "pneumonia")
    assert (len(train), len(test)) == (12, 6)
    assert np.isfinite(train.load(np.arange(12), 0, 0)).all()
    photo_set(tmp_path / "pneumonia", 2, 2)
    assert open_photos(tmp_path, "pneumonia", "train").classes == ("a", "b"), "a folder of that very name comes first"


@pytest.mark.slow
def test_two_hundred_thousand_photos_are_listed_without_a_look_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 200_000
    for name in ("a", "b"):
        (tmp_path / "set" / "train" / name).mkdir(parents=True)
        descriptor = os.open(tmp_path / "set" / "train" / name, os.O_RDONLY)
        for number in range(count // 2):
            os.mknod(f"photo-{number:06d}.jpg", dir_fd=descriptor)
        os.close(descriptor)
    looks = []
    for name in ("stat", "lstat", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, **o: looks.append(a) or real(*a, **o))
    skipped = [f"train/a/photo-{number:06d}.jpg" for number in range(0, 5000)]
    tracemalloc.start()
    photos = open_folder(tmp_path / "set", "train", skipped)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "set")  # pytest would keep it for three more runs
    assert abs(len(photos) - (0.8 * count - 4000)) < 200
    assert len(looks) < 100
    assert kept < 50 * len(photos), "of each photo its name, its class and a place"
    assert peak < 300 * count
