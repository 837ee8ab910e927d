"""Photos in class folders: `<root>/<dataset>/{train,test}/<class>/*.jpg|jpeg|png`, names in any case.

Without a test folder, a fifth of each class is set aside for testing, chosen by a hash of class and file name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from lockstep.data.errors import DataError
from lockstep.data.sources import Photos

LAYOUT = "<root>/<dataset>/{train,test}/<class>/*.jpg"
MARKER = "STAND_IN.json"  # in the dataset's folder if its photos were made by lockstep.data.synthetic
SPLITS = ("train", "test")
_ENDINGS = (".jpg", ".jpeg", ".png")


def open_photos(root: str | os.PathLike[str], dataset: str, split: str) -> Photos:
    """The photos of one split ("train" or "test"), in an order that does not depend on the file system.

    Training photos are mirrored at random (by seed, epoch and sample id); test photos never. Only names are read here.
    Raises DataError for a missing folder, a split without classes or with one only, a class without photos, and
    classes that differ between train and test.
    """
    if split not in SPLITS:
        raise DataError(f"split={split!r} does not exist; give 'train' or 'test'")
    folder = _dataset_folder(Path(root).expanduser(), dataset)
    halves = _subfolders(folder)
    train, test = halves.get("train"), halves.get("test")
    if test is not None and train is None:
        raise DataError(f"{str(folder)!r} has a folder 'test' and none called 'train'; lay it out as {LAYOUT}")
    classes = _classes(train or folder)
    if test is not None:
        _same_classes(classes, _classes(test), folder)
    if split == "test" and test is not None:
        classes = _classes(test)
    names = [_photos_in(path, name) for name, path in classes.items()]
    if test is None:
        names = [_part(split, of_class, name, classes[name]) for name, of_class in zip(classes, names, strict=True)]
    source = "synthetic" if (folder / MARKER).exists() else "real"
    return Photos.of(tuple(classes), [str(path) for path in classes.values()], names, source, split == "train")


def _dataset_folder(root: Path, dataset: str) -> Path:
    if not root.is_dir():
        raise DataError(
            f"data folder {str(root)!r} does not exist; give an existing one with --data-dir or LOCKSTEP_DATA, "
            "or none to train on the synthetic stand-in"
        )
    folders = _subfolders(root)
    if dataset.casefold() not in folders:
        there = ", ".join(folders) or "no folder at all"
        raise DataError(
            f"data set {dataset!r} has no folder in {str(root)!r} (there: {there}); lay it out as {LAYOUT}, "
            "see data/README.md"
        )
    return folders[dataset.casefold()]


def _subfolders(folder: Path) -> dict[str, Path]:
    """Visible folders in a folder by lower-case name, sorted. DataError if two names differ in case only."""
    found: dict[str, Path] = {}
    for entry in _scan(folder):
        if entry.name.startswith((".", "__")) or not entry.is_dir():
            continue
        name = entry.name.casefold()
        if name in found:
            pair = " and ".join(sorted((entry.name, found[name].name)))
            raise DataError(f"{str(folder)!r} holds {pair}, which differ in case only; merge or rename one of them")
        found[name] = Path(entry.path)
    return dict(sorted(found.items()))


def _classes(folder: Path) -> dict[str, Path]:
    classes = _subfolders(folder)
    if not classes:
        raise DataError(f"{str(folder)!r} holds no class folder; lay the data set out as {LAYOUT}")
    if len(classes) == 1:
        raise DataError(
            f"{str(folder)!r} holds one class only, {next(iter(classes))!r}; classification needs at least 2 folders"
        )
    return classes


def _same_classes(train: Iterable[str], test: Iterable[str], folder: Path) -> None:
    train, test = set(train), set(test)
    if train != test:
        only = [f"only in {name}: {', '.join(sorted(a - b))}" for name, a, b in
                (("train", train, test), ("test", test, train)) if a - b]  # fmt: skip
        raise DataError(f"classes of {str(folder)!r} differ ({'; '.join(only)}); give both splits the same folders")


def _photos_in(folder: Path, name: str) -> list[str]:
    names = sorted(entry.name for entry in _scan(folder) if _is_photo(entry))
    if not names:
        raise DataError(
            f"class {name!r} has no photo in {str(folder)!r} (endings {', '.join(_ENDINGS)}); "
            "add photos or remove the folder"
        )
    return names


def _is_photo(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(_ENDINGS) and not entry.name.startswith(".") and entry.is_file()


def _part(split: str, names: list[str], class_name: str, folder: Path) -> list[str]:
    """The training or the test part of a class: a fifth with the lowest hashes is for testing, at least one."""
    if len(names) < 2:
        raise DataError(
            f"class {class_name!r} has {len(names)} photo in {str(folder)!r}, too few to set some aside for testing; "
            "add photos, or a test folder"
        )
    ranked = sorted(names, key=lambda name: sha256(os.fsencode(f"{class_name}/{name}")).digest())
    tests = max(1, round(len(names) / 5))
    return sorted(ranked[:tests] if split == "test" else ranked[tests:])


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(
            f"folder {str(folder)!r} can't be listed ({error.strerror}); check that it exists and may be read"
        ) from error
