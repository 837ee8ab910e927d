"""Checks every photo of a data set before training, and decides what to do about those that can't be read.

Unreadable photos are left out and counted, with a warning. With `strict` any of them is an error; more than 5 % of a
split is always an error. Every photo is decoded in full, because a truncated file still has a sound header. Photos
that were found readable are noted in a cache (`readable_cache`), so that they are decoded for the check only once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import SPLITS, open_folder
from lockstep.engine.data.photos import decode_photo, why_unreadable
from lockstep.engine.data.readable_cache import key_of, readable_photos, store_readable_photos
from lockstep.engine.data.threads import in_threads, with_progress

MOST_UNREADABLE = 0.05  # of a split
_NAMED = 5  # photos named in a message
_SIZE = 32  # pixels: a JPEG is then decoded at an eighth of its size, and read to its end all the same

LEAVES = "a link that leaves the data set's folder"
BROKEN = "a link to nothing"


@dataclass(frozen=True)
class CheckResult:
    """The result of checking a data set."""

    folder: Path
    counts: dict[str, int]  # photos by split, including those that can't be read
    unreadable: dict[str, dict[str, str]]  # by split: path within the data set's folder -> reason

    @property
    def skipped(self) -> tuple[str, ...]:
        """Paths within the data set's folder, as `open_photos` takes them."""
        return tuple(path for of_split in self.unreadable.values() for path in of_split)

    @property
    def caution(self) -> str:
        """A warning in words; empty if every photo can be read."""
        if not self.skipped:
            return ""
        return (
            f"{len(self.skipped)} of {sum(self.counts.values())} photos in {str(self.folder)!r} can't be read and are "
            f"left out: {named(everything(self.unreadable))}; restore or remove them"
        )


def check_photos(folder: str | os.PathLike[str], splits: Sequence[str] = SPLITS, strict: bool = False) -> CheckResult:
    """Checks every photo of these splits of the data set in `folder`, in threads on all usable cores.

    Raises DataError where `open_folder` would, if more than 5 % of a split can't be read, if a class loses all its
    photos, and with `strict` if any photo can't be read.
    """
    folder = Path(folder).expanduser().resolve()
    checked = _look(folder, splits)
    refused = refusals(checked.counts, checked.unreadable, strict)
    if refused:
        raise DataError(f"{str(folder)!r}: {'; '.join(refused)}")
    if checked.skipped:
        for split in splits:
            open_folder(folder, split, checked.skipped)
    return checked


def refusals(counts: Mapping[str, int], unreadable: Mapping[str, Mapping[str, str]], strict: bool = False) -> list[str]:
    """The reasons why training is refused because of these unreadable photos; empty if it is not."""
    found = []
    for split, of_split in unreadable.items():
        if len(of_split) > MOST_UNREADABLE * counts[split]:
            share = 100 * len(of_split) / counts[split]
            found.append(
                f"{len(of_split)} of {counts[split]} photos in {split} can't be read, {share:.1f} % and more than the "
                f"{100 * MOST_UNREADABLE:.0f} % that may be left out: {named(of_split)}; restore or remove them"
            )
    every = everything(unreadable)
    if strict and every and not found:
        found.append(
            f"{len(every)} of {sum(counts.values())} photos can't be read, and strict allows none: {named(every)}; "
            "restore or remove them, or leave strict out"
        )
    return found


def everything(unreadable: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The unreadable photos of all splits together."""
    return {path: why for of_split in unreadable.values() for path, why in of_split.items()}


def named(unreadable: Mapping[str, str]) -> str:
    """The first few unreadable photos with their reasons, as text."""
    first = [f"{path!r} ({why})" for path, why in list(unreadable.items())[:_NAMED]]
    more = len(unreadable) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def look_at_file(path: str, inside: str) -> os.stat_result | str:
    """The size and dates of a file, or the reason why it can't be a photo. It is not opened: a pipe would block."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            if not os.path.exists(path):
                return BROKEN
            if not os.path.realpath(path).startswith(os.path.join(inside, "")):
                return LEAVES
            info = os.stat(path)
    except OSError as error:
        return why_unreadable(error)
    if stat.S_ISDIR(info.st_mode):
        return "a folder, not a file"
    if not stat.S_ISREG(info.st_mode):
        return "not a regular file"
    return info if info.st_size else "an empty file"


def _look(folder: Path, splits: Sequence[str]) -> CheckResult:
    top = os.fspath(folder)
    known = readable_photos(folder)
    counts: dict[str, int] = {}
    unreadable: dict[str, dict[str, str]] = {}
    keys: set[bytes] = set()
    unknown: list[tuple[str, str, bytes]] = []  # split, path, key
    for split in splits:
        photos = open_folder(folder, split)
        counts[split], unreadable[split] = len(photos), {}
        if photos.source == "synthetic":  # the stand-in is Lockstep's own, and was written whole or not at all
            continue
        for path in map(photos.path, range(len(photos))):
            inner = path[len(top) + 1 :]
            info = look_at_file(path, top)
            if isinstance(info, str):
                unreadable[split][inner] = info
                continue
            keys.add(key := key_of(inner, info))
            if key not in known:
                unknown.append((split, path, key))
    found = in_threads(_why_unreadable, [path for _, path, _ in unknown])
    what = f"looking at the photos in {folder.name!r}, once"
    for (split, path, key), why in zip(unknown, with_progress(found, len(unknown), what), strict=True):
        if why:
            unreadable[split][path[len(top) + 1 :]] = why
            keys.discard(key)
    if unknown:
        store_readable_photos(folder, keys if set(splits) == set(SPLITS) else keys | known)
    return CheckResult(
        folder, counts, {split: dict(sorted(of_split.items())) for split, of_split in unreadable.items()}
    )


def _why_unreadable(path: str) -> str:
    """The reason why a photo can't be read; empty if training's own function can read it."""
    try:
        decode_photo(path, flip=False, size=_SIZE)
    except DataError as error:
        return why_unreadable(error.__cause__ or error)
    return ""
