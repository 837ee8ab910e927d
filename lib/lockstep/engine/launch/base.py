"""WHERE workers run: a launcher is a context manager that gives a warm `Team`."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from lockstep.engine.cores import cores_of_rank, usable_cores
from lockstep.engine.declared import DeclaredLauncher

if TYPE_CHECKING:  # what a launcher declares is read without torch: see lockstep.engine.registry
    from lockstep.engine.job import Job
    from lockstep.engine.launch.team import Team


def check_counts(**values: object) -> None:
    """Raises ValueError for a value that is not a whole number of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least 1")


class Launcher(DeclaredLauncher, ABC):
    """`with launcher as team: team.run(job)`; workers end with the block.

    `workers` ranks of `threads_per_worker` intra-op threads, pinned to `cores_per_worker` cores each. More than the
    machine has is allowed and warned about: workers then share cores.
    """

    heavy_when_idle = False
    """Whether its teams hold gigabytes while they idle, so that they end where memory gets scarce."""

    def __init__(
        self, workers: int, threads_per_worker: int = 1, cores_per_worker: int | None = None, environment: str = "tuned"
    ) -> None:
        check_counts(workers=workers, threads_per_worker=threads_per_worker)
        per_worker = cores_per_worker or threads_per_worker
        usable = usable_cores()
        if workers * per_worker > len(usable):
            warnings.warn(
                f"{workers} workers x {per_worker} cores are more than the {len(usable)} usable cores: they will share",
                stacklevel=2,
            )
        cores = [cores_of_rank(rank, per_worker, usable) for rank in range(workers)]
        self.team = self.make_team(cores, threads_per_worker, environment)

    @classmethod
    def of(cls, job: Job) -> Launcher:
        """The launcher with the workers, threads, cores and environment that `job` asks for."""
        return cls(job.ranks, job.threads_per_worker, job.cores_per_worker, job.environment)

    @staticmethod
    @abstractmethod
    def ranks_by_process(workers: int) -> list[list[int]]:
        """The ranks of each process."""

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        """The team, which is not started yet. `cores`: those of each rank."""
        from lockstep.engine.launch.team import Team

        return Team(self.ranks_by_process(len(cores)), cores, threads_per_worker, environment)

    def __enter__(self) -> Team:
        return self.team

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.team.close()
        else:
            self.team.kill()
