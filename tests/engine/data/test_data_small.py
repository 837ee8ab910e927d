"""Images of 50 x 50 pixels: decoded once, augmented by key, and the part that is held out."""

from __future__ import annotations

import pickle
import threading
from hashlib import sha256
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import lockstep.engine.data.affine as affine
import lockstep.engine.data.small as small
from lockstep.engine.data import Arrays, DataError, Loader, open_folder
from lockstep.engine.data.held_out import part_of_training
from lockstep.engine.data.small import SHIFT, SmallImages
from lockstep.engine.data.sources import ImageData
from lockstep.engine.training.epochs import unaugmented
from photo_sets import photo_set, picture, truncate


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(small, "_known", type(small._known)())
    return tmp_path / "cache"


def opened(folder: Path, channels: int = 1, augment: str = "none", split: str = "train") -> SmallImages:
    return SmallImages.of(open_folder(folder, split), channels, augment)


def every(data: ImageData, epoch: int = 0, seed: int = 0) -> np.ndarray:
    return data.load(np.arange(len(data)), epoch, seed)


def square(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture
def ramps(tmp_path: Path) -> Path:
    """Pictures of exactly 50 x 50: brighter to the right in `a`, downwards in `b`."""
    ramp = np.tile(np.arange(50) * 5, (50, 1))
    for split in ("train", "test"):
        for number in range(12):
            square(tmp_path / "set" / split / "a" / f"{number}.png", np.minimum(ramp + number, 255))
            square(tmp_path / "set" / split / "b" / f"{number}.png", np.minimum(ramp.T + number, 255))
    return tmp_path / "set"


# --- pixels ---


def test_numbers_are_from_0_to_1(ramps: Path) -> None:
    data = opened(ramps)
    assert isinstance(data, ImageData)
    assert (len(data), data.shape, data.classes, data.source) == (24, (1, 50, 50), ("a", "b"), "real")
    images = every(data)
    assert images.dtype == np.float32
    row = np.arange(50, dtype=np.float32) * 5 / 255
    np.testing.assert_allclose(images[0, 0], np.tile(row, (50, 1)), atol=1e-6)
    np.testing.assert_allclose(images[12, 0], np.tile(row, (50, 1)).T, atol=1e-6)
    assert data.labels.tolist() == [0] * 12 + [1] * 12


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_colour_files_become_what_is_asked_for(tmp_path: Path, channels: int) -> None:
    red = np.zeros((60, 70, 3))
    red[:, :, 0] = 255
    for place in ("train/a", "train/b", "test/a", "test/b"):
        square(tmp_path / "set" / place / "grey.png", np.full((64, 50), 102))
        square(tmp_path / "set" / place / "red.png", red)
    data = opened(tmp_path / "set", channels)
    assert data.shape == (channels, 50, 50)
    for place in range(len(data)):
        colours = every(data)[place].reshape(channels, -1)
        assert float(colours.std(axis=1).max()) < 1e-6
        expected = {b"grey.png": [0.4] * 3, b"red.png": [1, 0, 0]}[data.name(place)]
        grey = {b"grey.png": 0.4, b"red.png": 76 / 255}[data.name(place)]
        np.testing.assert_allclose(colours[:, 0], expected if channels == 3 else [grey], atol=0.003)


def test_smaller_images_are_enlarged_and_counted(tmp_path: Path) -> None:
    folder = photo_set(tmp_path / "set", 2, 1)
    picture(1, 49, 90).save(folder / "train/a/00.jpg")
    picture(1, 50, 90).save(folder / "train/a/01.jpg")
    picture(1, 3, 3).save(folder / "train/b/00.jpg")
    picture(1, 300, 200).save(folder / "train/b/01.jpg")
    data = opened(folder, 3)
    images = every(data)
    assert images.shape == (4, 3, 50, 50) and data.enlarged == 2
    assert all(images[place].std() > 0.01 for place in range(4))


def test_a_photo_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    folder = photo_set(tmp_path / "set", 2, 1)
    truncate(folder / "train/b/01.jpg")
    with pytest.raises(DataError, match=r"photo '.*b/01.jpg' can't be read"):
        opened(folder).load(np.array([0]), 0, 0)


def test_an_id_that_is_not_there(ramps: Path) -> None:
    with pytest.raises(DataError, match="sample id 24 does not exist in a set of 24 images"):
        opened(ramps).load(np.array([24]), 0, 0)


# --- decoded once ---


def test_a_process_decodes_once_and_the_next_finds_the_pixels(
    ramps: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = opened(ramps)
    expected = every(data).copy()
    monkeypatch.setattr(small, "decode_small", lambda *_: pytest.fail("decoded again"))
    np.testing.assert_array_equal(every(data), expected)
    np.testing.assert_array_equal(every(pickle.loads(pickle.dumps(data))), expected)
    small._known.clear()  # as another process would begin
    np.testing.assert_array_equal(every(opened(ramps)), expected)
    assert isinstance(small._known[data.key][0], np.memmap), "shared by the processes of a machine"
    assert len(list((own_cache / "small").iterdir())) == 1


def test_a_changed_file_is_decoded_again(ramps: Path) -> None:
    before = every(opened(ramps))[3].copy()
    square(ramps / "train/a/11.png", np.full((50, 50), 255))  # by name, the fourth
    small._known.clear()
    after = every(opened(ramps))
    assert (after[3] == 1).all() and not (before == 1).all()


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 99)])
def test_a_damaged_cache_is_no_error(ramps: Path, own_cache: Path, spoil: object) -> None:
    expected = every(opened(ramps)).copy()
    (path,) = (own_cache / "small").iterdir()
    spoil(path)  # type: ignore[operator]
    small._known.clear()
    np.testing.assert_array_equal(every(opened(ramps)), expected)


