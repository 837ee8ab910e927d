"""A cache of the photos that were found readable, so that a large data set is decoded for the check only once.

A text file per data set in the user's cache, never in the data folder: a first line, then a key per photo. A key is a
hash of the path within the set, the size and the times of last change, so a new or changed file is looked at again.
Unreadable photos are not in the cache: they are tried again each time, because they may have been restored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import PIL

from lockstep.engine.files import WriteError, write_atomically

# By data set, for a cache that can't be written: then this process at least keeps what it has found itself.
_here: dict[Path, set[bytes]] = {}
# Another version of Pillow may read other files. Raise the version when `decode_photo` refuses what it read before.
_FIRST_LINE = f"lockstep photos found readable, version 2, Pillow {PIL.__version__}".encode()


def cache_folder() -> Path:
    """LOCKSTEP_CACHE, else `lockstep` in the user's cache. RuntimeError for a user without a home."""
    named = os.environ.get("LOCKSTEP_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lockstep"


def key_of(relative: str, info: os.stat_result) -> bytes:
    """The key of a photo. It includes the inode's time, because permissions change and old dates can be restored."""
    text = f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} ".encode() + os.fsencode(relative)
    return blake2b(text, digest_size=12).hexdigest().encode()


def readable_photos(folder: Path) -> set[bytes]:
    """The stored keys of a data set's readable photos; empty if there is no cache file, or a damaged one."""
    path = _file_of(folder)
    known = _here.get(folder, set())
    try:
        lines = path.read_bytes().split(b"\n") if path is not None else []
    except OSError:
        lines = []
    return known.union(lines[1:] if lines and lines[0] == _FIRST_LINE else ())


def store_readable_photos(folder: Path, keys: Iterable[bytes]) -> None:
    """Stores the keys for the next run. A cache that can't be written is no error."""
    path, keys = _file_of(folder), set(keys)
    if path is not None:
        with contextlib.suppress(OSError, WriteError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, b"\n".join((_FIRST_LINE, *sorted(keys))))
            return
    _here[folder] = keys


def _file_of(folder: Path) -> Path | None:
    """The cache file of this folder; None if it would be inside the folder itself."""
    try:
        base = cache_folder().resolve()
    except (OSError, RuntimeError):
        return None
    if base.is_relative_to(folder):
        return None
    return base / "checked" / f"{blake2b(os.fsencode(folder), digest_size=12).hexdigest()}.txt"
