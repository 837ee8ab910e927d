"""The processor cores that this process may use, and how workers share them. Without torch."""

from __future__ import annotations

import os


def usable_cores() -> list[int]:
    """The numbers of the cores that the calling thread may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores_of_rank(rank: int, cores_per_worker: int, usable: list[int]) -> list[int]:
    """The cores of worker `rank`: consecutive ones of `usable`, which start over where there are too few."""
    count = len(usable)
    return sorted({usable[(rank * cores_per_worker + i) % count] for i in range(min(cores_per_worker, count))})


def pin(cores: list[int]) -> None:
    """Bind this thread, and the threads that it starts, to `cores`; does nothing where the system cannot do it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
