"""Decoding: geometry, colours, normalisation, and every kind of file that is found under the name of a photo."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from lockstep.engine.data import photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.photos import MEAN, MOST_PIXELS, STD, decode_photo, look_at_photo
from photo_sets import claim_size, no_palette

RED, GREEN, BLUE, WHITE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (128, 128, 128)


def colours(images: np.ndarray) -> np.ndarray:
    """Back to 0 … 255 [size, size, 3]."""
    restored = (images.transpose(1, 2, 0) * STD + MEAN) * 255
    return np.rint(restored).astype(int)


def quarters(width: int = 300, height: int = 300) -> Image.Image:
    """Red and green above, blue and white below."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    half_y, half_x = height // 2, width // 2
    pixels[:half_y, :half_x], pixels[:half_y, half_x:] = RED, GREEN
    pixels[half_y:, :half_x], pixels[half_y:, half_x:] = BLUE, WHITE
    return Image.fromarray(pixels)


def corners(images: np.ndarray) -> list[tuple[int, ...]]:
    """The colours in the middle of the four quarters: above left, above right, below left, below right."""
    size = images.shape[1]
    near, far = size // 4, size - size // 4
    seen = colours(images)
    return [tuple(seen[y, x]) for y, x in ((near, near), (near, far), (far, near), (far, far))]


def test_shape_type_and_normalisation(tmp_path: Path) -> None:
    Image.new("RGB", (300, 260), (10, 128, 250)).save(tmp_path / "flat.png")
    images = decode_photo(tmp_path / "flat.png", flip=False)
    assert images.shape == (3, 224, 224)
    assert images.dtype == np.float32
    assert images.flags.c_contiguous
    expected = (np.array([10, 128, 250]) / 255 - MEAN) / STD
    np.testing.assert_allclose(images.mean(axis=(1, 2)), expected, atol=1e-5)
    np.testing.assert_allclose(images.std(axis=(1, 2)), 0, atol=1e-5)


def test_written_into_the_memory_given(tmp_path: Path) -> None:
    quarters().save(tmp_path / "a.png")
    out = np.full((2, 3, 64, 64), np.nan, dtype=np.float32)
    returned = decode_photo(tmp_path / "a.png", flip=True, size=64, out=out[1])
    assert np.shares_memory(returned, out)
    assert np.isnan(out[0]).all()
    np.testing.assert_array_equal(out[1], decode_photo(tmp_path / "a.png", flip=True, size=64))


@pytest.mark.parametrize(("width", "height"), [(900, 300), (300, 900), (300, 300)])
def test_the_centre_square_is_kept(tmp_path: Path, width: int, height: int) -> None:
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    top, left = (height - 300) // 2, (width - 300) // 2
    pixels[top : top + 300, left : left + 300] = np.asarray(quarters())
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    images = decode_photo(tmp_path / "wide.png", flip=False)
    assert corners(images) == [RED, GREEN, BLUE, WHITE]
    assert tuple(colours(images)[2, 2]) == RED, "the border must not be black"


def test_a_flip_mirrors_left_and_right(tmp_path: Path) -> None:
    quarters().save(tmp_path / "a.png")
    plain, flipped = (decode_photo(tmp_path / "a.png", flip=flip) for flip in (False, True))
    np.testing.assert_array_equal(flipped, plain[:, :, ::-1])
    assert corners(flipped) == [GREEN, RED, WHITE, BLUE]


def test_a_large_jpeg_is_scaled_like_a_small_one(tmp_path: Path) -> None:
    quarters(2400, 2000).save(tmp_path / "large.jpg", quality=95)
    seen = corners(decode_photo(tmp_path / "large.jpg", flip=False))
    np.testing.assert_allclose(seen, [RED, GREEN, BLUE, WHITE], atol=3)


