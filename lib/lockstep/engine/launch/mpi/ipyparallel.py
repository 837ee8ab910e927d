"""The launcher `engines`: the MPI workers of a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.engine.launch.mpi.mpiexec import Mpiexec

if TYPE_CHECKING:
    from lockstep.engine.launch.team import Team


class Engines(Mpiexec):
    """An ipyparallel engine per rank, all of them one MPI job."""

    does = "every worker is an ipyparallel engine, all of them ranks of one MPI job on this machine"
    label = "ipyparallel engines"
    emulates_links = False
    hosts_of_threads = False

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        from lockstep.engine.launch.mpi.engines import EnginesTeam

        return EnginesTeam(cores, threads_per_worker, environment, self.names(len(cores)))
