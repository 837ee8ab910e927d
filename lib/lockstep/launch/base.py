"""WHERE workers run: a launcher is a context manager that gives a warm `Team`."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from types import TracebackType

from lockstep.job import Job
from lockstep.launch.team import Team


def usable_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores_of(rank: int, cores_per_worker: int, usable: list[int]) -> list[int]:
    """Consecutive cores, one worker after the other, round and round where there are too few."""
    count = len(usable)
    return sorted({usable[(rank * cores_per_worker + i) % count] for i in range(min(cores_per_worker, count))})


def check_counts(**values: object) -> None:
    """Raises ValueError for one that is no whole number of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least 1")


class Launcher(ABC):
    """`with launcher as team: team.run(job)`; workers end with the block.

    `workers` ranks of `threads_per_worker` intra-op threads, pinned to `cores_per_worker` cores each. More than the
    machine has is allowed and warned about: workers then share cores.
    """

    crowds = False  # do its teams hold gigabytes while they idle? Then one of them stays warm at a time, not all

    def __init__(
        self,
        workers: int,
        threads_per_worker: int = 1,
        cores_per_worker: int | None = None,
        environment: str = "tuned",
    ) -> None:
        check_counts(workers=workers, threads_per_worker=threads_per_worker)
        per_worker = cores_per_worker or threads_per_worker
        usable = usable_cores()
        if workers * per_worker > len(usable):
            warnings.warn(
                f"{workers} workers x {per_worker} cores are more than the {len(usable)} usable cores: they will share",
                stacklevel=2,
            )
        cores = [cores_of(rank, per_worker, usable) for rank in range(workers)]
        self.team = self.make_team(cores, threads_per_worker, environment)

    @classmethod
    def of(cls, job: Job) -> Launcher:
        """The launcher with the workers, threads, cores and environment that `job` asks for."""
        return cls(job.ranks, job.threads_per_worker, job.cores_per_worker, job.environment)

    @staticmethod
    @abstractmethod
    def seats(workers: int) -> list[list[int]]:
        """The ranks of each process."""

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        """The team, not started yet: `cores` of each rank."""
        return Team(self.seats(len(cores)), cores, threads_per_worker, environment)

    def __enter__(self) -> Team:
        return self.team

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.team.close()
        else:
            self.team.kill()


class Threads(Launcher):
    """All ranks are threads of one worker process."""

    @staticmethod
    def seats(workers: int) -> list[list[int]]:
        return [list(range(workers))]


class Processes(Launcher):
    """A worker process per rank."""

    @staticmethod
    def seats(workers: int) -> list[list[int]]:
        return [[rank] for rank in range(workers)]
