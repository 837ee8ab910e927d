"""Places of the sample sequence: which samples they hold, and how ranges of them are cut."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.sampling import epoch_order
from lockstep.engine.policies.base import Ranges, Work


def ids_of(ranges: Ranges, count: int, seed: int) -> NDArray[np.int64]:
    """The sample ids at these places of the sequence over `count` samples, int64; epochs follow each other."""
    pieces = []
    for first, samples in ranges:
        while samples:
            epoch, place = divmod(first, count)
            here = min(samples, count - place)
            pieces.append(_order(seed, epoch, count)[place : place + here])
            first, samples = first + here, samples - here
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


_order = lru_cache(maxsize=4)(epoch_order)  # asked for by every task


def cut_ranges(ranges: Ranges, start: int, stop: int) -> Ranges:
    """The places of `ranges` from their `start`th to before their `stop`th."""
    found, before = [], 0
    for first, samples in ranges:
        low, high = max(start - before, 0), min(stop - before, samples)
        if low < high:
            found.append((first + low, high - low))
        before += samples
    return tuple(found)


def part_sizes(work: Work, workers: int) -> list[int]:
    """Samples of each part of coded work, of a batch that is cut into a part per worker; of plain work, all of them."""
    if not work.parts:
        return [work.samples]
    size, larger = divmod(work.samples, workers)
    return [size + (part < larger) for part, _ in work.parts]


def part_of_batch(ranges: Ranges, samples: int, part: int, parts: int) -> Ranges:
    """The places of a part of coded work: cut as `sampling.share_of` cuts."""
    size, larger = divmod(samples, parts)
    start = part * size + min(part, larger)
    return cut_ranges(ranges, start, start + size + (part < larger))
