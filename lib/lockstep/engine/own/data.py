"""A reader's own data in any of the forms that `lockstep.train` takes, as this library's `ImageData`.

    (x, y)                       arrays, tensors or lists; also {"images": x, "labels": y}
    "photos"                     a folder of {train,test}/<class>/*.jpg
    Dataset, DataLoader          of torch, map style; anything with samples by number (HuggingFace's data sets)
    ImageData                    as it is
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.engine.data.checking import check_photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_folder
from lockstep.engine.data.sources import Arrays, ImageData, are_classes, sample_dtype
from lockstep.engine.own.datasets import arrays_of, dataset_of, of_names, open_dataset
from lockstep.engine.training.finite import told_not_finite

Data = ImageData | tuple[Any, Any] | Mapping[str, Any] | Dataset[Any] | DataLoader[Any] | str | os.PathLike[str]

MOST_CHECKED_BYTES = 2 * 2**30
"""Larger arrays are not looked through for NaN beforehand: that would take seconds."""


def images_of(data: Any, *splits: str, strict: bool, level: int = 4) -> list[ImageData]:
    """`data` as images: of each of these splits, if it is a folder. `level`: how far up the line is that a warning
    names. Raises DataError for what is no data, with the form that it should have."""
    if isinstance(data, str | os.PathLike):
        checked = check_photos(data, splits, strict)
        if checked.caution:
            warnings.warn(checked.caution, stacklevel=level)  # at the line that calls `train`
        return [open_folder(checked.folder, split, checked.skipped) for split in splits]
    found, told = _opened(data, trains="train" in splits)
    for caution in told:
        warnings.warn(caution, stacklevel=level)
    return [found]


def _opened(data: Any, trains: bool) -> tuple[ImageData, list[str]]:
    """The data, and what a reader should know of them."""
    told: list[str] = []
    if isinstance(data, DataLoader):
        data, told = dataset_of(data, trains)
    if isinstance(data, Mapping):
        data = of_names(data, "data")
    if _is_pair(data):
        wide = getattr(data[0], "dtype", None)
        if str(wide).endswith("float64"):
            told.append("the images are float64, and are trained as float32; images.astype('float32') saves a copy")
        return arrays_of(*data), told
    if isinstance(data, ImageData):
        return data, told
    if isinstance(data, np.ndarray | Tensor) or hasattr(data, "iloc"):
        kind = f"one {type(data).__name__} of shape {list(data.shape)}"
        raise DataError(f"data is {kind}, without labels; give both: (images, labels)")
    if data is None or callable(data):
        raise DataError(f"data is {data!r}; give (images, labels), a data set of torch, or a folder of photos")
    return open_dataset(data), told


def _is_pair(data: Any) -> bool:
    """Two arrays of all samples, and not a data set of two samples?"""
    if isinstance(data, tuple) and len(data) != 2:
        raise DataError(f"data is a tuple of {len(data)}; give two: (images, labels)")
    return isinstance(data, tuple) or (
        isinstance(data, list) and len(data) == 2 and all(isinstance(part, np.ndarray | Tensor) for part in data)
    )


def check_numbers(data: ImageData, name: str) -> str:
    """What is wrong with the first NaN or infinite number of arrays in memory; empty if there is none."""
    if isinstance(data, Arrays) and data.images.nbytes <= MOST_CHECKED_BYTES:
        broken = told_not_finite(data.images, f"{name} images")
        if broken:
            return f"{broken}; remove it or mend it (np.nan_to_num), or give on_nan='warn'"
    broken = told_not_finite(data.labels, f"{name} labels")
    return f"{broken}; remove that sample, or give on_nan='warn'" if broken else ""


def check_alike(train: ImageData, test: ImageData) -> None:
    """Raises DataError unless both have labels and samples of one kind."""
    kinds = [
        f"{sample_dtype(each)} inputs with {'classes' if are_classes(each.labels) else 'targets'} as labels "
        f"{list(each.labels.shape[1:]) or ''}".strip()
        for each in (train, test)
    ]
    if kinds[0] != kinds[1]:
        raise DataError(f"the training data are {kinds[0]}, the test data {kinds[1]}; give both alike")