def test_a_cut_off_cache_is_no_error(ramps: Path, own_cache: Path) -> None:
    expected = every(opened(ramps)).copy()
    (path,) = (own_cache / "small").iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    small._known.clear()
    np.testing.assert_array_equal(every(opened(ramps)), expected)


def test_a_cache_that_can_not_be_written_is_no_error(ramps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ramps.parent / "file").touch()
    monkeypatch.setenv("LOCKSTEP_CACHE", str(ramps.parent / "file"))
    assert every(opened(ramps)).shape == (24, 1, 50, 50)


def test_threads_decode_once(ramps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, real = [], small.decode_small
    monkeypatch.setattr(small, "decode_small", lambda *given: decoded.append(given) or real(*given))
    data = opened(ramps)
    threads = [threading.Thread(target=every, args=(data,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decoded) == 24


def test_what_travels_to_a_worker_is_small(ramps: Path) -> None:
    data = opened(ramps)
    every(data)
    assert len(pickle.dumps(data)) < 4000 < every(data).nbytes


def test_through_a_loader(ramps: Path) -> None:
    data = opened(ramps, augment="shift")
    ids = np.array([5, 17, 3, 23, 9, 11, 0, 1, 2, 4])
    with Loader(data, seed=3, threads=2) as loader:
        loader.prefetch(2, ids)
        batch = loader.take(2, ids)
        np.testing.assert_array_equal(batch.images, data.load(ids, 2, 3))
        assert batch.labels.tolist() == data.labels[ids].tolist()


# --- augmentation ---


def test_half_are_mirrored_by_key(ramps: Path) -> None:
    plain, flipped = every(opened(ramps)), every(opened(ramps, augment="flip"), 1, 2)
    mirrored = [np.array_equal(b, a[:, :, ::-1]) for a, b in zip(plain, flipped, strict=True)]
    same = [np.array_equal(b, a) for a, b in zip(plain, flipped, strict=True)]
    assert all(a or b for a, b in zip(mirrored, same, strict=True))
    assert 2 <= sum(mirrored[:12]) <= 10, "the others look the same when mirrored"
    data = opened(ramps, augment="flip")
    one = data.load(np.array([7]), 1, 2)
    np.testing.assert_array_equal(one[0], flipped[7])  # whatever else is in the batch
    assert not np.array_equal(every(data, 2, 2), flipped), "anew in each epoch"
    assert not np.array_equal(every(data, 1, 3), flipped), "and with each seed"


def test_shifts_are_up_to_a_tenth_and_keep_the_edge(ramps: Path) -> None:
    """Across a ramp to the right the shift can be read off: the middle column has another column's value."""
    data, seen = opened(ramps, augment="shift"), set()
    plain = every(opened(ramps))
    for epoch in range(60):
        for place, image in enumerate(every(data, epoch)[:12, 0]):
            assert (image == image[0]).all(), "a shift downwards changes nothing in `a`"
            row, original = image[0], plain[place, 0, 0]
            row = row[::-1] if row[0] > row[-1] else row
            (shift,) = np.flatnonzero(np.isclose(original, row[25], atol=1e-6)) - 25
            np.testing.assert_array_equal(row, original[np.clip(np.arange(50) + shift, 0, 49)])
            seen.add(int(shift))
    assert seen == set(range(-SHIFT, SHIFT + 1)) and SHIFT == 5


def test_shifts_down_and_to_the_side_are_drawn_apart(tmp_path: Path) -> None:
    """Red grows to the right and green downwards, so the pixel in the middle tells both shifts."""
    across = np.tile(np.arange(50) * 5, (50, 1))
    for place in ("train/a", "train/b", "test/a", "test/b"):
        square(tmp_path / "set" / place / "1.png", np.stack([across, across.T, across * 0], axis=2))
    data = opened(tmp_path / "set", 3, "shift")
    middles = [tuple(np.rint(every(data, epoch)[0, :2, 25, 25] * 51).tolist()) for epoch in range(80)]
    assert {down - 25 for _, down in middles} == set(range(-SHIFT, SHIFT + 1))
    assert len(set(middles)) > 40, "of 121"


def test_affine_images_are_keyed_and_within_0_and_1(ramps: Path) -> None:
    data, plain = opened(ramps, augment="affine"), every(opened(ramps))
    images = every(data, 1, 2)
    assert images.dtype == np.float32 and images.min() >= 0 and images.max() <= 1
    assert all(np.abs(image - same).max() > 0.02 for image, same in zip(images, plain, strict=True))
    for ids in ([7], [20, 7], [3, 7, 11, 23, 0]):
        np.testing.assert_array_equal(data.load(np.array(ids), 1, 2), images[ids])  # whatever else is in the batch
    assert not np.array_equal(every(data, 2, 2), images), "anew in each epoch"
    assert not np.array_equal(every(data, 1, 3), images), "and with each seed"


def fixed(monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray, flip: float = 0.9, **draws: float) -> np.ndarray:
    """What `varied` makes of one image if these are drawn, and else 0.5: no change."""
    names = ("angle", "zoom", "down", "right", "brightness", "contrast")
    row = np.array([[draws.get(name, 0.5) for name in names]], np.float32)
    mirror = np.array([flip], np.float32)
    monkeypatch.setattr(affine, "keyed_uniform", lambda *given: row if len(given) == 5 else mirror)
    return affine.varied(pixels[None], np.array([0]), 0, 0)[0]


def test_what_an_affine_draw_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 50, 50)).astype(np.uint8)
    plain = pixels / np.float32(255)
    np.testing.assert_allclose(fixed(monkeypatch, pixels), plain, atol=1e-6)
    np.testing.assert_allclose(fixed(monkeypatch, pixels, flip=0.1), plain[..., ::-1], atol=1e-6)
    lower = fixed(monkeypatch, pixels, down=1)
    np.testing.assert_allclose(lower[:, 5:], plain[:, :-5], atol=1e-5)
    np.testing.assert_allclose(lower[:, :5], plain[:, :1].repeat(5, axis=1), atol=1e-5)  # no black edge
    np.testing.assert_allclose(fixed(monkeypatch, pixels, right=0)[..., :-5], plain[..., 5:], atol=1e-5)
    brighter = fixed(monkeypatch, pixels, brightness=1)
    np.testing.assert_allclose(brighter, np.minimum(plain + 0.1, 1), atol=1e-5)
    flatter = fixed(monkeypatch, pixels, contrast=0)
    np.testing.assert_allclose(flatter, plain.mean() + 0.8 * (plain - plain.mean()), atol=1e-5)


def test_a_turned_and_zoomed_ramp_stays_a_ramp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bilinear interpolation is exact on a ramp: in its middle, rotation by 15 degrees turns the gradient by that."""
    ramp = np.tile(np.arange(50, dtype=np.uint8) * 5, (1, 50, 1))
    for zoom, factor in ((0.0, 0.8), (0.5, 1.0), (1.0, 1.2)):
        image = fixed(monkeypatch, ramp, angle=1, zoom=zoom)[0]
        down, right = (float(each[20:30, 20:30].mean()) * 255 / 5 for each in np.gradient(image))
        assert np.hypot(down, right) == pytest.approx(1 / factor, abs=1e-3)
        assert abs(np.degrees(np.arctan2(down, right))) == pytest.approx(15, abs=0.05)
        assert image[25, 25] == pytest.approx(0.5 * 49 * 5 / 255, abs=0.02), "about the middle"


def test_an_affine_image_of_one_colour_has_no_dark_corner(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a", "test/b"):
        square(tmp_path / "set" / place / "1.png", np.full((50, 50), 128))
    data = opened(tmp_path / "set", augment="affine")
    for epoch in range(20):
        images = every(data, epoch)
        assert np.ptp(images, axis=(1, 2, 3)).max() < 1e-5 and 0.39 < images.min() <= images.max() < 0.61


# --- standardised ---


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("augment", ["none", "shift", "affine"])
def test_standardised_images_have_mean_0_and_deviation_1(tmp_path: Path, augment: str, channels: int) -> None:
    photos = open_folder(photo_set(tmp_path / "set", 6, 1), "train")
    images = every(SmallImages.of(photos, channels, augment, standardise=True), 1, 2)
    np.testing.assert_allclose(images.mean(axis=(1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(images.std(axis=(1, 2, 3)), 1, atol=1e-4)
    before = every(SmallImages.of(photos, channels, augment), 1, 2)
    for image, old in zip(images, before, strict=True):
        np.testing.assert_allclose(image, (old - old.mean()) / old.std(), atol=1e-4)  # over all channels together
    data = SmallImages.of(photos, channels, augment, standardise=True)
    np.testing.assert_array_equal(data.load(np.array([5]), 1, 2)[0], images[5])
    out = np.empty((2, channels, 50, 50), np.float32)
    assert data.load(np.array([3, 5]), 1, 2, out) is out and np.array_equal(out[1], images[5])


def test_a_standardised_image_of_one_colour_is_zeros(tmp_path: Path) -> None:
    for place in ("train/a", "train/b", "test/a", "test/b"):
        square(tmp_path / "set" / place / "1.png", np.full((50, 50), 77))
    data = SmallImages.of(open_folder(tmp_path / "set", "train"), 1, standardise=True)
    assert (every(data) == 0).all()


def test_what_is_scored_is_standardised_and_not_augmented(tmp_path: Path) -> None:
    photos = open_folder(photo_set(tmp_path / "set", 11, 1), "train")
    data = SmallImages.of(photos, 1, "affine", standardise=True)
    whole = every(SmallImages.of(photos, 1, standardise=True))
    np.testing.assert_array_equal(every(unaugmented(data), 3), whole)
    held = part_of_training(data, "held_out")
    assert isinstance(held, SmallImages) and (held.augment, held.standardise) == ("none", True)
    np.testing.assert_array_equal(every(held, 3), whole[held.ids])
    kept = part_of_training(data, "kept")
    assert isinstance(kept, SmallImages) and (kept.augment, kept.standardise) == ("affine", True)


# --- the held-out part ---


def test_held_out_are_the_names_with_the_lowest_hashes(tmp_path: Path) -> None:
    folder = photo_set(tmp_path / "set", 11, 1)
    data = opened(folder, augment="shift")
    kept, held = (part_of_training(data, part) for part in ("kept", "held_out"))
    assert isinstance(kept, SmallImages) and isinstance(held, SmallImages)
    assert (len(kept), len(held), held.augment, kept.augment) == (16, 6, "none", "shift")
    names = sorted(
        (f"{number:02d}.jpg".encode() for number in range(11)), key=lambda n: sha256(b"validation/" + n).digest()
    )
    assert {held.name(place) for place in range(3)} == set(names[: ceil(11 / 5)])
    assert held.labels.tolist() == [0] * 3 + [1] * 3
    where = {data.name(place) + bytes(data.labels[place]): place for place in range(len(data))}
    for place in range(len(held)):
        original = where[held.name(place) + bytes(held.labels[place])]
        np.testing.assert_array_equal(every(held)[place], every(opened(folder))[original])
    assert part_of_training(data, "all") is data


def test_images_of_a_patient_are_on_one_side_of_the_held_out_part(tmp_path: Path) -> None:
    """Were they on both, a network would know the patient again and validation promise too much."""
    ill = [f"person{n % 4}_{kind}_{n}.jpg" for n in range(12) for kind in ("bacteria", "virus")]
    well = [f"NORMAL2-IM-{n // 2:04d}-0001-000{n % 2}.jpg" for n in range(8)] + ["IM-0001-0001.jpg", "scan_1.jpg"]
    for folder, names in (("pneumonia", ill), ("normal", well)):
        for place, name in enumerate(names):
            square(tmp_path / "train" / folder / name, np.full((60, 60), place))
    data = opened(tmp_path)
    kept, held = (_patients(part_of_training(data, part)) for part in ("kept", "held_out"))
    assert kept and held and not kept & held
    assert {name.startswith("person") for name in kept} == {name.startswith("person") for name in held} == {True, False}
    one = [n for n in range(len(data)) if not data.name(n).startswith((b"person1", b"person2", b"person3"))]
    with pytest.raises(DataError, match="class 'pneumonia' has one training patient"):
        part_of_training(data.picked(np.array(one), augment=False), "kept")


def _patients(part: ImageData) -> set[str]:
    assert isinstance(part, SmallImages)
    names = [part.name(place).decode() for place in range(len(part))]
    return {name.split("_")[0] if name.startswith("person") else name[:15] for name in names}


def test_photos_are_held_out_by_the_same_rule(tmp_path: Path) -> None:
    photos = open_folder(photo_set(tmp_path / "set", 11, 1), "train")
    small_ones = opened(tmp_path / "set")
    for part in ("kept", "held_out"):
        some, others = part_of_training(photos, part), part_of_training(small_ones, part)
        assert [some.name(i) for i in range(len(some))] == [others.name(i) for i in range(len(others))]  # type: ignore
        assert some.augment is (part == "kept")  # type: ignore[attr-defined]


def test_a_readers_arrays_are_held_out_by_number() -> None:
    data = Arrays(np.random.default_rng(1).random((20, 1, 2, 2), np.float32), np.arange(20) % 2)
    kept, held = (part_of_training(data, part) for part in ("kept", "held_out"))
    assert isinstance(kept, ImageData) and (len(kept), len(held)) == (16, 4)
    assert np.bincount(held.labels).tolist() == [2, 2] and held.shape == (1, 2, 2)
    together = np.concatenate([every(kept), every(held)])
    assert {row.tobytes() for row in together} == {row.tobytes() for row in data.images}


def test_one_image_is_too_few_to_hold_out(tmp_path: Path) -> None:
    data = opened(photo_set(tmp_path / "set", 1, 1))
    with pytest.raises(DataError, match="class 'a' has one training image, too few to hold some out for validation"):
        part_of_training(data, "kept")
    with pytest.raises(DataError, match="part='rest' does not exist; there are: all, kept, held_out"):
        part_of_training(data, "rest")
