"""A reader's own data in any of the forms that `lockstep.train` takes, as this library's `ImageData`.

    (x, y)                       arrays, tensors or lists; also {"images": x, "labels": y}
    "photos"                     a folder of {train,test}/<class>/*.jpg
    Dataset, DataLoader          of torch, map style; anything with samples by number (HuggingFace's data sets)
    ImageData                    as it is
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lockstep.engine.data.checking import check_photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import SPLITS, open_folder
from lockstep.engine.data.sources import Arrays, ImageData, are_classes, sample_dtype
from lockstep.engine.models.losses import Loss
from lockstep.engine.own.datasets import MapStyle, arrays_of, first_two, open_dataset
from lockstep.engine.own.loaders import dataset_of
from lockstep.engine.own.losses import PerSample
from lockstep.engine.own.samples import of_names
from lockstep.engine.training.finite import told_not_finite

Data = ImageData | tuple[Any, Any] | Mapping[str, Any] | Dataset[Any] | DataLoader[Any] | str | os.PathLike[str]

MOST_CHECKED_BYTES = 2 * 2**30
"""Larger arrays are not looked through for NaN beforehand: that would take seconds."""


def images_of(
    data: Any, *splits: str, strict: bool, level: int = 4, numbers: bool = False, classes: Sequence[str] | None = None
) -> list[ImageData]:
    """`data` as images: of each of these splits, if it is a folder. `level`: how far up the line is that a warning
    names. `numbers`: labels are no classes, even if they are whole numbers. `classes`: the names of the classes, if
    they are known. Raises DataError for what is no data, with the form that it should have."""
    if isinstance(data, str | os.PathLike):
        checked = check_photos(data, splits, strict)
        if checked.caution:
            warnings.warn(checked.caution, stacklevel=level)  # at the line that calls `train`
        return [open_folder(checked.folder, split, checked.skipped) for split in splits]
    found, told = _opened(data, "train" in splits, numbers, classes)
    for caution in told:
        warnings.warn(caution, stacklevel=level)
    return [found]


def _opened(
    data: Any, trains: bool, numbers: bool, classes: Sequence[str] | None
) -> tuple[ImageData, list[str]]:
    """The data, and what a reader should know of them."""
    told: list[str] = []
    if isinstance(data, DataLoader):
        data, told = dataset_of(data, trains)
    if isinstance(data, Mapping):
        data = of_names(data, "data")
    if type(data) is TensorDataset and len(data.tensors) == 2:
        data = data.tensors
    if _is_pair(data):
        if _is_wide(data[0]):
            told.append("the images are float64, and are trained as float32; images.astype('float32') saves a copy")
        return arrays_of(data[0], data[1], numbers, classes), told
    if isinstance(data, ImageData):
        if numbers and isinstance(data, Arrays):
            return arrays_of(data.images, data.labels, numbers), told
        return data, told
    if isinstance(data, np.ndarray | Tensor) or hasattr(data, "iloc"):
        kind = f"one {type(data).__name__} of shape {list(data.shape)}"
        raise DataError(f"data is {kind}, without labels; give both: (images, labels)")
    if data is None or callable(data):
        raise DataError(f"data is {data!r}; give (images, labels), a data set of torch, or a folder of photos")
    found = open_dataset(data, numbers, classes)
    if trains and not found.seeded:
        told.append(
            "the data set draws from a generator of its own, or reads otherwise each time: its samples depend on the "
            "workers, and no seed of Lockstep repeats them; draw from torch's, numpy's or Python's own generator"
        )
    return found, told


def few_of(data: Any) -> MapStyle | None:
    """Two samples of a data set of torch whose labels are known only once all of it is read; None of other data."""
    if isinstance(data, DataLoader):
        data = dataset_of(data, trains=False)[0]
    slow = isinstance(data, Dataset) and not isinstance(data, TensorDataset | ImageData)
    return first_two(data) if slow else None


def _is_wide(images: Any) -> bool:
    kinds = [images.dtype] if hasattr(images, "dtype") else list(getattr(images, "dtypes", ()))
    return any(str(kind).endswith("float64") for kind in kinds)


def _is_pair(data: Any) -> bool:
    """Two arrays of all samples, and not a data set of two samples?"""
    if isinstance(data, tuple) and len(data) != 2:
        raise DataError(f"data is a tuple of {len(data)}; give two: (images, labels)")
    return isinstance(data, tuple) or (
        isinstance(data, list) and len(data) == 2 and all(isinstance(part, np.ndarray | Tensor) for part in data)
    )


def halves_of(
    data: Data, test: Data | None, strict: bool, numbers: bool = False
) -> tuple[ImageData, ImageData | None]:
    """Images to train on and, where there are any, to test on. `numbers`: as in `images_of`. Raises DataError."""
    if test is not None:
        train_data = images_of(data, "train", strict=strict, numbers=numbers)[0]
        known = train_data.classes or None
        try:
            test_data = images_of(test, "test", strict=strict, numbers=numbers, classes=known)[0]
        except DataError as error:
            raise DataError(f"the test data: {error}") from error
        _check_alike(train_data, test_data)
        return train_data, test_data
    if isinstance(data, str | os.PathLike):
        train_data, test_data = images_of(data, *SPLITS, strict=strict)
        return train_data, test_data
    return images_of(data, "train", strict=strict, numbers=numbers)[0], None


def check_halves(train: ImageData, test: ImageData | None, loss: Loss, on_nan: str) -> list[str]:
    """Cautions about numbers in memory that are NaN, and about labels. Raises DataError for NaN unless `on_nan` is
    "warn", and for labels that `loss` would misread."""
    named = [(each, name) for each, name in ((train, "training"), (test, "test")) if each]
    found = [told for each, name in named if (told := _check_numbers(each, name))]
    if found and on_nan == "stop":
        raise DataError(found[0])
    if isinstance(loss, PerSample):
        found += [told for each, name in named if (told := loss.check_labels(each.labels, name))]
    return found


def _check_numbers(data: ImageData, name: str) -> str:
    """What is wrong with the first NaN or infinite number of arrays in memory; empty if there is none."""
    if isinstance(data, Arrays) and data.images.nbytes <= MOST_CHECKED_BYTES:
        broken = told_not_finite(data.images, f"{name} images")
        if broken:
            return f"{broken}; remove it or mend it (np.nan_to_num), or give on_nan='warn'"
    broken = told_not_finite(data.labels, f"{name} labels")
    return f"{broken}; remove that sample, or give on_nan='warn'" if broken else ""


def _check_alike(train: ImageData, test: ImageData) -> None:
    """Raises DataError unless both have labels and samples of one kind."""
    kinds = [
        f"{sample_dtype(each)} inputs with {'classes' if are_classes(each.labels) else 'targets'} as labels "
        f"{list(each.labels.shape[1:]) or ''}".strip()
        for each in (train, test)
    ]
    if kinds[0] != kinds[1]:
        raise DataError(f"the training data are {kinds[0]}, the test data {kinds[1]}; give both alike")
    if are_classes(train.labels) and len(test.labels) and int(test.labels.max()) >= len(train.classes):
        raise DataError(
            f"label {int(test.labels.max())} of the test data is no class of the training data, which has "
            f"{len(train.classes)}: {', '.join(train.classes[:10])}; give test data of these classes"
        )
