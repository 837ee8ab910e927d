"""Work on many files in threads, which Pillow's decoding and the system's reading allow without the GIL."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from lockstep.engine.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

LARGE = 2000  # from so many files on, the progress is shown
_CHUNK = 32  # files per piece of work: a future for each of 200 000 would take a quarter of a gigabyte


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`work` of each item, in the order of the items, on all usable cores. Raises the first error of `work`."""

    def of_chunk(start: int) -> list[Result]:
        return [work(item) for item in items[start : start + _CHUNK]]

    pool = ThreadPoolExecutor(len(usable_cores()), thread_name_prefix="lockstep-files")
    try:
        yield from chain.from_iterable(pool.map(of_chunk, range(0, len(items), _CHUNK)))
    finally:
        pool.shutdown(cancel_futures=True)


def with_progress(results: Iterable[Result], total: int, what: str) -> Iterator[Result]:
    """The same results; if there are at least `LARGE`, a line on stderr shows the progress meanwhile."""
    every = max(LARGE // 2, total // 10)
    same_line = sys.stderr.isatty()
    for done, result in enumerate(results, 1):
        if total >= LARGE and (done % every == 0 or done == total):
            end = "\r" if same_line and done < total else "\n"
            print(f"{what}: {done} of {total} photos", file=sys.stderr, end=end, flush=True)
        yield result
