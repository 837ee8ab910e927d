"""How many unreadable photos are let pass, and what is remembered of those that were read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lockstep.engine.data.checking import check_photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_folder
from lockstep.engine.data.readable_cache import cache_folder
from photo_fixtures import cache as cache
from photo_fixtures import decoded as decoded
from photo_fixtures import photos as photos
from photo_sets import photo_set, picture, text, truncate, unreadable

# --- how many may be left out ---


def test_up_to_five_percent_of_a_split(photos: Path) -> None:
    for number in range(2):
        truncate(photos / f"train/a/{number:02d}.jpg")
        truncate(photos / f"test/b/{number:02d}.jpg")
    assert len(check_photos(photos).skipped) == 4
    truncate(photos / "test/a/07.jpg")
    message = r"3 of 40 photos in test can't be read, 7\.5 % and more than the 5 % .*'test/a/07\.jpg' \(image file is"
    with pytest.raises(DataError, match=message):
        check_photos(photos)
    assert len(check_photos(photos, ["train"]).skipped) == 2, "another split is not asked about"


def test_five_percent_of_one_split_are_not_spread_over_both(tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "set", train=50, test=3)
    truncate(photos / "test/a/00.jpg")
    with pytest.raises(DataError, match="1 of 6 photos in test can't be read"):
        check_photos(photos)


def test_a_message_names_the_first_few(photos: Path) -> None:
    for number in range(9):
        text(photos / f"train/a/{number:02d}.jpg")
    with pytest.raises(DataError) as caught:
        check_photos(photos)
    assert "'train/a/04.jpg'" in str(caught.value) and "'train/a/05.jpg'" not in str(caught.value)
    assert "and 4 more" in str(caught.value)


def test_a_class_that_loses_all_its_photos(photos: Path) -> None:
    shutil.rmtree(photos / "train/b")
    (photos / "train/b").mkdir()
    text(photos / "train/b/only.jpg")
    with pytest.raises(DataError, match=r"class 'b' has no photo left in .*none of its 1 can be read.*'only\.jpg'"):
        check_photos(photos)


def test_strict_allows_none(photos: Path) -> None:
    check_photos(photos, strict=True)
    text(photos / "test/a/00.jpg")
    with pytest.raises(DataError, match=r"1 of 80 photos can't be read, and strict allows none: 'test/a/00\.jpg'"):
        check_photos(photos, strict=True)


def test_a_set_aside_fifth_stays_the_same(tmp_path: Path) -> None:
    """Leaving out a photo moves no other from training to testing."""
    photos = photo_set(tmp_path / "set", train=30, test=0)
    shutil.rmtree(photos / "test")
    before = {split: open_folder(photos, split) for split in ("train", "test")}
    spoilt = Path(before["train"].path(0))
    truncate(spoilt)
    skipped = check_photos(photos).skipped
    for split, old in before.items():
        new = open_folder(photos, split, skipped)
        paths = {old.path(i) for i in range(len(old))} - {str(spoilt)}
        assert {new.path(i) for i in range(len(new))} == paths


# --- what is remembered ---


def test_a_photo_is_decoded_once_for_all_checks(photos: Path, decoded: list[str], cache: Path) -> None:
    check_photos(photos)
    assert len(decoded) == 80
    check_photos(photos)
    assert len(decoded) == 80
    assert list(cache.rglob("*.txt")) and not [path for path in photos.rglob("*") if path.suffix not in ("", ".jpg")]
    picture(5).save(photos / "train/a/new.jpg")
    truncate(photos / "train/b/07.jpg")
    decoded.clear()
    assert list(unreadable(photos)) == ["train/b/07.jpg"]
    assert sorted(decoded) == ["07.jpg", "new.jpg"]
    decoded.clear()
    assert list(unreadable(photos)) == ["train/b/07.jpg"]
    assert decoded == ["07.jpg"], "bad ones are tried anew"


def test_a_file_put_back_with_its_old_date_is_looked_at(photos: Path, decoded: list[str]) -> None:
    path = photos / "train/a/00.jpg"
    before = path.stat()
    check_photos(photos)
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(unreadable(photos)) == ["train/a/00.jpg"]


def test_looking_at_one_split_forgets_nothing_of_the_other(photos: Path, decoded: list[str]) -> None:
    check_photos(photos, ["test"])
    check_photos(photos, ["train"])
    assert len(decoded) == 80
    check_photos(photos)
    assert len(decoded) == 80


@pytest.mark.parametrize("damage", [b"", b"\x00\xff\n\n", None])
def test_a_damaged_cache_is_no_error(photos: Path, decoded: list[str], cache: Path, damage: bytes | None) -> None:
    check_photos(photos)
    (stored,) = cache.rglob("*.txt")
    stored.write_bytes(stored.read_bytes()[:-400] if damage is None else damage)
    decoded.clear()
    assert unreadable(photos) == {}
    assert len(decoded) == 80 if damage is not None else 0 < len(decoded) < 80
    decoded.clear()
    check_photos(photos)
    assert decoded == [], "and it is mended"


def test_a_cache_that_cannot_be_written_is_no_error(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[str]
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", photos / "cache"):
        monkeypatch.setenv("LOCKSTEP_CACHE", str(place))
        assert unreadable(photos) == {}
    assert len(decoded) == 80, "this process remembers, for its next use case"
    text(photos / "train/a/00.jpg")
    assert list(unreadable(photos)) == ["train/a/00.jpg"], "but not what was changed since"
    assert not (photos / "cache").exists(), "never in the data folder"


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/lockstep")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "lockstep"


def test_a_large_set_says_how_far_it_is(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_photos(photos)
    assert capsys.readouterr().err == "", "a small one says nothing"
    monkeypatch.setattr("lockstep.engine.data.threads.LARGE", 60)
    picture(99).save(photos / "train/a/new.jpg")
    check_photos(photos)
    assert capsys.readouterr().err == "", "what is remembered takes no time"
    shutil.copytree(photos, photos.parent / "copy")
    check_photos(photos.parent / "copy")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"looking at the photos in 'copy', once: {n} of 81 photos" for n in (30, 60, 81)]
