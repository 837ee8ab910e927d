"""WHAT is trained: a network, a data set, a loss and an optimiser, as the papers state them."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.data.checking import check_photos
from lockstep.data.errors import DataError
from lockstep.data.folders import dataset_folder, open_photos
from lockstep.data.sources import ImageData, Photos
from lockstep.data.synthetic import counts_for, ensure_stand_in
from lockstep.models import alexnet, vgg16
from lockstep.replica.torch import Loss, cross_entropy

# Single-to-Multi, section 3.2. `fused` is the same arithmetic in one pass over memory.
PAPER_SGD = functools.partial(torch.optim.SGD, lr=0.001, momentum=0.9, fused=True)


@dataclass(frozen=True)
class UseCase:
    """A task to train. `model()` makes the network; `loss(output, labels)` gives one value per sample.

    `optimiser(tensors)` makes a torch optimiser that works element by element (SGD, Adam, ...): a sync may give it
    slices of the parameters. A reader's own data stand in `train` and `test`; the papers' come from folders.
    """

    name: str
    model: Callable[[], nn.Module]
    optimiser: Callable[[Iterable[Tensor]], Optimizer] = PAPER_SGD
    loss: Loss = cross_entropy
    dataset: str = ""
    images: int = 0  # photos in the paper's data set, training and test together
    classes: int = 0  # that the network tells apart (0: any number)
    place: str = ""  # in the paper
    train: ImageData | None = None
    test: ImageData | None = None

    def optimiser_of(self, kind: str) -> Callable[[Iterable[Tensor]], Optimizer]:
        """`fused`: as it stands; `plain`: torch's default, a pass over memory per operation. The same arithmetic."""
        made = self.optimiser
        if kind == "plain" and isinstance(made, functools.partial) and made.keywords.get("fused"):
            return functools.partial(made, fused=False)
        return made

    def open(self, split: str, root: str | None, images: int = 0, skipped: Collection[str] = ()) -> ImageData:
        """The images of split `train` or `test`, without `skipped`; `images` of them (0: all). Raises DataError.

        So it does for a folder with another number of classes than the network has.
        """
        own = self.train if split == "train" else self.test
        if own is not None:
            return own
        if root is None:
            raise DataError(f"{self.name} has no {split} images: give a data folder with --data-dir or LOCKSTEP_DATA")
        photos = open_photos(root, self.dataset, split, skipped)
        self.check_classes(photos, root)
        return photos.subset(images) if images else photos

    def check_classes(self, photos: Photos, root: str) -> None:
        """Raises DataError unless the photos have as many classes as the network."""
        if self.classes and len(photos.classes) != self.classes:
            raise DataError(
                f"{self.name} tells {self.classes} classes apart, and {str(dataset_folder(root, self.dataset))!r} has "
                f"{len(photos.classes)}: {', '.join(photos.classes)}; give it {self.classes} class folders "
                "(data/README.md), or train a network of your own with lockstep.train"
            )


USE_CASES: dict[str, UseCase] = {
    "ComplexSmall": UseCase(
        "ComplexSmall", functools.partial(vgg16, 3), dataset="fire-smoke", images=791, classes=3,
        place="Single-to-Multi 3.1",
    ),
    "SimpleBig": UseCase(
        "SimpleBig", functools.partial(alexnet, 3), dataset="fire-smoke", images=6003, classes=3,
        place="Single-to-Multi 3.1",
    ),
}  # fmt: skip


def use_case(name: str) -> UseCase:
    """Raises ValueError, with the names that exist."""
    if name not in USE_CASES:
        raise ValueError(f"use_case={name!r} does not exist; there are: {', '.join(USE_CASES)}")
    return USE_CASES[name]


@dataclass(frozen=True)
class Source:
    """Where a use case's images come from on this machine."""

    root: str
    kind: str  # real | synthetic
    train_images: int
    skipped: tuple[str, ...] = ()  # photos that can't be read, as paths within the data set's folder


def find_images(case: UseCase, data_dir: str | None = None, images: int = 0, strict: bool = False) -> Source:
    """The real folder if one is given (or LOCKSTEP_DATA names one), else the synthetic stand-in, written on demand.

    `images` limits the photos used, training and test together (0: as many as the paper's set has). A real set
    that has fewer is used whole.

    Every photo of a real set is looked at before (once: see `lockstep.data.checking`). Those that can't be read are
    left out, with a warning. Raises DataError, also for another number of classes than the network has, if more than
    5 % of a split can't be read, or if any can't and `strict` is set.
    """
    total = images or case.images
    data_dir = data_dir or os.environ.get("LOCKSTEP_DATA") or None
    # Absolute: workers and messages mean the same folder, wherever they are read.
    root = str(Path(data_dir).expanduser().absolute() if data_dir else ensure_stand_in(case.dataset, total))
    case.check_classes(open_photos(root, case.dataset, "train"), root)  # before the long look at every photo
    checked = check_photos(dataset_folder(root, case.dataset), strict=strict)
    if checked.caution:
        warnings.warn(checked.caution, stacklevel=2)
    train = open_photos(root, case.dataset, "train", checked.skipped)
    wanted = sum(counts_for(total)["train"].values())
    return Source(root, train.source, min(len(train), wanted), checked.skipped)
