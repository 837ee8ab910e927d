"""Which samples make up which batch.

The sequence of global batches is a function of (seed, epoch, global batch size) alone, never of the number of workers;
a worker's share is a contiguous piece of the global batch.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def epoch_order(seed: int, epoch: int, count: int) -> Ids:
    """The order of the `count` samples in an epoch: a permutation, int64 [count], read-only.

    Raises ValueError for a negative seed or epoch, or fewer than 1 sample.
    """
    _whole("seed", seed, 0)
    _whole("epoch", epoch, 0)
    _whole("count", count, 1)
    return _order(int(seed), int(epoch), int(count))


def steps_per_epoch(count: int, global_batch_size: int) -> int:
    """Global batches in an epoch; the last one may be smaller and counts. ValueError for values below 1."""
    _whole("count", count, 1)
    _whole("global_batch_size", global_batch_size, 1)
    return -(-count // global_batch_size)


def global_batch(seed: int, epoch: int, step: int, count: int, global_batch_size: int) -> Ids:
    """Sample ids of one step of an epoch, for all workers together: int64 [global_batch_size], fewer in the last step.

    Raises ValueError for values below their least, and for a step the epoch does not have.
    """
    steps = steps_per_epoch(count, global_batch_size)
    _whole("step", step, 0)
    if step >= steps:
        raise ValueError(
            f"step={step} is past the end of an epoch of {steps} steps ({count} samples in batches of "
            f"{global_batch_size}); go on with step 0 of epoch {epoch + 1}"
        )
    return epoch_order(seed, epoch, count)[step * global_batch_size : (step + 1) * global_batch_size]


def share_of(ids: Ids, rank: int, workers: int) -> Ids:
    """The contiguous share of worker `rank`: the sizes of all shares differ by at most one, larger ones first.

    A share is empty if there are more workers than ids. Raises ValueError for workers < 1 or a rank outside them.
    """
    _whole("workers", workers, 1)
    _whole("rank", rank, 0)
    if rank >= workers:
        raise ValueError(f"rank={rank} does not exist among {workers} workers; give 0 to {workers - 1}")
    size, larger = divmod(len(ids), workers)
    start = rank * size + min(rank, larger)
    return ids[start : start + size + (rank < larger)]


# This is called once per step, so the latest few orders are kept.
@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> Ids:
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order = generator.permutation(count).astype(np.int64, copy=False)
    order.flags.writeable = False
    return order


def _whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least {least}")
