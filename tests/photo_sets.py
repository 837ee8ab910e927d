"""Small data sets of real photo files, and files that only claim to be photos."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from lockstep.engine.data import checking

SPLITS = ("train", "test")


def picture(seed: int, width: int = 40, height: int = 32) -> Image.Image:
    """Noise: no two seeds give the same pixels."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def photo_set(folder: Path, train: int = 20, test: int = 20, classes: Iterable[str] = ("a", "b")) -> Path:
    """`folder`/{train,test}/<class>/<number>.jpg, all different; returns `folder`."""
    seed = 0
    for split, count in zip(SPLITS, (train, test), strict=True):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                picture(seed := seed + 1).save(folder / split / name / f"{number:02d}.jpg")
    return folder


def truncate(path: Path) -> None:
    """The header stays sound, and half of the picture is missing."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _block(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)


def _png(path: Path, width: int, height: int, kind: bytes, packed: bytes) -> None:
    header = width.to_bytes(4) + height.to_bytes(4) + kind + bytes(3)
    blocks = _block(b"IHDR", header) + _block(b"IDAT", packed) + _block(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + blocks)


def huge_png(path: Path, side: int = 20_000) -> None:
    """A whole, valid PNG of one bit per pixel: some 50 kB that would fill 1.2 GB as RGB."""
    packer = zlib.compressobj(1)
    row = bytes(1 + -(-side // 8))
    packed = b"".join(packer.compress(row * 100) for _ in range(side // 100)) + packer.flush()
    _png(path, side, side, bytes([1, 0]), packed)


def no_palette(path: Path) -> None:
    """A PNG that counts the colours of a palette which is not there; Pillow loads it, and can't make RGB of it."""
    _png(path, 8, 8, bytes([8, 3]), zlib.compress(bytes(9 * 8)))


def claim_size(path: Path, width: int, height: int) -> None:
    """A JPEG or PNG (by its name) whose header says this size, with the data of a tiny one."""
    if path.suffix == ".png":
        _png(path, width, height, bytes([8, 2]), zlib.compress(bytes(25 * 8)))
        return
    picture(1, 8, 8).save(path, "JPEG")
    data = path.read_bytes()
    place = data.index(b"\xff\xc0") + 5  # of the height in the start-of-frame segment
    path.write_bytes(data[:place] + height.to_bytes(2) + width.to_bytes(2) + data[place + 4 :])


def text(path: Path) -> None:
    path.write_text("<html>404 not found</html>")


def unreadable(folder: Path) -> dict[str, str]:
    """Every unreadable photo of a set, and why."""
    return checking.everything(checking.check_photos(folder).unreadable)
