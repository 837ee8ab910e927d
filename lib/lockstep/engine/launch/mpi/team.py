"""Teams whose ranks are processes of an MPI job on this machine, started by mpiexec, or threads of such processes.

    launcher --- supervisor --- mpiexec --- proxy --- process 0 (ranks 0, 1), process 1 (ranks 2, 3) ...
        |                                                |
        +---------- control: a socket per process -------+  commands, results, tracebacks; idle ranks sleep here
        +---------- board: memory that all see ----------+  phase and step, even of a stopped or killed rank

MPI carries the messages between ranks, and nothing else. With one rank per process MPI's numbers are the ranks.
"""

from __future__ import annotations

import sys

from lockstep.engine.launch.environment import python_path, worker_environment
from lockstep.engine.launch.failures import WorkerFailed
from lockstep.engine.launch.mpi.commands import MpiError, command, find_mpiexec, local_environment, private_network
from lockstep.engine.launch.rank_parent import rank_parent_command
from lockstep.engine.launch.rendezvous import Rendezvous
from lockstep.engine.launch.supervised_team import SupervisedTeam
from lockstep.engine.launch.worker_process import Worker

_RANK = "from lockstep.engine.launch.mpi.rank_process import main; main()"


class MpiTeam(SupervisedTeam):
    """`Team` of one MPI job on this machine. `hosts`: the emulated host of each process, empty for one node.

    `ranks_by_process`: by default one rank each; equally many in all processes, in rank order. `program`: another
    mpiexec than the environment's own.
    """

    def __init__(
        self,
        cores: list[list[int]],
        threads_per_worker: int,
        environment: str,
        hosts: list[str] | None = None,
        program: str | None = None,
        ranks_by_process: list[list[int]] | None = None,
    ) -> None:
        ranks_by_process = ranks_by_process or [[rank] for rank in range(len(cores))]
        super().__init__(ranks_by_process, cores, threads_per_worker, environment)
        self.hosts, self.program = hosts or [], program

    def _prepare(self) -> None:
        try:
            self._mpi = find_mpiexec(self.program)
        except MpiError as error:
            raise WorkerFailed(-1, "start", f"could not start: {error}", "") from error

    @property
    def _starting_program(self) -> str:
        return self._mpi.program

    def _commands(self, rendezvous: Rendezvous) -> dict[str, list[str]]:
        words = command(self._mpi, len(self.ranks_by_process), self._rank_program(rendezvous))
        return {"mpiexec": [*private_network(self._mpi), *words]}

    def _rank_program(self, rendezvous: Rendezvous) -> list[str]:
        return [*rank_parent_command(rendezvous.exit_reports_path), sys.executable, "-c", _RANK, rendezvous.path]

    def _environment_of_commands(self, rendezvous: Rendezvous) -> dict[str, str]:
        environment = worker_environment(self.environment, self.threads_per_worker)
        environment |= {"PYTHONPATH": python_path(), "TMPDIR": rendezvous.folder}
        return environment | local_environment(self._mpi, rendezvous.folder)

    def _assign_ranks(self, ready: list[tuple[Worker, int, int]]) -> None:
        """Give every worker its ranks. Raises WorkerFailed if the processes are not those of one job."""
        count = len(self.ranks_by_process)
        if any(size != count for _, _, size in ready):
            sizes = sorted({size for _, _, size in ready})
            if sizes == [1]:
                reason = (
                    f"could not start: MPI started {len(ready)} separate jobs of one rank instead of one job of "
                    f"{count}: {self._mpi.program} and the library that mpi4py uses belong to different MPIs; "
                    f"use the mpiexec of that library, or install the one that fits: pip install mpich"
                )
            else:
                reason = f"could not start: ranks found themselves in jobs of {sizes} instead of {count} ranks"
            raise WorkerFailed(-1, "start", reason, "")
        super()._assign_ranks(ready)
