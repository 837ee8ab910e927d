"""WHAT is trained: a network, a data set, a loss and an optimiser, as the papers state them."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.engine.data.checking import check_photos
from lockstep.engine.data.drawn import DrawnSamples, ModelInput
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import dataset_folder, find_dataset, open_photos
from lockstep.engine.data.held_out import part_of_training
from lockstep.engine.data.inspection import IMBALANCE
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import ImageData, Photos
from lockstep.engine.data.synthetic import counts_for, ensure_stand_in
from lockstep.engine.job import OF_SIZES, Job, JobError
from lockstep.engine.models.alexnet import alexnet
from lockstep.engine.models.convlstm import build_network
from lockstep.engine.models.layers import Network
from lockstep.engine.models.losses import Loss, binary_cross_entropy, cross_entropy
from lockstep.engine.models.mixer import mlp_mixer
from lockstep.engine.models.resnet import resnet10
from lockstep.engine.models.text import VOCABULARY, WORDS, text_lstm, text_transformer
from lockstep.engine.models.vgg import vgg16

# Single-to-Multi, section 3.2. `fused` is the same arithmetic in one pass over memory.
PAPER_SGD = functools.partial(torch.optim.SGD, lr=0.001, momentum=0.9, fused=True)
# ConvLSTM-D-Accel, Table 2.
PAPER_ADAM = functools.partial(torch.optim.Adam, lr=0.001, fused=True)

_OF_NETWORK = {"network": "kind"} | {name: name for name in ("pooling", "dropout", "batch_norm", *OF_SIZES)}
"""Field of `Job` -> the field of `Network` that it sets."""


@dataclass(frozen=True)
class UseCase:
    """A task to train. `model()` makes the network; `loss(output, labels)` gives one value per sample.

    `optimiser(tensors)` makes a torch optimiser that works element by element (SGD, Adam, ...): a sync may give it
    slices of the parameters. A reader's own data are `train` and `test`; the papers' data come from folders.
    """

    name: str
    model: Callable[[], nn.Module]
    optimiser: Callable[[Iterable[Tensor]], Optimizer] = PAPER_SGD
    loss: Loss = cross_entropy
    dataset: str = ""
    images: int = 0  # photos in the paper's data set, training and test together
    classes: int = 0  # that the network tells apart (0: any number)
    train: ImageData | None = None
    test: ImageData | None = None
    network: Network | None = None  # for small images; `model` and `loss` follow from it
    augmentation: str = "flip"  # of training photos, unless a job says otherwise
    standardise: bool = False  # small images, for testing too

    @classmethod
    def of(cls, network: Network, name: str, **others: Any) -> UseCase:
        """A use case on images of 50 x 50 pixels, as in *ConvLSTM-D-Accel*; folders may have any number of classes."""
        made = cls(name, functools.partial(build_network, network), PAPER_ADAM, augmentation="none", **others)
        return made._with(network)

    def _with(self, network: Network) -> UseCase:
        loss = binary_cross_entropy if network.outputs == 1 else cross_entropy
        return replace(self, network=network, model=functools.partial(build_network, network), loss=loss)

    def for_job(self, job: Job) -> UseCase:
        """This use case with the network, optimizer and augmentation of `job`. JobError if it does not offer them."""
        case = self
        asked = {name: getattr(job, name) for name in _OF_NETWORK if getattr(job, name) not in ("default", 0, False)}
        if asked and self.network is None:
            name, value = next(iter(asked.items()))
            raise JobError(
                f"{name}={value!r} with use_case={self.name!r}, whose network is given; only use cases of small images "
                f"have a choice: {', '.join(each.name for each in USE_CASES.values() if each.network)}"
            )
        if asked and self.network is not None:
            try:
                case = self._with(replace(self.network, **{_OF_NETWORK[name]: value for name, value in asked.items()}))
            except ValueError as error:
                raise JobError(str(error)) from error
        if job.augmentation != "default":
            case = case._augmented(job.augmentation)
        if job.standardise:
            case = case._standardised()
        rates = {"lr": job.learning_rate, "weight_decay": job.weight_decay}
        given = {name: value for name, value in rates.items() if value}
        return replace(case, optimiser=functools.partial(case.optimiser, **given)) if given else case

    def _augmented(self, how: str) -> UseCase:
        if self.train is not None:
            raise JobError(f"augmentation={how!r}: {self.name} has images of its own, which augment themselves or not")
        if how in ("shift", "affine") and self.network is None:
            raise JobError(f"augmentation={how!r} with use_case={self.name!r}: photos are mirrored only; give 'flip'")
        return replace(self, augmentation=how)

    def _standardised(self) -> UseCase:
        if self.train is not None:
            raise JobError(f"standardise=True: {self.name} has images of its own; standardise them beforehand")
        if self.network is None:
            raise JobError(f"standardise=True with use_case={self.name!r}: only small images can be; leave it out")
        return replace(self, standardise=True)

    def fitting(self, data: ImageData) -> UseCase:
        """This use case with as many outputs as `data` needs, if its network is not given as a torch model."""
        if self.network is None or self.network.classes == len(data.classes):
            return self
        return self._with(replace(self.network, classes=len(data.classes)))

    def optimiser_of(self, kind: str) -> Callable[[Iterable[Tensor]], Optimizer]:
        """`fused`: the use case's own; `plain`: torch's default with several passes over memory. The same
        arithmetic."""
        made = self.optimiser
        if kind == "plain" and isinstance(made, functools.partial) and made.keywords.get("fused"):
            return functools.partial(made, fused=False)
        return made

    def open(
        self, split: str, root: str | None, images: int = 0, skipped: Collection[str] = (), part: str = "all"
    ) -> ImageData:
        """The images of split `train` or `test` without `skipped`, limited to `images` of them (0: all).

        `part` of the training images: all | kept | held_out (see `lockstep.engine.data.held_out`). Raises DataError,
        also for a folder with another number of classes than the network has, if that number is given.
        """
        own = self.train if split == "train" else self.test
        if own is None and root is None:
            raise DataError(f"{self.name} has no {split} images: give a data folder with --data-dir or LOCKSTEP_DATA")
        data = self._opened(split, str(root), images, skipped) if own is None else own
        return part_of_training(data, part) if split == "train" else data

    def _opened(self, split: str, root: str, images: int, skipped: Collection[str]) -> ImageData:
        photos = open_photos(root, self.dataset, split, skipped)
        self.check_classes(photos, root)
        photos = photos.subset(images) if images else photos
        if self.network is not None:
            how = self.augmentation if split == "train" else "none"
            return SmallImages.of(photos, self.network.channels, how, self.standardise)
        return photos if self.augmentation == "flip" else replace(photos, augment=False)

    def check_classes(self, photos: Photos, root: str) -> None:
        """Raises DataError unless the photos have as many classes as the network."""
        if self.classes and len(photos.classes) != self.classes:
            raise DataError(
                f"{self.name} tells {self.classes} classes apart, and {str(dataset_folder(root, self.dataset))!r} has "
                f"{len(photos.classes)}: {', '.join(photos.classes)}; give it {self.classes} class folders "
                "(data/README.md), or train a network of your own with lockstep.train"
            )


USE_CASES: dict[str, UseCase] = {
    # Single-to-Multi, §3.1
    "ComplexSmall": UseCase("ComplexSmall", functools.partial(vgg16, 3), dataset="fire-smoke", images=791, classes=3),
    "SimpleBig": UseCase("SimpleBig", functools.partial(alexnet, 3), dataset="fire-smoke", images=6003, classes=3),
    # ConvLSTM-D-Accel, §4, names these four and gives no counts. Those here are of the public sets that it may mean
    # (see data/README.md); for breast cancer 10,000 of a set that has 277,000 patches.
    "Pneumonia": UseCase.of(Network(channels=1), "Pneumonia", dataset="pneumonia", images=5856),
    "FaceMask": UseCase.of(Network(), "FaceMask", dataset="face-mask", images=7553),
    "LeafDisease": UseCase.of(Network(classes=4), "LeafDisease", dataset="leaf-disease", images=4188),
    "BreastCancer": UseCase.of(Network(), "BreastCancer", dataset="breast-cancer", images=10_000),
}

_TEXTS = DrawnSamples((ModelInput("int64", (WORDS,)),), vocabulary=VOCABULARY)
_SMALL, _LARGER = (DrawnSamples((ModelInput("float32", (3, side, side)),)) for side in (32, 64))
_ON_DRAWN_SAMPLES = (
    UseCase("SmallResNet", functools.partial(resnet10, 10), train=_SMALL),
    UseCase("MLPMixer", functools.partial(mlp_mixer, 10), PAPER_ADAM, train=_LARGER),
    UseCase("TextLSTM", functools.partial(text_lstm, 10), train=_TEXTS),
    UseCase("TextTransformer", functools.partial(text_transformer, 10), PAPER_ADAM, train=_TEXTS),
)
DRAWN_USE_CASES: dict[str, UseCase] = {case.name: case for case in _ON_DRAWN_SAMPLES}
"""No paper's: other kinds of models, on samples without meaning, of which only the time of a step is asked."""


