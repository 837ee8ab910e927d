"""The findings of `lockstep data check`: every photo of a data set is decoded once, and only its digest is kept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lockstep.engine.data.checking import BROKEN, LEAVES, CheckResult, everything, look_at_file, refusals
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import SPLITS, open_folder, part_of, photo_names, split_folders, subfolders
from lockstep.engine.data.photos import Look, look_at_photo, why_unreadable
from lockstep.engine.data.threads import in_threads, with_progress

IMBALANCE = 3.0  # largest class / smallest class; from this ratio on there is a caution


class Photo(NamedTuple):
    """A readable photo."""

    split: str
    label: str
    path: str  # within the data set's folder
    size_bytes: int
    look: Look


@dataclass
class Copies:
    """Photos with the same pixels, even if their files differ; each kind with two paths as an example."""

    within: dict[str, int]  # by split: photos that repeat an earlier one of the same split
    across: int  # test photos that are among the training photos too
    two_labels: int  # pictures that are in more than one class
    examples: dict[str, tuple[str, str]] = field(default_factory=dict)  # by split, "across", "two labels"


@dataclass
class Inspection:
    """Everything that was found out about a data set's folder."""

    folder: Path
    photos: list[Photo] = field(default_factory=list)
    listed: dict[str, Counter[str]] = field(default_factory=dict)  # by split and class, including unreadable photos
    unreadable: dict[str, dict[str, str]] = field(default_factory=dict)  # as in `CheckResult`
    left_alone: list[str] = field(default_factory=list)  # folders beside train and test, which training ignores
    refused: list[str] = field(default_factory=list)  # the reasons why training would refuse it
    cautions: list[str] = field(default_factory=list)  # what a reader should know before training on it

    @property
    def classes(self) -> list[str]:
        return sorted({name for of_split in self.listed.values() for name in of_split})

    @property
    def links(self) -> dict[str, str]:
        """The links that are left out, with the reasons."""
        return {path: why for path, why in everything(self.unreadable).items() if why in (LEAVES, BROKEN)}

    @property
    def imbalance(self) -> float:
        """Photos of the largest class over those of the smallest, in training; 0 without any."""
        sizes = sorted(self.listed["train"].values()) if "train" in self.listed else []
        return sizes[-1] / sizes[0] if sizes and sizes[0] else 0.0


def data_sets(folder: Path) -> list[Path]:
    """`folder` itself if it is a data set's, else those in it that are. Raises DataError for what can't be listed.

    A folder of pictures beside the data sets does not make the root a data set.
    """
    inner = subfolders(folder)
    if _has_split(inner):
        return [folder]
    found = [path for path in inner.values() if _is_data_set(path)]
    return found or ([folder] if _holds_photos(inner) else [])


def inspect_set(folder: Path, strict: bool = False) -> Inspection:
    """Inspects a data set's folder. Everything wrong with it is in the result; nothing is raised."""
    found = Inspection(folder.expanduser().resolve())
    try:
        parts = list(_parts(found.folder))
        if split_folders(found.folder):
            found.left_alone = [name for name in subfolders(found.folder) if name not in SPLITS]
    except DataError as error:
        found.refused.append(str(error))
        return found
    _look_at_all(found, parts)
    checked = CheckResult(found.folder, {s: sum(of.values()) for s, of in found.listed.items()}, found.unreadable)
    found.refused += refusals(checked.counts, found.unreadable, strict)
    for split in SPLITS:
        try:
            open_folder(found.folder, split, checked.skipped)
        except DataError as error:
            if str(error) not in found.refused:  # both splits may be refused for the same reason
                found.refused.append(str(error))
    found.cautions += _cautions(found)
    return found


