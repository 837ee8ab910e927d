"""Photos in class folders: `<root>/<dataset>/{train,test}/<class>/*.jpg|jpeg|png`, names in any case.

Without a test folder, a fifth of each class is set aside for testing, chosen by a hash of class and file name.

Listing reads only the names, without a system call per file, so that 200 000 files are listed in less than a second.
Every file whose name ends like a photo's is listed; `lockstep.engine.data.checking` finds those that can't be read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import Photos

LAYOUT = "<root>/<dataset>/{train,test}/<class>/*.jpg"
MARKER = "STAND_IN.json"  # in the dataset's folder if its photos were made by lockstep.engine.data.synthetic
SPLITS = ("train", "test")
_ENDINGS = (".jpg", ".jpeg", ".png")
_MADE_ANEW = "keep no photos of your own there, and remove {}: it is made anew (`lockstep data make`)"
# Folders that hold a data set under the name that its publisher gave it.
_ALSO_CALLED = {"pneumonia": ("chest_xray", "chest-xray-pneumonia")}


def open_photos(root: str | os.PathLike[str], dataset: str, split: str, skipped: Collection[str] = ()) -> Photos:
    """The photos of one split ("train" or "test"), in an order that does not depend on the file system.

    Training photos are mirrored at random (by seed, epoch and sample id); test photos never. `skipped` are photos to
    leave out, as paths within the data set's folder (see `lockstep.engine.data.checking`). Raises DataError for a
    missing folder, a split with fewer than two classes, a class without photos, classes that differ between train and
    test, folders that are links leading out of the data set's own folder (which may itself be a link), and a stand-in
    that was changed.
    """
    return open_folder(dataset_folder(root, dataset), split, skipped)


def open_folder(folder: str | os.PathLike[str], split: str, skipped: Collection[str] = ()) -> Photos:
    """Like `open_photos`, for the folder of one data set instead of a root of several."""
    if split not in SPLITS:
        raise DataError(f"split={split!r} does not exist; give 'train' or 'test'")
    folder = Path(folder).expanduser().resolve()
    halves = split_folders(folder)
    train, test = halves.get("train"), halves.get("test")
    if test is not None and train is None:
        raise DataError(f"{str(folder)!r} has a folder 'test' and none called 'train'; lay it out as {LAYOUT}")
    classes = _classes(train or folder, folder)
    if test is not None:
        _no_broken_link(test)
        if not subfolders(test):
            raise DataError(
                f"{str(test)!r} holds no class folder; add the test photos, or remove it: a fifth of each class is set "
                "aside then"
            )
        _same_classes(classes, subfolders(test), folder)
        of_test = _classes(test, folder)
        classes = of_test if split == "test" else classes
    names = [_photos_in(path, name) for name, path in classes.items()]
    stand_in = (folder / MARKER).exists()
    if stand_in:
        counts = {name: len(of_class) for name, of_class in zip(classes, names, strict=True)}
        _as_written(folder, "train" if test is None else split, counts)
    if test is None:
        names = [part_of(split, of_class, name, classes[name]) for name, of_class in zip(classes, names, strict=True)]
    if skipped:
        gone = set(skipped)
        names = [_without(gone, of_class, classes[name], folder) for name, of_class in zip(classes, names, strict=True)]
    source = "synthetic" if stand_in else "real"
    return Photos.of(tuple(classes), [str(path) for path in classes.values()], names, source, split == "train")


def dataset_folder(root: str | os.PathLike[str], dataset: str) -> Path:
    """The folder of a data set below `root`, links resolved. Raises DataError if there is none."""
    found = find_dataset(root, dataset)
    if found is None:
        root = Path(root).expanduser().absolute()
        there = ", ".join(subfolders(root)) or "no folder at all"
        raise DataError(
            f"data set {dataset!r} has no folder in {str(root)!r} (there: {there}); lay it out as {LAYOUT}, "
            "see data/README.md"
        )
    return found


def find_dataset(root: str | os.PathLike[str], dataset: str) -> Path | None:
    """Like `dataset_folder`, but None if the root exists and has no such data set."""
    root = Path(root).expanduser().absolute()
    if not root.is_dir():
        raise DataError(
            f"data folder {str(root)!r} does not exist; give an existing one with --data-dir or LOCKSTEP_DATA, "
            "or none to train on the synthetic stand-in"
        )
    folders = subfolders(root)
    names = (dataset.casefold(), *_ALSO_CALLED.get(dataset, ()))
    return next((folders[name].resolve() for name in names if name in folders), None)


def split_folders(folder: Path) -> dict[str, Path]:
    """The folders `train` and `test`, as far as they exist. Raises DataError for links that lead elsewhere."""
    _no_broken_link(folder, SPLITS)
    there = subfolders(folder)
    halves = {name: there[name] for name in SPLITS if name in there}
    for path in halves.values():
        _stay_inside(path, folder)
    return halves


def subfolders(folder: Path) -> dict[str, Path]:
    """Visible folders in a folder by lower-case name, sorted. DataError if two names differ in case only."""
    found: dict[str, Path] = {}
    for entry in _scan(folder):
        if entry.name.startswith((".", "__")):
            continue
        # os.path.isdir: for a link that leads in a circle it says no, instead of raising.
        if not (os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()):
            continue
        name = entry.name.casefold()
        if name in found:
            pair = " and ".join(sorted((entry.name, found[name].name)))
            raise DataError(f"{str(folder)!r} holds {pair}, which differ in case only; merge or rename one of them")
        found[name] = Path(entry.path)
    return dict(sorted(found.items()))


def photo_names(folder: Path) -> list[str]:
    """The names of the files that end like a photo's, sorted. The files themselves are not looked at."""
    with _naming_folder(folder):
        names = os.listdir(folder)
    return sorted(name for name in names if name.lower().endswith(_ENDINGS) and not name.startswith("."))


