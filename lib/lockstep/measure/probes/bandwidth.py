"""The copy bandwidth of the memory, as a lower bound for reduce + update: bytes to move / bandwidth = seconds.

The bound is approximate: on most CPUs a copy first fetches its target into the cache, a third stream that is not
counted here, whereas an update in place writes what it has just read. On such a CPU the true bound can be up to 1.5
times lower.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

FLOAT32_BYTES = 4


def copy_bandwidth(
    bytes_: int = 128 * 2**20,
    seconds_budget: float = 1.0,
    least_copies: int = 3,
    threads: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Bytes per second, read plus written, at which `threads` threads copy a float32 tensor; the best of many copies.

    `bytes_` is the tensor's size: several times the last-level cache, or the cache is measured. Copies are repeated for
    `seconds_budget`, at least `least_copies` times; the best counts, for whatever disturbs a copy only makes it slower.
    Allocates 2 x `bytes_`. Raises ValueError for a size below one number or no copies.
    """
    if bytes_ < FLOAT32_BYTES:
        raise ValueError(f"bytes_={bytes_} is less than one float32 number; give at least {FLOAT32_BYTES}")
    if least_copies < 1:
        raise ValueError(f"least_copies={least_copies} would measure nothing; give at least 1")
    length = bytes_ // FLOAT32_BYTES
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # Both are written before the clock starts, because the first touch of a page is the kernel's time, not the
        # memory's.
        source, target = torch.ones(length), torch.zeros(length)
        target.copy_(source)
        best, spent, copies = float("inf"), 0.0, 0
        while copies < least_copies or spent < seconds_budget:
            start = clock()
            target.copy_(source)
            seconds = clock() - start
            best, spent, copies = min(best, seconds), spent + seconds, copies + 1
    finally:
        torch.set_num_threads(before)
    return 2 * length * FLOAT32_BYTES / best


def reduce_update_bytes(length: int, workers: int) -> int:
    """Bytes that one rank must move to sum the workers' gradients and apply momentum SGD to its own slice, in place.

    A rank owns s = ceil(length / workers) of the `length` float32 parameters. With everything fused into one pass it
    reads the slice of every worker's gradients (workers x s), of the momentum (s) and of the parameters (s), and writes
    the momentum (s) and the parameters (s). Nothing is cleared: the next backward pass overwrites the gradients.
    Together 4 bytes x s x (workers + 4): 5 numbers per parameter for one worker, 1 + 4 / workers per rank for more.

    Raises ValueError if either is below 1.
    """
    if length < 1 or workers < 1:
        raise ValueError(f"length={length}, workers={workers} is not possible; give at least 1 of each")
    own = -(-length // workers)
    read = workers * own + 2 * own
    written = 2 * own
    return FLOAT32_BYTES * (read + written)
