"""The launcher `mpiexec`: an MPI job of this machine, or of a cluster that is emulated on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.engine.launch.base import Launcher, check_counts

if TYPE_CHECKING:
    from lockstep.engine.job import Job
    from lockstep.engine.launch.team import Team

HOST_WORKERS = ("processes", "threads")


class Mpiexec(Launcher):
    """A process per rank, as one MPI job on this machine; or, with `host_workers="threads"`, one per host.

    With `hosts` > 1 the ranks are on so many nodes, in equal blocks: they share memory only within a node. With
    `link_bits_per_second` the nodes are emulated hosts with such links (see `emulated`); without, each rank is only
    given the name of a host, and its messages move as fast as this machine's memory.

        hosts=2, workers=4    host_workers="processes"  [0] [1] | [2] [3]       "threads"  [0, 1] | [2, 3]
    """

    does = "every worker is a rank of one MPI job, on this machine or on a cluster that is emulated on it"
    label = "mpiexec"
    mpi = True
    emulates_links = True
    hosts_of_threads = True

    def __init__(
        self,
        workers: int,
        threads_per_worker: int = 1,
        cores_per_worker: int | None = None,
        environment: str = "tuned",
        hosts: int = 1,
        link_bits_per_second: float = 0.0,
        host_workers: str = "processes",
    ) -> None:
        check_counts(workers=workers)
        if not 1 <= hosts <= workers:
            raise ValueError(f"hosts={hosts} is not possible for {workers} ranks; give 1 to {workers}")
        if host_workers not in HOST_WORKERS:
            raise ValueError(f"host_workers={host_workers!r} does not exist; there are: {', '.join(HOST_WORKERS)}")
        if host_workers == "threads" and workers % hosts:
            raise ValueError(f"host_workers='threads': {workers} ranks can't be split equally over {hosts} hosts")
        self.hosts, self.link_bits_per_second, self.host_workers = hosts, link_bits_per_second, host_workers
        super().__init__(workers, threads_per_worker, cores_per_worker, environment)
        if self.team.ranks_by_process != self.ranks_by_process(workers):
            raise ValueError(f"host_workers={host_workers!r} is not possible with {type(self).__name__}; use Mpiexec")

    @classmethod
    def of(cls, job: Job) -> Mpiexec:
        return cls(
            job.ranks,
            job.threads_per_worker,
            job.cores_per_worker,
            job.environment,
            job.hosts,
            job.link_bits_per_second,
            job.host_workers,
        )

    def ranks_by_process(self, workers: int) -> list[list[int]]:  # type: ignore[override]  # here it depends on host_workers
        count = self.hosts if self.host_workers == "threads" else workers
        each = workers // count
        return [list(range(number * each, (number + 1) * each)) for number in range(count)]

    def names(self, workers: int) -> list[str]:
        """The host of each process; empty where all are on one."""
        count = len(self.ranks_by_process(workers))
        return [f"host{number * self.hosts // count}" for number in range(count)] if self.hosts > 1 else []

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        from lockstep.engine.launch.mpi.emulated import EmulatedTeam
        from lockstep.engine.launch.mpi.team import MpiTeam

        processes = self.ranks_by_process(len(cores))
        if self.link_bits_per_second:
            link = self.link_bits_per_second
            return EmulatedTeam(cores, threads_per_worker, environment, self.hosts, link, processes)
        return MpiTeam(cores, threads_per_worker, environment, self.names(len(cores)), ranks_by_process=processes)
