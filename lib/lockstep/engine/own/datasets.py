"""Torch's data sets and loaders, and anything with a length and samples by number, as this library's `ImageData`."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import Arrays, Ids, Labels, Samples, prepare
from lockstep.engine.training.randomness import keeping_generators

INPUTS = ("images", "image", "img", "pixel_values", "inputs", "input", "input_ids", "features", "x")
LABELS = ("labels", "label", "targets", "target", "y")
"""What dicts may call a sample's input, and its label."""
_TRIED = 4  # samples that are read twice, to see whether they are the same

# Torch's, numpy's and Python's generators are each one per process.
_SEEDING = threading.Lock()


def of_names(mapping: Mapping[Any, Any], what: str) -> tuple[Any, Any]:
    """Input and label out of a dict. Raises DataError unless it has exactly one of each."""
    inputs, labels = ([name for name in names if name in mapping] for names in (INPUTS, LABELS))
    if len(inputs) != 1 or len(labels) != 1 or "attention_mask" in mapping:
        fix = f"give one of {', '.join(INPUTS)} and one of {', '.join(LABELS)}"
        if {"train", "test"} & set(mapping):
            fix = "give data=that['train'], test=that['test']"
        if "attention_mask" in mapping:
            fix = "a model gets one input: pad in the data, and let the model find the mask (ids != 0)"
        raise DataError(f"{what} is a dict of {', '.join(map(str, mapping))}; {fix}")
    return mapping[inputs[0]], mapping[labels[0]]


def pair_of(sample: Any, what: str) -> tuple[Any, Any]:
    """Input and label of a sample, a pair or a dict. Raises DataError."""
    if isinstance(sample, Mapping):
        return of_names(sample, what)
    if isinstance(sample, tuple | list) and len(sample) == 2:
        return sample[0], sample[1]
    several = f" of {len(sample)}" if isinstance(sample, tuple | list) else ""
    raise DataError(f"{what} is a {type(sample).__name__}{several}; give a pair (input, label) or a dict of both")


