"""What of a torch DataLoader is taken, what is refused because workers would not follow it, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)  # fmt: skip

from lockstep.engine.data.errors import DataError


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
    _check_sampler(loader)
    return loader.dataset, list(_left_out(loader)) if trains else []


def _check_sampler(loader: DataLoader[Any]) -> None:
    sampler: Any = loader.sampler
    if type(sampler) not in (RandomSampler, SequentialSampler) or getattr(sampler, "replacement", False):
        named = f"a {type(sampler).__name__} of its own"
    elif type(sampler) is RandomSampler and sampler.num_samples != len(loader.dataset):  # type: ignore[arg-type]
        named = f"a RandomSampler(num_samples={sampler.num_samples})"
    else:
        return
    raise DataError(
        f"data is a DataLoader with {named}, and Lockstep trains on each sample once per epoch; give the data set "
        "alone (of some samples: torch.utils.data.Subset(dataset, indices); for rare classes class_weights='balanced')"
    )


def _left_out(loader: DataLoader[Any]) -> Iterator[str]:
    """What of a loader to train on is not followed."""
    if type(loader.sampler) is SequentialSampler:
        yield "the DataLoader does not shuffle, and Lockstep does in every epoch, as `seed` says"
    if loader.drop_last and len(loader.dataset) % (loader.batch_size or 1):  # type: ignore[arg-type]
        yield "the DataLoader drops the last, smaller batch of an epoch (drop_last), and Lockstep trains on it"
    if loader.num_workers:
        yield (
            f"the DataLoader's {loader.num_workers} processes (num_workers), and a worker_init_fn, are not used: each "
            "worker of Lockstep reads its own samples"
        )