def use_case(name: str) -> UseCase:
    """The use case of that name. Raises JobError, which lists the names that exist."""
    known = USE_CASES | DRAWN_USE_CASES
    if name not in known:
        raise JobError(f"use_case={name!r} does not exist; there are: {', '.join(known)}")
    return known[name]


@dataclass(frozen=True)
class Source:
    """Where a use case's images come from on this machine."""

    root: str
    kind: str  # real | synthetic
    train_images: int
    skipped: tuple[str, ...] = ()  # photos that can't be read, as paths within the data set's folder


def find_images(case: UseCase, data_dir: str | None = None, images: int = 0, strict: bool = False) -> Source:
    """The real folder if one is given (or LOCKSTEP_DATA names one), else the synthetic stand-in, written on demand.

    `images` limits the training photos to those of a set of so many, training (four fifths) and test together
    (0: of as many as the paper's set has). A real set that has fewer in all is used whole, however it is split.
    All test photos are used, whatever `images` is. If the data folder lacks a data set of small images, its stand-in is
    used, with a warning. Small images of both splits are decoded here, once for all workers.

    Every photo of a real set is checked first (see `lockstep.engine.data.checking`). Unreadable ones are left out, with
    a warning. Raises DataError if the number of classes is not the network's, if more than 5 % of a split are
    unreadable, or if any photo is and `strict` is set. A use case that brings its samples along needs no folder.
    """
    if case.train is not None:
        return Source("", case.train.source, len(case.train))
    total = images or case.images
    root = str(_root(case, data_dir or os.environ.get("LOCKSTEP_DATA") or None, total))
    case.check_classes(open_photos(root, case.dataset, "train"), root)  # before the long check of every photo
    checked = check_photos(dataset_folder(root, case.dataset), strict=strict)
    train = open_photos(root, case.dataset, "train", checked.skipped)
    count = len(train)
    # Published splits are seldom 80/20: a share of the total would lose images of a set that is to be used whole.
    if images or count + len(open_photos(root, case.dataset, "test", checked.skipped)) > total:
        count = min(count, sum(counts_for(total, train.classes)["train"].values()))
    source = Source(root, train.source, count, checked.skipped)
    for caution in (checked.caution, *_cautions(case, source)):
        if caution:
            warnings.warn(caution, stacklevel=2)
    return source


