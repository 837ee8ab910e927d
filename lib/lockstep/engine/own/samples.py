"""Samples of a reader's data set as arrays of numbers, and the labels of all, which workers must know beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lockstep.engine.data.errors import DataError

INPUTS = ("images", "image", "img", "pixel_values", "inputs", "input", "input_ids", "features", "x")
LABELS = ("labels", "label", "targets", "target", "y")
"""What dicts may call a sample's input, and its label."""
_COMPARED = 200  # samples of different labels whose own label is compared with the listed one
_SPREAD = 8  # samples spread over the data set


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
        kinds = value.dtypes.items() if hasattr(value, "columns") else ()
        if text := ", ".join(str(name) for name, kind in kinds if kind.kind not in "biuf"):
            raise DataError(f"{what} has columns that are no numbers: {text}; leave them out, or make numbers of them")
        value = value.to_numpy()
    if isinstance(value, np.ndarray | np.generic | int | float | list | tuple):
        try:
            found = np.asarray(value)
        except ValueError as error:
            raise DataError(f"{what} can't become an array ({error}); give all of one shape") from error
        if found.dtype == object and found.size and isinstance(found.flat[0], str):
            found = found.astype(str)  # refused as names, not as objects
        if found.dtype != object:
            return found
    raise DataError(
        f"{what} is a {type(value).__name__}; give a tensor or an array of numbers (of a Pillow image: "
        "np.asarray(image).transpose(2, 0, 1))"
    )


def sample_of(dataset: Any, place: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Input and label of the sample at `place`. Raises DataError, with that place, for what can't be read."""
    what = f"sample {place} of the data set"
    try:
        sample = dataset[place]
    except Exception as error:
        raise DataError(f"{what} can't be read ({type(error).__name__}: {error}); mend or leave it out") from error
    given, label = pair_of(sample, what)
    return as_numbers(given, f"the input of {what}"), as_numbers(label, f"the label of {what}")


def check_shape(place: int, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raises DataError unless the sample at `place` has the shape of sample 0."""
    if found != wanted:
        raise DataError(
            f"sample {place} of the data set has shape {list(found)}, sample 0 {list(wanted)}; let it make all of one "
            "shape: resize, crop or pad them"
        )


def labels_of(dataset: Any) -> NDArray[Any]:
    """What `dataset` lists as labels, if samples of every label say the same; else those of all samples, each read."""
    said = listed_labels(dataset)
    if said is not None:
        most = _COMPARED if said.dtype.kind in "biu" else _SPREAD
        if all(same_label(said[place], sample_of(dataset, place)[1]) for place in places_over(said, most)):
            return said
    shape, found = sample_of(dataset, 0)[0].shape, []
    for place in range(len(dataset)):
        given, label = sample_of(dataset, place)
        check_shape(place, given.shape, shape)
        found.append(label)
    try:
        return np.stack(found)
    except ValueError as error:
        raise DataError(f"the labels of the data set can't become one array: {error}") from error


def listed_labels(dataset: Any) -> NDArray[Any] | None:
    """The labels as the data set itself lists them, without reading a sample; None if it does not."""
    if type(dataset) is Subset:
        inner = listed_labels(dataset.dataset)
        return None if inner is None else inner[np.asarray(dataset.indices)]
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return as_numbers(dataset.tensors[1], "labels")
    for listed in (getattr(dataset, "targets", None), getattr(dataset, "labels", None), _column(dataset)):
        if isinstance(listed, Tensor | np.ndarray | list | tuple) and len(listed) == len(dataset):
            try:
                return as_numbers(listed, "labels")
            except DataError:
                return None
    return None


def _column(dataset: Any) -> Any:
    """The only column of labels of a data set with columns, as HuggingFace's are; None where there is none, or more."""
    names = getattr(dataset, "column_names", None)
    found = [name for name in LABELS if name in names] if isinstance(names, list) else []
    if len(found) != 1:
        return None
    try:
        return dataset[found[0]][:]  # some versions give a view that reads its values late
    except Exception:
        return None  # as where samples are made by a function of theirs: each is read instead


def places_over(labels: NDArray[Any], most: int = _SPREAD) -> list[int]:
    """Places in `labels` [n, ...]: one of each value (of `most` values, if there are more), and a few spread over all,
    the first and the last among them."""
    firsts = np.unique(labels, axis=0, return_index=True)[1]
    chosen = firsts[np.linspace(0, len(firsts) - 1, min(len(firsts), most)).astype(int)]
    spread = np.linspace(0, len(labels) - 1, min(len(labels), _SPREAD)).astype(int)
    return [int(place) for place in np.union1d(chosen, spread)]


def same_label(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Are both one label? NaN is NaN here: it is told of elsewhere."""
    floats = one.dtype.kind == other.dtype.kind == "f"
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=floats))
