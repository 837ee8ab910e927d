"""What an inspection finds in a folder of photos, and that it agrees with training about what can be used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from lockstep.engine.data.checking import BROKEN, LEAVES, check_photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.inspection import Inspection, copies, data_sets, inspect_set
from lockstep.engine.data.photos import look_at_photo
from photo_sets import huge_png, no_palette, photo_set, picture, truncate


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photo_set(tmp_path / "set")


def test_a_sound_set(photos: Path) -> None:
    found = inspect_set(photos)
    assert found.classes == ["a", "b"]
    assert {split: dict(of_split) for split, of_split in found.listed.items()} == {
        "train": {"a": 20, "b": 20},
        "test": {"a": 20, "b": 20},
    }
    assert {(photo.look.width, photo.look.height, photo.look.mode) for photo in found.photos} == {(40, 32, "RGB")}
    assert sum(photo.size_bytes for photo in found.photos) == sum(p.stat().st_size for p in photos.rglob("*.jpg"))
    assert len({photo.look.digest for photo in found.photos}) == 80
    assert (found.refused, found.cautions, found.unreadable) == ([], [], {"train": {}, "test": {}})
    assert found.imbalance == 1.0


# --- the same picture ---


def test_the_digest_is_of_the_picture_and_not_of_the_file(tmp_path: Path) -> None:
    image = picture(3, 300, 600)  # higher than a strip
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {"plain.png": {}, "packed.png": {"compress_level": 9}, "other.bmp": {}}
    for name, options in files.items():
        image.save(tmp_path / name, **options)
    image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    image.convert("RGBA").save(tmp_path / "opaque.png")
    looks = {name: look_at_photo(tmp_path / name) for name in (*files, "turned.png", "opaque.png")}
    assert len({look.digest for look in looks.values()}) == 1
    assert {(look.width, look.height) for look in looks.values()} == {(300, 600)}
    image.putpixel((299, 599), (1, 2, 3))
    image.save(tmp_path / "changed.png")
    assert look_at_photo(tmp_path / "changed.png").digest != looks["plain.png"].digest
    Image.new("L", (20, 10)).save(tmp_path / "flat.png")
    Image.new("L", (10, 20)).save(tmp_path / "high.png")
    Image.new("RGB", (20, 10)).save(tmp_path / "flat-rgb.png")
    flat, high, colour = (look_at_photo(tmp_path / f"{name}.png") for name in ("flat", "high", "flat-rgb"))
    assert flat.digest != high.digest, "the same bytes in another shape"
    assert flat.digest == colour.digest
    assert (flat.mode, colour.mode) == ("L", "RGB")


def test_copies_within_across_and_in_two_classes(photos: Path) -> None:
    Image.open(photos / "train/a/00.jpg").save(photos / "train/a/again.png")  # other bytes, the same pixels
    shutil.copy(photos / "train/a/01.jpg", photos / "test/a/seen.jpg")
    shutil.copy(photos / "train/a/01.jpg", photos / "test/a/seen too.jpg")
    shutil.copy(photos / "test/a/02.jpg", photos / "test/b/02 again.jpg")
    found = inspect_set(photos)
    twice = copies(found.photos)
    assert (twice.within, twice.across, twice.two_labels) == ({"train": 1, "test": 2}, 2, 1)
    assert twice.examples["train"] == ("train/a/00.jpg", "train/a/again.png")
    assert found.refused == [], "training goes on"
    starts = ["copies within train: 1, such as 'train/a/00.jpg' = 'train/a/again.png'", "copies within test: 2"]
    starts += ["test photos that stand in train too: 2", "pictures in two classes: 1"]
    assert len(found.cautions) == 4
    assert all(words.startswith(start) for words, start in zip(found.cautions, starts, strict=True)), found.cautions


def test_a_mirrored_or_resized_photo_is_another_one(photos: Path) -> None:
    with Image.open(photos / "train/a/00.jpg") as image:
        ImageOps.mirror(image).save(photos / "train/a/mirrored.png")
        image.resize((80, 64)).save(photos / "train/a/larger.png")
    assert inspect_set(photos).cautions == []


# --- what training would refuse, and what it takes with a word ---


def agree(found: Inspection, folder: Path, strict: bool = False) -> None:
    """The inspection refuses exactly what training refuses."""
    try:
        check_photos(folder, strict=strict)
    except DataError:
        assert found.refused
    else:
        assert not found.refused


def test_unreadable_photos_and_links(photos: Path, tmp_path: Path) -> None:
    truncate(photos / "train/a/00.jpg")
    shutil.move(photos / "train/b/00.jpg", tmp_path / "elsewhere.jpg")
    (photos / "train/b/00.jpg").symlink_to(tmp_path / "elsewhere.jpg")
    (photos / "test/a/gone.jpg").symlink_to("nowhere.jpg")
    huge_png(photos / "test/b/huge.png")
    found = inspect_set(photos)
    assert found.links == {"train/b/00.jpg": LEAVES, "test/a/gone.jpg": BROKEN}
    assert found.unreadable == check_photos(photos).unreadable
    assert sum(len(of_split) for of_split in found.unreadable.values()) == 4
    assert len(found.photos) == 78
    assert found.refused == []
    assert found.cautions == ["unreadable photos: 4; training leaves them out and counts them; restore or remove them"]
    agree(found, photos)
    strict = inspect_set(photos, strict=True)
    assert "strict allows none" in strict.refused[0]
    agree(strict, photos, strict=True)


def test_what_only_scaling_would_find(photos: Path) -> None:
    no_palette(photos / "train/a/loads.png")
    found = inspect_set(photos)
    assert found.unreadable["train"] == {"train/a/loads.png": "damaged: AssertionError"}
    assert found.unreadable == check_photos(photos).unreadable


def test_too_many_unreadable(photos: Path) -> None:
    for number in range(3):
        truncate(photos / f"train/a/{number:02d}.jpg")
    found = inspect_set(photos)
    assert "3 of 40 photos in train can't be read, 7.5 %" in found.refused[0]
    assert len(found.photos) == 77, "the rest is reported all the same"
    agree(found, photos)


def differing(folder: Path) -> None:
    (folder / "test/b").rename(folder / "test/c")


def empty_class(folder: Path) -> None:
    (folder / "train/c").mkdir()
    photo_set(folder / "more", 0, 3, ("c",))
    shutil.move(folder / "more/test/c", folder / "test/c")


def missing_class(folder: Path) -> None:
    shutil.rmtree(folder / "test/b")


def one_class(folder: Path) -> None:
    shutil.rmtree(folder / "train/b")
    shutil.rmtree(folder / "test/b")


def only_test(folder: Path) -> None:
    shutil.rmtree(folder / "train")


def class_elsewhere(folder: Path) -> None:
    shutil.move(folder / "train/b", folder.parent / "b")
    (folder / "train/b").symlink_to(folder.parent / "b", target_is_directory=True)


def two_spellings(folder: Path) -> None:
    shutil.copytree(folder / "train/a", folder / "train/A")


def unreadable_class(folder: Path) -> None:
    for path in (folder / "train/b").iterdir():
        path.write_text("no photo")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (differing, "differ (only in train: b; only in test: c); give both splits the same folders"),
        (missing_class, "differ (only in train: b)"),
        (empty_class, "class 'c' has no photo in"),
        (one_class, "holds one class only, 'a'"),
        (only_test, "has a folder 'test' and none called 'train'"),
        (class_elsewhere, "is a link that leaves the data set's folder"),
        (two_spellings, "which differ in case only"),
        (unreadable_class, "class 'b' has no photo left"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_training_would_refuse(photos: Path, spoil: object, message: str) -> None:
    spoil(photos)  # type: ignore[operator]
    found = inspect_set(photos)
    assert [words for words in found.refused if message in words], found.refused
    assert len(found.refused) == len(set(found.refused))
    agree(found, photos)


def test_imbalance_is_told_from_three_to_one(tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "set", train=6, test=2)
    for number in range(4):
        (photos / f"train/b/{number:02d}.jpg").unlink()
    assert inspect_set(photos).cautions == []
    (photos / "train/b/04.jpg").unlink()
    found = inspect_set(photos)
    assert found.imbalance == 6.0
    assert found.cautions[0].startswith("the largest class has 6.0 times the training photos of the smallest")
    agree(found, photos)


def test_a_set_without_a_test_folder_is_shown_as_it_is_drawn(tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "set", train=10, test=0)
    shutil.rmtree(photos / "test")
    for inner in (photos, photos / "train"):
        found = inspect_set(inner)
        assert {split: dict(of_split) for split, of_split in found.listed.items()} == {
            "train": {"a": 8, "b": 8},
            "test": {"a": 2, "b": 2},
        }
        assert found.refused == []


def test_what_is_no_part_of_the_set_is_left_alone(photos: Path) -> None:
    photo_set(photos / "val", 1, 0, ("a",))
    (photos / "README.txt").touch()
    found = inspect_set(photos)
    assert found.left_alone == ["val"]
    assert len(found.photos) == 80


def test_a_folder_is_a_data_set_or_holds_some(tmp_path: Path) -> None:
    first, second = photo_set(tmp_path / "one", 2, 2), photo_set(tmp_path / "two" / "train", 2, 0)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "SE.parquet").touch()
    assert data_sets(tmp_path) == [first, tmp_path / "two"]
    assert data_sets(first) == [first]
    assert data_sets(second / "train") == [second / "train"], "class folders alone"
    assert data_sets(tmp_path / "traces") == []


@pytest.mark.parametrize("inner", ["", "train"])
def test_pictures_beside_data_sets_make_no_data_set(tmp_path: Path, inner: str) -> None:
    photo_set(tmp_path / "all", 2, 2)
    shutil.move(tmp_path / "all" / "train", tmp_path / "root" / "set" / inner if inner else tmp_path / "root" / "set")
    (tmp_path / "root" / "thumbs").mkdir()
    picture(1).save(tmp_path / "root" / "thumbs" / "x.jpg")
    assert data_sets(tmp_path / "root") == [tmp_path / "root" / "set"]


def test_pictures_within_a_class_make_no_data_set_of_it(tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "set", 2, 0) / "train"
    (photos / "a" / "thumbs").mkdir()
    picture(1).save(photos / "a" / "thumbs" / "x.jpg")
    assert data_sets(photos) == [photos]


@pytest.mark.slow
@pytest.mark.realdata
@pytest.mark.parametrize("name", ["fire-smoke", "pneumonia", "leaf-disease"])
def test_the_stored_sets_are_what_their_papers_say(real_images: Path, name: str) -> None:
    if not (real_images / name).is_dir():
        pytest.skip(f"LOCKSTEP_DATA holds no {name}")
    found = inspect_set(real_images / name)
    assert found.refused == [] and found.cautions == []
    assert len(found.photos) == sum(
        name.endswith(".jpg") for _, _, names in os.walk(real_images / name) for name in names
    )
