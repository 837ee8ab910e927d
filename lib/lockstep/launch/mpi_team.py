"""Teams whose ranks are processes of an MPI job on this machine, started by mpiexec, or threads of such processes.

    launcher --- guard --- mpiexec --- proxy --- process 0 (ranks 0, 1), process 1 (ranks 2, 3) ...
        |                                            |
        +------- control: a socket per process ------+      commands, results, tracebacks; idle ranks sleep here
        +------- board: memory that all see ---------+      phase and step, even of a stopped or killed rank

MPI carries what the ranks tell each other, and nothing else. With one rank per process MPI's numbers are the ranks.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connections
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any

from lockstep.groups.board import Board
from lockstep.launch.environment import worker_environment
from lockstep.launch.guarded import Guard, seated
from lockstep.launch.mpi_commands import MpiError, command, find_mpiexec, local_environment
from lockstep.launch.rendezvous import Foreign, Meeting, RankSettings
from lockstep.launch.team import Team, Worker
from lockstep.launch.watch import Watch, WorkerFailed, tail

START_SECONDS = 120.0
_RANK = "from lockstep.launch.rank import main; main()"
_VERDICT_SECONDS = 2.0  # for a seat to say which rank ended first, and how


class MpiTeam(Team):
    """`Team` of one MPI job on this machine. `hosts`: the emulated host of each process, empty for one node.

    `seats`: the ranks of each process, by default one each; equally many in all, in rank order. `program`: another
    mpiexec than the environment's own. `start_seconds`: what the last start took.
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
        self.start_seconds = 0.0
        self._guard: Guard | None = None
        self._meeting: Meeting | None = None

    def start(self) -> None:
        if self.workers:
            return
        began = time.monotonic()
        try:
            self._mpi = find_mpiexec(self.program)
        except MpiError as error:
            raise WorkerFailed(-1, "start", f"could not start: {error}", "") from error
        self.board = Board.create(self.size)
        self._meeting = meeting = Meeting()
        try:
            self._guard = Guard(self._commands(meeting), self._environment(meeting), [meeting.folder])
            self._meet(meeting, time.monotonic() + START_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.monotonic() - began

    def _commands(self, meeting: Meeting) -> dict[str, list[str]]:
        """What the guard runs, by name."""
        return {"mpiexec": command(self._mpi, len(self.seats), self._rank_program(meeting))}

    def _rank_program(self, meeting: Meeting) -> list[str]:
        return [*seated(meeting.ends_path), sys.executable, "-c", _RANK, meeting.path]

    def _environment(self, meeting: Meeting) -> dict[str, str]:
        environment = worker_environment(self.environment, self.threads_per_worker)
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        return environment | local_environment(self._mpi, meeting.folder)

    def _meet(self, meeting: Meeting, deadline: float) -> None:
        """Wait until all processes have come and are ready. Raises WorkerFailed."""
        assert self.board is not None and self._guard is not None
        count = len(self.seats)
        settings = RankSettings(self.seats, self.cores, self.threads_per_worker, self.hosts, list(sys.path))
        come: dict[Any, Worker] = {}
        ready: dict[Any, tuple[int, int]] = {}
        try:
            while len(ready) < count:
                if time.monotonic() > deadline:
                    raise self._unable(f"have not come: {count - len(ready)} of {count} processes", come)
                waiting = [control for control in come if control not in ready]
                for found in connections.wait([meeting.socket, *waiting], 0.2):
                    if found is meeting.socket:
                        control, worker = self._accept(meeting, settings)
                        come[control] = worker
                    else:
                        ready[found] = self._hear(come[found], come)
                self._look()
                if self._guard.ended():
                    raise self._unable("ended before all processes had come", come)
                # mpiexec waits on for ever where a process ends before it has called MPI.
                if (first := meeting.first_end(0)) is not None:
                    raise self._unable(f"lost a process, which ended with {first[1]} before all had come", come)
            self._seat([(come[control], *ready[control]) for control in ready])
        finally:
            if not self.workers:
                for worker in come.values():
                    worker.control.close()
                    worker.output.close()

    def _accept(self, meeting: Meeting, settings: RankSettings) -> tuple[Any, Worker]:
        assert self.board is not None
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        pid, control = meeting.accept(settings, [self.board.handle, output.fileno()])
        return control, Worker(Foreign(pid), control, [], output)

    def _hear(self, worker: Worker, come: Mapping[Any, Worker]) -> tuple[int, int]:
        """MPI's (rank, size) that a process tells. Raises WorkerFailed."""
        try:
            kind, *said = worker.control.recv()
        except (EOFError, OSError):
            raise self._unable("lost a rank", come, worker.output) from None
        if kind == "ready":
            return said[0], said[1]
        raise WorkerFailed(-1, "start", "could not start: a rank failed before it was ready", said[0])

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
        for worker, number, _ in told:
            worker.ranks = self.seats[number]
        self.workers = sorted((worker for worker, _, _ in told), key=lambda worker: worker.ranks)

    def _unable(self, what: str, come: Mapping[Any, Worker], output: IO[bytes] | None = None) -> WorkerFailed:
        assert self._guard is not None
        self._guard.ended(1.0 if output else 0.0)
        outputs = [output] if output else [worker.output for worker in come.values()]
        said = "\n".join(tail(each) for each in [self._guard.output, *outputs])
        return WorkerFailed(-1, "start", f"could not start: {self._mpi.program} {what}", said)

    def _gone(self, watch: Watch, worker: Worker) -> WorkerFailed:
        """Whose end ended the job: mpiexec kills the others, so the rank whose connection closed may be a victim."""
        assert self._guard is not None and self._meeting is not None
        first = self._meeting.first_end(_VERDICT_SECONDS)
        self._guard.ended(0 if first else _VERDICT_SECONDS)
        if culprit := self._guard.culprit():
            return WorkerFailed(-1, self.board.where(0) if self.board else "", culprit, tail(self._guard.output))
        if first is not None:
            worker = next((each for each in self.workers if each.process.pid == first[0]), worker)
            assert isinstance(worker.process, Foreign)
            worker.process.returncode = first[1]
        return watch.gone(worker)

    def kill(self) -> None:
        for worker in self.workers:
            worker.process.kill()  # before mpiexec can react: a stopped rank would keep it waiting
        self._forget()

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.control.send(None)
        if self._guard is not None and self.workers:
            self._guard.ended(1.0)
        self._forget()

    def _forget(self) -> None:
        if self._guard is not None:
            self._guard.stop()
        processes = [worker.process for worker in self.workers]
        super()._forget()
        if self._guard is not None:
            self._guard.output.close()
            self._guard = None
        if self._meeting is not None:
            self._meeting.close()
            self._meeting = None
        for process in processes:
            assert isinstance(process, Foreign)
            process.close()