def part_of(split: str, names: list[str], class_name: str, folder: Path) -> list[str]:
    """The training or the test part of a class: the fifth with the lowest hashes, at least one, is for testing."""
    if len(names) < 2:
        raise DataError(
            f"class {class_name!r} has {len(names)} photo in {str(folder)!r}, too few to set some aside for testing; "
            "add photos, or a test folder"
        )
    ranked = sorted(names, key=lambda name: sha256(os.fsencode(f"{class_name}/{name}")).digest())
    tests = max(1, round(len(names) / 5))
    return sorted(ranked[:tests] if split == "test" else ranked[tests:])


def _classes(folder: Path, dataset: Path) -> dict[str, Path]:
    _no_broken_link(folder)
    classes = subfolders(folder)
    if not classes:
        raise DataError(f"{str(folder)!r} holds no class folder; lay the data set out as {LAYOUT}")
    if len(classes) == 1:
        raise DataError(
            f"{str(folder)!r} holds one class only, {next(iter(classes))!r}; classification needs at least 2 folders"
        )
    for path in classes.values():
        _stay_inside(path, dataset)
    return classes


def _no_broken_link(folder: Path, names: Collection[str] = ()) -> None:
    """Raises DataError for a broken link among these names; without names, among all visible ones."""
    for entry in _scan(folder):
        meant = entry.name.casefold() in names if names else not entry.name.startswith(".")
        if meant and entry.is_symlink() and not os.path.exists(entry.path):
            raise DataError(f"{entry.path!r} is a link to nothing; restore what it leads to, or remove it")


def _stay_inside(path: Path, dataset: Path) -> None:
    if path.is_symlink() and not path.resolve().is_relative_to(dataset):
        raise DataError(
            f"{str(path)!r} is a link that leaves the data set's folder; put the photos themselves there, "
            "or make the data set's whole folder the link"
        )


def _same_classes(train: Iterable[str], test: Iterable[str], folder: Path) -> None:
    train, test = set(train), set(test)
    if train != test:
        only = [f"only in {name}: {', '.join(sorted(a - b))}" for name, a, b in
                (("train", train, test), ("test", test, train)) if a - b]  # fmt: skip
        raise DataError(f"classes of {str(folder)!r} differ ({'; '.join(only)}); give both splits the same folders")


def _photos_in(folder: Path, name: str) -> list[str]:
    names = photo_names(folder)
    if not names:
        raise DataError(
            f"class {name!r} has no photo in {str(folder)!r} (endings {', '.join(_ENDINGS)}); "
            "add photos or remove the folder"
        )
    return names


def _as_written(folder: Path, split: str, counts: Mapping[str, int]) -> None:
    """Raises DataError unless each class of the stand-in has as many photos as were written."""
    marker = folder / MARKER
    try:
        written = json.loads(marker.read_bytes())["counts"].get(split, {})
        written = {str(name): int(count) for name, count in written.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{str(marker)!r} is damaged; {_MADE_ANEW.format(folder)}") from error
    if counts != written:
        wrong = [f"{counts.get(name, 0)} of {name} instead of {written.get(name, 0)}"
                 for name in sorted({*counts, *written}) if counts.get(name, 0) != written.get(name, 0)]  # fmt: skip
        raise DataError(
            f"the synthetic stand-in {str(folder)!r} was changed since it was written: {split} has "
            f"{', '.join(wrong)}; {_MADE_ANEW.format(folder)}"
        )


def _without(gone: Collection[str], names: list[str], folder: Path, dataset: Path) -> list[str]:
    inner = os.fspath(folder.relative_to(dataset))
    left = [name for name in names if f"{inner}/{name}" not in gone]
    if not left:
        raise DataError(
            f"class {folder.name!r} has no photo left in {str(folder)!r}: none of its {len(names)} can be read "
            f"(first {names[0]!r}); restore them or remove the class; `lockstep data check` says what is wrong"
        )
    return left


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    with _naming_folder(folder), os.scandir(folder) as entries:
        return list(entries)


@contextlib.contextmanager
def _naming_folder(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"folder {str(folder)!r} can't be listed ({error.strerror}); check that it exists and may be read"
        ) from error
