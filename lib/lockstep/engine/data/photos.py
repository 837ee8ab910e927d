"""From a photo file to a normalised tensor, as cheaply as Pillow allows."""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError, WebPImagePlugin  # noqa: F401 (WebP: to register it)

from lockstep.engine.data.errors import DataError

# The statistics of ImageNet that the paper normalises with (Single-to-Multi, section 3.2).
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIZE = 224

# (value / 255 - mean) / std as one multiplication and one addition per value, by channel (Pillow's name for it).
_CHANNELS = [
    (band, np.float32(1.0 / (255.0 * std)), np.float32(-mean / std))
    for band, mean, std in zip("RGB", MEAN, STD, strict=True)
]

# The formats that files named .jpg or .png really have in collections from the web.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
# Larger pictures are refused before memory is allocated: 4 bytes per pixel, and several times that in conversion.
MOST_PIXELS = 89_000_000
_ORIENTATION = 0x0112
_STRIP = 256  # rows
_GLANCE = 32  # pixels
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow's readers raise for a file that is not of their format.
_NOT_MINE = (SyntaxError, IndexError, TypeError, struct.error)

# Initialized here, so that decoding threads do not all do it at once.
Image.preinit()


def decode_photo(
    path: str | os.PathLike[str],
    flip: bool,
    size: int = SIZE,
    out: NDArray[np.float32] | None = None,
    content: bytes | None = None,
) -> NDArray[np.float32]:
    """The centre square of a photo, scaled to `size` pixels, float32 [3, size, size], C-contiguous.

    Red, green, blue, normalised by ImageNet's mean and deviation; mirrored left to right if `flip`. Grey, palette and
    CMYK become RGB, 16-bit grey becomes 8-bit, transparent parts become white, an EXIF orientation is obeyed. `out`
    (float32 [3, size, size]) is written and returned if given. `content`: what the file holds, if it has been read
    already; `path` is then its name in errors alone. The global interpreter lock is free during decoding
    and scaling. Raises DataError for a file that can't be read.
    """
    with _opened(path, content) as image:
        square = _square(image, size)
    if flip:
        square = square.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if out is None:
        out = np.empty((3, size, size), dtype=np.float32)
    # Plane by plane: Pillow takes the channels apart faster than numpy, and a plane stays in the core's cache.
    for plane, (band, scale, shift) in zip(out, _CHANNELS, strict=True):
        plane[...] = np.frombuffer(square.tobytes("raw", band), dtype=np.uint8).reshape(size, size)
        plane *= scale
        plane += shift
    return out


def decode_small(path: str | os.PathLike[str], channels: int, size: int) -> tuple[NDArray[np.uint8], bool]:
    """The centre square of a photo as `decode_photo` sees it, uint8 [channels, size, size], grey (1) or RGB (3).

    Also whether it had to be enlarged. Raises DataError for a file that can't be read.
    """
    with _opened(path) as image:
        enlarged = min(image.size) < size
        square = _square(image, size)
    if channels == 1:
        return np.asarray(square.convert("L"))[None], enlarged
    return np.asarray(square).transpose(2, 0, 1), enlarged


@dataclass(frozen=True)
class Look:
    """Facts about a photo for inspection: its upright size, its color mode, and a digest of its pixels."""

    width: int
    height: int
    mode: str
    digest: bytes  # of the upright RGB pixels: the same for the same picture in two files, whatever their format


def look_at_photo(path: str | os.PathLike[str]) -> Look:
    """Decodes a photo in full. Raises DataError for the same files as `decode_photo`."""
    with _opened(path) as image:
        mode, turn = image.mode, _turn(image)
        _square(image, _GLANCE, whole=True)  # what training does with it: what fails there fails here
        upright = image if turn is None else image.transpose(turn)
        digest = blake2b(f"{upright.width}x{upright.height}".encode(), digest_size=16)
        for top in range(0, upright.height, _STRIP):  # in strips: a large photo need not stand in memory twice
            strip = upright.crop((0, top, upright.width, min(top + _STRIP, upright.height)))
            digest.update(_to_rgb(strip).tobytes())
        return Look(upright.width, upright.height, mode, digest.digest())


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str], content: bytes | None = None) -> Iterator[ImageFile.ImageFile]:
    """The photo, its pixels not decoded yet. Whatever is raised inside becomes a DataError that names the file."""
    try:
        with open(path, "rb") if content is None else io.BytesIO(content) as file:
            image = _identified(file, os.fspath(path))
            pixels = image.width * image.height
            if pixels > MOST_PIXELS:
                raise Image.DecompressionBombError(
                    f"{image.width} x {image.height} are {pixels} pixels, and at most {MOST_PIXELS} are decoded: scale "
                    "it down"
                )
            yield image
    except Exception as error:  # Pillow raises nearly everything for some damaged file, AssertionError among it
        raise DataError(
            f"photo {os.fspath(path)!r} can't be read ({why_unreadable(error)}); restore or remove the file"
        ) from error


def _identified(file: IO[bytes], path: str) -> ImageFile.ImageFile:
    """As `Image.open`, which would print a warning of its own for what is far larger than MOST_PIXELS."""
    start = file.read(16)
    for name in _FORMATS:
        reader, accepts = Image.OPEN[name]
        if accepts is not None and accepts(start) is not True:
            continue
        file.seek(0)
        with contextlib.suppress(*_NOT_MINE):
            return reader(file, path)
    raise UnidentifiedImageError(path)


def why_unreadable(error: BaseException) -> str:
    """The reason why Pillow or the system could not read a photo, in a few words and without its path."""
    if isinstance(error, UnidentifiedImageError):
        return f"not an image: none of {', '.join(_FORMATS)}"
    if isinstance(error, Image.DecompressionBombError):
        return f"refused as a decompression bomb: {error}"
    if isinstance(error, MemoryError):
        return "not enough memory to decode it"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}" if str(error) else f"damaged: {type(error).__name__}"


def _square(image: Image.Image, size: int, whole: bool = False) -> Image.Image:
    """The centre square as an upright RGB image of size x size; with `whole`, all pixels of `image` are decoded."""
    turn = _turn(image)
    if not whole:
        # A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, never below `size`.
        image.draft("RGB", (size, size))
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    if image.mode not in ("RGB", "L") or "transparency" in image.info:
        image = _to_rgb(image)
    square = image.resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side), reducing_gap=2.0
    )
    if square.mode != "RGB":
        square = square.convert("RGB")
    # A centre square stays one when turned, so the small result can be turned instead of the large photo.
    return square if turn is None else square.transpose(turn)


def _turn(image: Image.Image) -> Image.Transpose | None:
    # getexif() is slow; most photos have nothing that it could find.
    if not any(key in image.info for key in ("exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp")):
        return None
    return _TURNS.get(image.getexif().get(_ORIENTATION, 1))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey; Pillow's own conversion would cut everything above 255
        grey = np.asarray(image).astype(np.int32) >> 8
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")