def _root(case: UseCase, data_dir: str | None, total: int) -> Path:
    """The absolute path of the data folder, so that workers and messages mean the same folder."""
    root = Path(data_dir).expanduser().absolute() if data_dir else None
    if root is not None and case.network is not None and find_dataset(root, case.dataset) is None:
        warnings.warn(
            f"data folder {str(root)!r} has no {case.dataset!r}: {case.name} trains on the synthetic stand-in; "
            "data/README.md says where images of it are published",
            stacklevel=3,
        )
        root = None
    return ensure_stand_in(case.dataset, total).absolute() if root is None else root


def _cautions(case: UseCase, source: Source) -> Iterator[str]:
    """Cautions about small images, for a reader who will interpret an accuracy."""
    if case.network is None:
        return
    small = case.open("train", source.root, source.train_images, source.skipped)
    assert isinstance(small, SmallImages)
    counts = np.bincount(small.labels)
    if counts.max() > IMBALANCE * counts.min():
        most, least = (small.classes[int(place)] for place in (counts.argmax(), counts.argmin()))
        yield (
            f"{case.name}: class {most!r} has {counts.max() / counts.min():.1f} times the training images of "
            f"{least!r} ({counts.max()} and {counts.min()}); a plain accuracy flatters: read the balanced one, or give "
            "class_weights='balanced'"
        )
    test = case.open("test", source.root, skipped=source.skipped)
    assert isinstance(test, SmallImages)
    test.load(np.arange(1), 0, 0)  # decodes all of them here, so that the workers do not all do it at once
    if small.enlarged:
        yield (
            f"{case.name}: {small.enlarged} of {len(small)} training images are smaller than 50 x 50 pixels and were "
            "enlarged; they show less than the network could see"
        )
