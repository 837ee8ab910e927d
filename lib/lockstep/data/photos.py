"""From a photo file to a normalised tensor, as cheaply as Pillow allows."""

from __future__ import annotations

import os
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lockstep.data.errors import DataError

# The statistics of ImageNet that the paper normalises with (Single-to-Multi, section 3.2).
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIZE = 224

# (value / 255 - mean) / std as one multiplication and one addition per value.
_SCALE = (1.0 / (255.0 * np.array(STD))).astype(np.float32)[:, None, None]
_SHIFT = (-np.array(MEAN) / np.array(STD)).astype(np.float32)[:, None, None]

# What a file named .jpg or .png turns out to hold in collections from the web.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow raises for damaged files, apart from OSError.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, Image.DecompressionBombError)

# Here, so that decoding threads don't all start it at once.
Image.preinit()


def decode_photo(
    path: str | os.PathLike[str], flip: bool, size: int = SIZE, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """The centre square of a photo, scaled to `size` pixels, float32 [3, size, size], C-contiguous.

    Red, green, blue, normalised by ImageNet's mean and deviation; mirrored left to right if `flip`. Grey, palette and
    CMYK become RGB, 16-bit grey becomes 8-bit, transparent parts become white, an EXIF orientation is obeyed. `out`
    (float32 [3, size, size]) is written and returned if given. The global interpreter lock is free during decoding
    and scaling. Raises DataError for a file that can't be read.
    """
    try:
        with Image.open(path, formats=_FORMATS) as image:
            pixels = np.asarray(_square(image, size))
    except _DAMAGE as error:
        raise DataError(
            f"photo {os.fspath(path)!r} can't be read ({type(error).__name__}: {error}); restore or remove the file"
        ) from error
    if flip:
        pixels = pixels[:, ::-1]
    if out is None:
        out = np.empty((3, size, size), dtype=np.float32)
    np.copyto(out, pixels.transpose(2, 0, 1))
    np.multiply(out, _SCALE, out=out)
    np.add(out, _SHIFT, out=out)
    return out


def _square(image: Image.Image, size: int) -> Image.Image:
    """The centre square as an upright RGB image of size x size."""
    turn = _turn(image)
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