def test_a_tiny_photo_is_enlarged(tmp_path: Path) -> None:
    Image.new("RGB", (1, 2), GREY).save(tmp_path / "tiny.png")
    assert (colours(decode_photo(tmp_path / "tiny.png", flip=False)) == 128).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientations_are_obeyed(tmp_path: Path, orientation: int) -> None:
    # What a camera held that way stores, so that a viewer who obeys sees the quarters upright.
    t = Image.Transpose
    stored = {
        2: t.FLIP_LEFT_RIGHT,
        3: t.ROTATE_180,
        4: t.FLIP_TOP_BOTTOM,
        5: t.TRANSPOSE,
        6: t.ROTATE_90,
        7: t.TRANSVERSE,
        8: t.ROTATE_270,
    }
    image = quarters(400, 300)
    if orientation in stored:
        image = image.transpose(stored[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "turned.jpg", quality=95, exif=exif)
    seen = corners(decode_photo(tmp_path / "turned.jpg", flip=False))
    np.testing.assert_allclose(seen, [RED, GREEN, BLUE, WHITE], atol=3)


def test_grey_and_one_bit(tmp_path: Path) -> None:
    Image.new("L", (300, 300), 77).save(tmp_path / "grey.jpg", quality=95)
    Image.new("1", (300, 300), 1).save(tmp_path / "one.png")
    assert (colours(decode_photo(tmp_path / "grey.jpg", flip=False)) == 77).all()
    assert (colours(decode_photo(tmp_path / "one.png", flip=False)) == 255).all()


def test_sixteen_bit_grey_is_scaled_and_not_cut(tmp_path: Path) -> None:
    Image.fromarray(np.full((300, 300), 100 * 256 + 5, dtype=np.uint16)).save(tmp_path / "deep.png")
    assert (colours(decode_photo(tmp_path / "deep.png", flip=False)) == 100).all()


def test_palette(tmp_path: Path) -> None:
    quarters().quantize(8).save(tmp_path / "palette.png")
    assert corners(decode_photo(tmp_path / "palette.png", flip=False)) == [RED, GREEN, BLUE, WHITE]


def test_cmyk(tmp_path: Path) -> None:
    quarters().convert("CMYK").save(tmp_path / "print.jpg", quality=95)
    seen = corners(decode_photo(tmp_path / "print.jpg", flip=False))
    np.testing.assert_allclose(seen, [RED, GREEN, BLUE, WHITE], atol=4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_transparent_parts_become_white(tmp_path: Path, mode: str) -> None:
    image = Image.new(mode, (300, 300), {"RGBA": (9, 9, 9, 0), "LA": (9, 0), "P": 3, "RGB": (9, 9, 9)}[mode])
    if mode == "P":
        image.putpalette(bytes(range(256)) * 3)
    extra = {"P": {"transparency": 3}, "RGB": {"transparency": (9, 9, 9)}}.get(mode, {})
    image.save(tmp_path / "clear.png", **extra)
    assert (colours(decode_photo(tmp_path / "clear.png", flip=False)) == 255).all()


def test_a_png_named_jpg_is_read(tmp_path: Path) -> None:
    quarters().save(tmp_path / "really_png.jpg", format="PNG")
    assert corners(decode_photo(tmp_path / "really_png.jpg", flip=False)) == [RED, GREEN, BLUE, WHITE]


def damaged(folder: Path) -> dict[str, Path]:
    whole = folder / "whole.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    Image.fromarray(noise).save(whole)
    Image.fromarray(noise).save(folder / "whole.png")
    files = {name: folder / f"{name}.jpg" for name in ("empty", "text", "cut", "cut_png", "missing", "folder")}
    files["empty"].write_bytes(b"")
    files["text"].write_text("<html>404 not found</html>")
    files["cut"].write_bytes(whole.read_bytes()[:5000])
    files["cut_png"].write_bytes((folder / "whole.png").read_bytes()[:5000])
    files["folder"].mkdir()
    return files


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "cut_png", "missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = damaged(tmp_path)[kind]
    with pytest.raises(DataError, match=rf"{kind}\.jpg' can't be read \(.+\); restore or remove the file") as raised:
        decode_photo(path, flip=False)
    assert raised.value.__cause__ is not None


LOOKS: list[Callable[[Path], Any]] = [lambda path: decode_photo(path, flip=False), look_at_photo]


@pytest.mark.parametrize("look", LOOKS, ids=["decode", "look"])
def test_whatever_pillow_raises_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], Any]
) -> None:
    no_palette(tmp_path / "odd.png")
    with pytest.raises(DataError, match=r"odd\.png' can't be read \(damaged: AssertionError\); restore or remove"):
        look(tmp_path / "odd.png")

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(photos, "_square", full)
    Image.new("L", (8, 8)).save(tmp_path / "fine.png")
    with pytest.raises(DataError, match=r"fine\.png' can't be read \(not enough memory to decode it\)"):
        look(tmp_path / "fine.png")


@pytest.mark.parametrize("look", LOOKS, ids=["decode", "look"])
@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_the_largest_picture_that_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, look: Callable[[Path], Any]
) -> None:
    def load(self: object) -> None:
        raise ValueError("its pixels are asked for")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        claim_size(tmp_path / name, 8900, MOST_PIXELS // 8900)
        with pytest.raises(DataError, match="its pixels are asked for"):
            look(tmp_path / name)
        for width in (8901, 17_000):  # Pillow warns of the first and would refuse neither
            claim_size(tmp_path / name, width, 10_000)
            with pytest.raises(DataError, match=rf"refused as a decompression bomb: {width} x 10000 are .* 89000000"):
                look(tmp_path / name)
    assert told == []