def copies(photos: Sequence[Photo]) -> Copies:
    """Finds the pictures that occur more than once."""
    groups: dict[bytes, list[Photo]] = {}
    for photo in photos:
        groups.setdefault(photo.look.digest, []).append(photo)
    found = Copies(dict.fromkeys(SPLITS, 0), 0, 0)
    for group in groups.values():
        if len(group) == 1:
            continue
        of_split = {split: [photo for photo in group if photo.split == split] for split in SPLITS}
        for split, same in of_split.items():
            if len(same) > 1:
                found.within[split] += len(same) - 1
                found.examples.setdefault(split, (same[0].path, same[1].path))
        if of_split["train"] and of_split["test"]:
            found.across += len(of_split["test"])
            found.examples.setdefault("across", (of_split["train"][0].path, of_split["test"][0].path))
        other = [photo for photo in group if photo.label != group[0].label]
        if other:
            found.two_labels += 1
            found.examples.setdefault("two labels", (group[0].path, other[0].path))
    return found


def _is_data_set(folder: Path) -> bool:
    inner = subfolders(folder)
    # A folder that holds photos itself is a class, or a stray folder, whatever is below it.
    return _has_split(inner) or (_holds_photos(inner) and not photo_names(folder))


def _has_split(inner: Mapping[str, Path]) -> bool:
    return any(split in inner for split in SPLITS)


def _holds_photos(inner: Mapping[str, Path]) -> bool:
    return any(photo_names(path) for path in inner.values())


def _parts(folder: Path) -> Iterator[tuple[str, str, Path, list[str]]]:
    """(split, class, folder, file names) of everything there, even where the layout is not as it should be."""
    halves = split_folders(folder)
    for split, half in (halves or {"train": folder}).items():
        for label, path in subfolders(half).items():
            if not path.resolve().is_relative_to(folder):
                continue  # `open_folder` refuses it, in words
            names = photo_names(path)
            if "test" in halves or len(names) < 2:
                yield split, label, path, names
            else:
                for drawn in SPLITS:
                    yield drawn, label, path, part_of(drawn, names, label, path)


def _look_at_all(found: Inspection, parts: Sequence[tuple[str, str, Path, list[str]]]) -> None:
    top = os.fspath(found.folder)
    todo: list[tuple[str, str, str]] = []
    for split, label, folder, names in parts:
        found.listed.setdefault(split, Counter())[label] += len(names)
        found.unreadable.setdefault(split, {})
        todo += [(split, label, os.path.join(folder, name)) for name in names]

    def look(one: tuple[str, str, str]) -> Photo | str:
        split, label, path = one
        info = look_at_file(path, top)
        if isinstance(info, str):
            return info
        try:
            return Photo(split, label, path[len(top) + 1 :], info.st_size, look_at_photo(path))
        except DataError as error:
            return why_unreadable(error.__cause__ or error)

    seen = with_progress(in_threads(look, todo), len(todo), f"looking at the photos in {found.folder.name!r}")
    for (split, _, path), photo in zip(todo, seen, strict=True):
        if isinstance(photo, str):
            found.unreadable[split][path[len(top) + 1 :]] = photo
        else:
            found.photos.append(photo)


def _cautions(found: Inspection) -> list[str]:
    told_of = []
    unreadable = everything(found.unreadable)
    if unreadable and not found.refused:
        told_of.append(
            f"unreadable photos: {len(unreadable)}; training leaves them out and counts them; restore or remove them"
        )
    twice = copies(found.photos)
    for split, more in twice.within.items():
        if more:
            told_of.append(
                f"copies within {split}: {more}, such as {_pair(twice, split)}; these pictures count double: "
                "remove the copies"
            )
    if twice.across:
        told_of.append(
            f"test photos that stand in train too: {twice.across}, such as {_pair(twice, 'across')}; a score on them "
            "shows memory, not learning: remove them from train"
        )
    if twice.two_labels:
        told_of.append(
            f"pictures in two classes: {twice.two_labels}, such as {_pair(twice, 'two labels')}; one label must be "
            "wrong: find out which, or remove both"
        )
    if found.imbalance > IMBALANCE:
        told_of.append(
            f"the largest class has {found.imbalance:.1f} times the training photos of the smallest; a plain accuracy "
            "flatters: read the balanced one"
        )
    return told_of


def _pair(twice: Copies, which: str) -> str:
    return " = ".join(repr(path) for path in twice.examples[which])