def as_numbers(value: Any, what: str) -> NDArray[Any]:
    """An array out of a tensor, an array, or numbers. Raises DataError for anything else, such as a Pillow image."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if hasattr(value, "to_numpy"):  # of pandas
        value = value.to_numpy()
    if isinstance(value, np.ndarray | np.generic | int | float | list | tuple):
        try:
            found = np.asarray(value)
        except ValueError as error:
            raise DataError(f"{what} can't become an array ({error}); give all of one shape") from error
        if found.dtype != object:
            return found
    raise DataError(
        f"{what} is a {type(value).__name__}; give a tensor or an array of numbers (of a Pillow image: "
        "np.asarray(image).transpose(2, 0, 1))"
    )


class MapStyle:
    """A data set whose samples are read anew whenever they are needed, where they are needed.

    `draws`: whether samples are drawn at random (augmentation). Then each is read with generators that are seeded by
    (seed, epoch, sample id), so that it does not depend on the workers. Raises DataError, when it is made or when it
    loads, for samples that are no pair, or not all of one shape.
    """

    source = "own"

    def __init__(self, dataset: Any, labels: Labels, classes: tuple[str, ...], draws: bool) -> None:
        self.dataset, self.labels, self.classes, self.draws = dataset, labels, classes, draws
        first = self._input(0, dataset[0])
        self.shape, self._scaled = first.shape, first.dtype == np.uint8
        self.dtype = np.dtype(np.int64 if first.dtype.kind == "i" else np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, ids: Ids, epoch: int, seed: int, out: Samples | None = None) -> Samples:
        """As `ImageData.load`."""
        ids, out = prepare(ids, len(self), self.shape, out, self.dtype)
        for place, sample_id in enumerate(ids.tolist()):
            found = self._input(sample_id, self._read(sample_id, epoch, seed))
            _check_shape(sample_id, found.shape, self.shape)
            out[place] = found
        if self._scaled:
            np.multiply(out, np.float32(1 / 255), out=out)
        return out

    def _read(self, sample_id: int, epoch: int, seed: int) -> Any:
        if not self.draws:
            return self.dataset[sample_id]
        key = zlib.crc32(np.array([seed, epoch, sample_id], np.int64).tobytes())
        with _SEEDING:
            random.seed(key)
            np.random.seed(key)
            torch.default_generator.manual_seed(key)
            return self.dataset[sample_id]

    def _input(self, sample_id: int, sample: Any) -> NDArray[Any]:
        what = f"sample {sample_id} of the data set"
        return as_numbers(pair_of(sample, what)[0], f"the input of {what}")


def open_dataset(dataset: Any) -> Arrays | MapStyle:
    """A map-style data set: its tensors if it is no more than two of them, else read by number.

    Its labels are what it says of them (`targets`, as torchvision's have), or are read once, here. Raises DataError.
    """
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(
            f"data is a {type(dataset).__name__}, which has no samples by number that workers could share; give a "
            "map-style data set (with __getitem__ and __len__), or (images, labels) as arrays"
        )
    if not len(dataset):
        raise DataError(f"data, a {type(dataset).__name__}, is empty; give at least one sample")
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return arrays_of(*dataset.tensors)
    with keeping_generators():
        draws = _draws(dataset)
        labels = _labels(dataset)
        # Arrays checks labels and names classes; of the inputs it sees their number.
        named = Arrays(np.zeros(len(labels), np.float32), labels)
        return MapStyle(dataset, named.labels, named.classes, draws)


def arrays_of(images: Any, labels: Any) -> Arrays:
    """Two arrays or tensors of all samples; numbers of other types become float32 or int64. Raises DataError."""
    found = as_numbers(images, "images")
    if found.dtype.kind == "f" or found.dtype == bool:
        found = found.astype(np.float32, copy=False)
    elif found.dtype.kind in "iu" and found.dtype != np.uint8:
        found = found.astype(np.int64, copy=False)
    return Arrays(found, as_numbers(labels, "labels"))


def _draws(dataset: Any) -> bool:
    """Whether reading samples moves a generator, or gives other numbers the second time."""
    before = _states()
    tried = range(min(_TRIED, len(dataset)))
    first, second = ([_numbers_in(dataset[place]) for place in tried] for _ in range(2))
    return _states() != before or first != second


def _numbers_in(sample: Any) -> list[bytes]:
    parts = sample.values() if isinstance(sample, Mapping) else sample
    return [part.tobytes() for part in map(np.asarray, parts)] if isinstance(sample, Mapping | tuple | list) else []


def _states() -> tuple[str, str, bytes]:
    return repr(np.random.get_state()), repr(random.getstate()), torch.random.get_rng_state().numpy().tobytes()


def _labels(dataset: Any) -> NDArray[Any]:
    said = _said(dataset)
    if said is not None and all(_same(said[place], _read(dataset, place)[1]) for place in (0, len(dataset) - 1)):
        return said
    shape, found = _read(dataset, 0)[0].shape, []
    for place in range(len(dataset)):
        given, label = _read(dataset, place)
        _check_shape(place, given.shape, shape)
        found.append(label)
    try:
        return np.stack(found)
    except ValueError as error:
        raise DataError(f"the labels of the data set can't become one array: {error}") from error


def _read(dataset: Any, place: int) -> tuple[NDArray[Any], NDArray[Any]]:
    what = f"sample {place} of the data set"
    given, label = pair_of(dataset[place], what)
    return as_numbers(given, f"the input of {what}"), as_numbers(label, f"the label of {what}")


def _check_shape(place: int, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise DataError(
            f"sample {place} of the data set has shape {list(found)}, sample 0 {list(wanted)}; let it make all of one "
            "shape: resize, crop or pad them"
        )


def _said(dataset: Any) -> NDArray[Any] | None:
    """The labels as the data set itself lists them, without reading a sample; None if it does not."""
    if type(dataset) is Subset:
        inner = _said(dataset.dataset)
        return None if inner is None else inner[np.asarray(dataset.indices)]
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return as_numbers(dataset.tensors[1], "labels")
    for name in ("targets", "labels"):
        listed = getattr(dataset, name, None)
        if isinstance(listed, Tensor | np.ndarray | list | tuple) and len(listed) == len(dataset):
            try:
                return as_numbers(listed, "labels")
            except DataError:
                return None
    return None


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def dataset_of(loader: DataLoader[Any], trains: bool) -> tuple[Any, list[str]]:
    """The data set of a loader, and what a reader should know of training on it. `trains`: not only scored on.

    Raises DataError for a loader that chooses or joins samples in a way that workers would not follow.
    """
    if isinstance(loader.dataset, IterableDataset):
        return loader.dataset, []
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        raise DataError(
            "data is a DataLoader that makes its batches itself (batch_sampler, or batch_size=None), and Lockstep "
            "divides batches among workers; give its data set, and batch_size=..."
        )
    if loader.collate_fn is not default_collate:
        named = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
        raise DataError(
            f"data is a DataLoader with collate_fn={named}, which Lockstep would not call: it stacks samples of one "
            "shape; do that work in the data set's __getitem__"
        )
    if type(loader.sampler) not in (RandomSampler, SequentialSampler) or getattr(loader.sampler, "replacement", False):
        raise DataError(
            f"data is a DataLoader with a {type(loader.sampler).__name__} of its own, and Lockstep trains on each "
            "sample once per epoch; give the data set alone (of some samples: torch.utils.data.Subset(dataset, "
            "indices); for rare classes class_weights='balanced')"
        )
    told = []
    if trains and type(loader.sampler) is SequentialSampler:
        told.append("the DataLoader does not shuffle, and Lockstep does in every epoch, as `seed` says")
    if trains and loader.drop_last and len(loader.dataset) % loader.batch_size:  # type: ignore[arg-type]
        told.append("the DataLoader drops the last, smaller batch of an epoch (drop_last), and Lockstep trains on it")
    return loader.dataset, told
