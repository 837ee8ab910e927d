"""The synthetic stand-in: real JPEG files in the layout of a real data set, for readers who have none.

It stands for the counts, the sizes and the decoding cost of the papers' photos, not for what is seen on them: no
accuracy reached on it says anything about fires.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from PIL import Image

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import MARKER, SPLITS
from lockstep.engine.data.pictures import CLASSES, draw_picture
from lockstep.engine.data.readable_cache import cache_folder
from lockstep.engine.data.small_pictures import draw_small_picture
from lockstep.engine.data.threads import in_threads
from lockstep.engine.files import repository_above, take_turn

VERSION = 1  # of the pictures: raise it when they change, so that nothing is measured on old ones
QUALITY = 88  # JPEG: gives files about as large as those of the real set


@dataclass(frozen=True)
class StandIn:
    """How the stand-in of one data set is made: draw(seed, split, class, number) gives a picture."""

    images: int  # of the smallest use case that trains on it (see `lockstep.engine.usecases`)
    classes: tuple[str, ...]
    draw: Callable[[int, int, int, int], Image.Image]

    @classmethod
    def small(cls, images: int, *classes: str, grey: bool = False) -> StandIn:
        return cls(images, classes, partial(draw_small_picture, classes=len(classes), grey=grey))


STAND_INS: dict[str, StandIn] = {
    "fire-smoke": StandIn(791, CLASSES, draw_picture),
    "pneumonia": StandIn.small(5856, "normal", "pneumonia", grey=True),
    "face-mask": StandIn.small(7553, "with_mask", "without_mask"),
    "leaf-disease": StandIn.small(4188, "blight", "common_rust", "gray_leaf_spot", "healthy"),
    "breast-cancer": StandIn.small(10_000, "benign", "malignant"),
}

Counts = Mapping[str, Mapping[str, int]]


def counts_for(images: int, classes: Sequence[str] = CLASSES) -> dict[str, dict[str, int]]:
    """{split: {class: photos}} of a set of `images` photos: equal classes, 80/20. DataError below 2 per class."""
    least = 2 * len(classes)
    if isinstance(images, bool) or not isinstance(images, int) or images < least:
        raise DataError(f"images={images!r} is too few for {len(classes)} classes; give a whole number from {least}")
    size, larger = divmod(images, len(classes))
    counts: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    for place, name in enumerate(classes):
        of_class = size + (place < larger)
        counts["test"][name] = max(1, round(of_class / 5))
        counts["train"][name] = of_class - counts["test"][name]
    return counts


def ensure_stand_in(dataset: str, images: int, root: str | os.PathLike[str] | None = None) -> Path:
    """The folder to give to `open_photos` for a stand-in of `images` photos (train and test); written if not there.

    Each count has a folder of its own under `root` (without it: LOCKSTEP_STAND_IN, else data/stand-in in the
    repository, else the user's cache). Several processes may call this at once: one writes, the others wait. What a
    killed process left unfinished is removed. Raises DataError.
    """
    if dataset not in STAND_INS:
        raise DataError(f"data set {dataset!r} has no stand-in; there is one for: {', '.join(STAND_INS)}")
    counts = counts_for(images, STAND_INS[dataset].classes)
    target = stand_in_root(images, root)
    base = target.parent
    if not _complete(target, dataset):
        with _sole_writer(base):
            # Checked again, because another process may have written it while this one waited.
            if not _complete(target, dataset):
                for left_over in target.glob(f".{dataset}.*.tmp"):
                    shutil.rmtree(left_over, ignore_errors=True)
                write_stand_in(target, dataset, counts)
    return target


def stand_in_root(images: int, root: str | os.PathLike[str] | None = None) -> Path:
    """Where `ensure_stand_in` puts a stand-in of `images` photos."""
    return (default_root() if root is None else Path(root).expanduser()) / f"{images}-photos-v{VERSION}"


def write_stand_in(root: str | os.PathLike[str], dataset: str, counts: Counts, seed: int = 0) -> Path:
    """Writes `<root>/<dataset>/{train,test}/<class>/*.jpg` and returns `root`, to be given to `open_photos`.

    `counts` is {"train": {class: photos}, "test": {…}} for the classes of `STAND_INS`. Picture k of a class is the same
    whatever the counts. The folder appears as a whole or not at all. Raises DataError if it exists already, if
    the counts are impossible, or if it can't be written.
    """
    tasks = _tasks(dataset, counts)
    root = Path(root)
    target = root / dataset
    if target.exists():
        raise DataError(f"{str(target)!r} exists already; remove it or give another folder")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".tmp", f".{dataset}.", root, ignore_cleanup_errors=True) as building:
            made = Path(building, dataset)  # open to others as far as the umask lets them, unlike that folder itself
            made.mkdir()
            _write(made, STAND_INS[dataset], tasks, seed)
            text = json.dumps({"made_by": "lockstep", "version": VERSION, "seed": seed, "counts": counts}, indent=2)
            (made / MARKER).write_text(text + "\n", encoding="utf-8")
            made.rename(target)
    except OSError as error:
        raise DataError(
            f"the stand-in can't be written to {str(target)!r} ({error.strerror}); free some space there, "
            "or name another folder in LOCKSTEP_STAND_IN"
        ) from error
    return root


def default_root() -> Path:
    """LOCKSTEP_STAND_IN, else data/stand-in in the repository above the working folder, else in the user's cache."""
    named = os.environ.get("LOCKSTEP_STAND_IN")
    if named:
        return Path(named).expanduser()
    repository = repository_above(Path.cwd())
    return cache_folder() / "stand-in" if repository is None else repository / "data" / "stand-in"


def _complete(target: Path, dataset: str) -> bool:
    return (target / dataset / MARKER).is_file()


def _sole_writer(base: Path) -> IO[str]:
    try:
        return take_turn(base)
    except OSError as error:
        raise DataError(
            f"{str(base)!r} can't be written to ({error.strerror}); name another folder for the stand-in in "
            "LOCKSTEP_STAND_IN, or give real photos with --data-dir"
        ) from error


def _tasks(dataset: str, counts: Counts) -> list[tuple[str, str, int]]:
    """(split, class, how many) of each folder."""
    tasks = []
    classes = STAND_INS[dataset].classes
    for split, of_split in counts.items():
        for name, count in of_split.items():
            if split not in SPLITS or name not in classes:
                raise DataError(
                    f"counts name {split!r}/{name!r}; a stand-in has {', '.join(SPLITS)} of {', '.join(classes)}"
                )
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise DataError(f"counts[{split!r}][{name!r}]={count!r} is not possible; give a whole number from 0")
            tasks.append((split, name, count))
    if sum(count for _, _, count in tasks) == 0:
        raise DataError("counts hold no photo at all; give at least one")
    return tasks


def _write(folder: Path, stand_in: StandIn, tasks: list[tuple[str, str, int]], seed: int) -> None:
    for split, name, _ in tasks:
        (folder / split / name).mkdir(parents=True, exist_ok=True)
    every = [(folder, stand_in, seed, split, name, number) for split, name, count in tasks for number in range(count)]
    for _ in in_threads(_write_one, every):
        pass


def _write_one(task: tuple[Path, StandIn, int, str, str, int]) -> None:
    folder, stand_in, seed, split, name, number = task
    picture = stand_in.draw(seed, SPLITS.index(split), stand_in.classes.index(name), number)
    picture.save(folder / split / name / f"{name}-{number:05d}.jpg", "JPEG", quality=QUALITY)
