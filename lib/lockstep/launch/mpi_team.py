"""Teams whose ranks are processes of an MPI job on this machine, started by mpiexec, or threads of such processes.

    launcher --- guard --- mpiexec --- proxy --- process 0 (ranks 0, 1), process 1 (ranks 2, 3) ...
        |                                            |
        +------- control: a socket per process ------+      commands, results, tracebacks; idle ranks sleep here
        +------- board: memory that all see ---------+      phase and step, even of a stopped or killed rank

MPI carries what the ranks tell each other, and nothing else. With one rank per process MPI's numbers are the ranks.
"""

from __future__ import annotations

import os
import sys

from lockstep.launch.environment import worker_environment
from lockstep.launch.guarded import seated
from lockstep.launch.guarded_team import GuardedTeam
from lockstep.launch.mpi_commands import MpiError, command, find_mpiexec, local_environment
from lockstep.launch.rendezvous import Meeting
from lockstep.launch.team import Worker
from lockstep.launch.watch import WorkerFailed

_RANK = "from lockstep.launch.rank import main; main()"


class MpiTeam(GuardedTeam):
    """`Team` of one MPI job on this machine. `hosts`: the emulated host of each process, empty for one node.

    `seats`: the ranks of each process, by default one each; equally many in all, in rank order. `program`: another
    mpiexec than the environment's own.
    """

    def __init__(
        self,
        cores: list[list[int]],
        threads_per_worker: int,
        environment: str,
        hosts: list[str] | None = None,
        program: str | None = None,
        seats: list[list[int]] | None = None,
    ) -> None:
        super().__init__(seats or [[rank] for rank in range(len(cores))], cores, threads_per_worker, environment)
        self.hosts, self.program = hosts or [], program

    def _prepare(self) -> None:
        try:
            self._mpi = find_mpiexec(self.program)
        except MpiError as error:
            raise WorkerFailed(-1, "start", f"could not start: {error}", "") from error

    @property
    def _starter(self) -> str:
        return self._mpi.program

    def _commands(self, meeting: Meeting) -> dict[str, list[str]]:
        """What the guard runs, by name."""
        return {"mpiexec": command(self._mpi, len(self.seats), self._rank_program(meeting))}

    def _rank_program(self, meeting: Meeting) -> list[str]:
        return [*seated(meeting.ends_path), sys.executable, "-c", _RANK, meeting.path]

    def _environment(self, meeting: Meeting) -> dict[str, str]:
        environment = worker_environment(self.environment, self.threads_per_worker)
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        return environment | local_environment(self._mpi, meeting.folder)

    def _seat(self, told: list[tuple[Worker, int, int]]) -> None:
        """Give every worker its ranks. Raises WorkerFailed if the processes are not those of one job."""
        count = len(self.seats)
        if any(size != count for _, _, size in told):
            sizes = sorted({size for _, _, size in told})
            if sizes == [1]:
                reason = (
                    f"could not start: MPI started {len(told)} separate jobs of one rank instead of one job of "
                    f"{count}: {self._mpi.program} and the library that mpi4py uses belong to different MPIs; "
                    f"use the mpiexec of that library, or install the one that fits: pip install mpich"
                )
            else:
                reason = f"could not start: ranks found themselves in jobs of {sizes} instead of {count} ranks"
            raise WorkerFailed(-1, "start", reason, "")
        super()._seat(told)
