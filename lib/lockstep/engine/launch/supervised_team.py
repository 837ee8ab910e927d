"""Teams whose processes another program starts (mpiexec, ipyparallel, Spark), which a supervisor runs.

launcher --- supervisor --- starting program --- process 0, process 1 ...
    |                                               |
    +--------- control: a socket per process -------+   commands, results, tracebacks
    +--------- board: memory that all see ----------+   phase and step, even of a stopped or killed rank
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connections
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import IO, Any

from lockstep.engine.groups.board import Board
from lockstep.engine.launch.failure_detector import FailureDetector
from lockstep.engine.launch.failures import WorkerFailed, output_tail
from lockstep.engine.launch.rendezvous import RankSettings, Rendezvous
from lockstep.engine.launch.stopped_programs import StoppedPrograms
from lockstep.engine.launch.supervisor import Supervisor
from lockstep.engine.launch.team import Team
from lockstep.engine.launch.worker_process import ExternalProcess, RemoteProcess, Worker

START_SECONDS = 120.0
_EXIT_REPORT_SECONDS = 2.0  # for the parent of a rank to report which rank ended first, and how


class SupervisedTeam(Team, ABC):
    """`hosts`: the host of each process as its ranks are to see it, empty for one node.

    `start_seconds`: how long the last start took.
    """

    def __init__(
        self, ranks_by_process: list[list[int]], cores: list[list[int]], threads_per_worker: int, environment: str
    ) -> None:
        super().__init__(ranks_by_process, cores, threads_per_worker, environment)
        self.hosts: list[str] = []
        self._supervisor: Supervisor | None = None
        self._rendezvous: Any = None
        self._stopped_programs = StoppedPrograms()

    def _prepare(self) -> None:
        """Find what the start needs. Raises WorkerFailed if something is missing."""

    def _open_rendezvous(self) -> Any:
        """Where the processes meet the launcher: it has a `folder` of its own, and `close`."""
        return Rendezvous()

    @property
    @abstractmethod
    def _starting_program(self) -> str:
        """What starts the processes, for error messages."""

    @abstractmethod
    def _commands(self, rendezvous: Any) -> dict[str, list[str]]:
        """What the supervisor runs, by name."""

    @abstractmethod
    def _environment_of_commands(self, rendezvous: Any) -> dict[str, str]:
        """The environment variables of what the supervisor runs."""

    def start(self) -> None:
        if self.workers:
            return
        began = time.monotonic()
        self._prepare()
        try:
            self.board = Board.create(self.size)
            self._rendezvous = rendezvous = self._open_rendezvous()
            environment = self._environment_of_commands(rendezvous)
            self._supervisor = Supervisor(self._commands(rendezvous), environment, [rendezvous.folder])
            self._wait_until_ready(rendezvous, time.monotonic() + START_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.monotonic() - began

    def _rank_cores(self) -> list[list[int]]:
        """The cores of each rank."""
        return self.cores

    def _wait_until_ready(self, rendezvous: Any, deadline: float) -> None:
        """Wait until all processes have arrived and are ready. Raises WorkerFailed."""
        count = len(self.ranks_by_process)
        settings = RankSettings(
            self.ranks_by_process, self._rank_cores(), self.threads_per_worker, self.hosts, list(sys.path)
        )
        arrived: dict[Any, Worker] = {}
        ready: dict[Any, tuple[int, int]] = {}
        try:
            while len(ready) < count:
                if time.monotonic() > deadline:
                    raise self._start_failure(f"have not come: {count - len(ready)} of {count} processes", arrived)
                waiting = [control for control in arrived if control not in ready]
                for found in connections.wait([rendezvous.socket, *waiting], 0.2):
                    if found is rendezvous.socket:
                        control, worker = self._accept(rendezvous, settings)
                        arrived[control] = worker
                    else:
                        ready[found] = self._receive_ready(arrived[found], arrived)
                self._check_start(rendezvous, arrived)
            self._assign_ranks([(arrived[control], *ready[control]) for control in ready])
        finally:
            if not self.workers:
                for worker in arrived.values():
                    worker.control.close()
                    worker.output.close()

    def _check_start(self, rendezvous: Any, arrived: Mapping[Any, Worker]) -> None:
        """Raises WorkerFailed if the start has failed already."""
        assert self._supervisor is not None
        self._check()
        if self._supervisor.ended():
            raise self._start_failure("ended before all processes had come", arrived)
        # mpiexec waits for ever where a process ends before it has called MPI.
        if (first := rendezvous.first_exit(0)) is not None:
            raise self._start_failure(f"lost a process, which ended with {first[1]} before all had come", arrived)

    def _accept(self, rendezvous: Rendezvous, settings: RankSettings) -> tuple[Any, Worker]:
        assert self.board is not None
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        pid, control = rendezvous.accept(settings, [self.board.handle, output.fileno()])
        return control, Worker(ExternalProcess(pid), control, [], output)

    def _receive_ready(self, worker: Worker, arrived: Mapping[Any, Worker]) -> tuple[int, int]:
        """(number, count) of the processes, as one of them reports. Raises WorkerFailed."""
        try:
            kind, *details = worker.control.recv()
        except (EOFError, OSError):
            raise self._start_failure("lost a rank", arrived, worker.output) from None
        if kind == "ready":
            return details[0], details[1]
        text = f"{details[0]}\n{output_tail(worker.output)}"  # also what libraries and JVMs wrote
        raise WorkerFailed(-1, "start", "could not start: a rank failed before it was ready", text)

    def _assign_ranks(self, ready: list[tuple[Worker, int, int]]) -> None:
        """Give every worker its ranks. Raises WorkerFailed if the processes are not those of one job."""
        for worker, number, _ in ready:
            worker.ranks = self.ranks_by_process[number]
        self.workers = sorted((worker for worker, _, _ in ready), key=lambda worker: worker.ranks)

    def _start_failure(self, what: str, arrived: Mapping[Any, Worker], output: IO[bytes] | None = None) -> WorkerFailed:
        """The failure of a start, with what the programs wrote. `output`: that of the process at fault, if known."""
        assert self._supervisor is not None
        self._supervisor.ended(1.0 if output else 0.0)
        outputs = [output] if output else [worker.output for worker in arrived.values()]
        text = "\n".join(output_tail(each) for each in [self._supervisor.output, *outputs])
        return WorkerFailed(-1, "start", f"could not start: {self._starting_program} {what}", text)

    @property
    def _roots(self) -> list[int]:
        """The processes below which all of this team runs."""
        return [self._supervisor.process.pid] if self._supervisor is not None else []

    def _check(self) -> None:
        if name := self._stopped_programs.look(self._roots):
            raise WorkerFailed(-1, self._position(), f"{name} was stopped (SIGSTOP)", "")

    def _position(self) -> str:
        return self.board.where(0) if self.board is not None and self.workers else "start"

    def _connection_lost(self, detector: FailureDetector, worker: Worker) -> WorkerFailed:
        """Which end ended the job. mpiexec kills the other ranks, so the closed connection may be a victim's."""
        assert self._supervisor is not None and self._rendezvous is not None
        first: tuple[int, int] | None = None
        ended, end = False, time.monotonic() + _EXIT_REPORT_SECONDS
        while first is None and not ended and time.monotonic() < end:
            ended = self._supervisor.ended()  # a rank's end is reported before the end of all
            first = self._rendezvous.first_exit(0.0 if ended else 0.05)
        self._supervisor.ended(0 if first else _EXIT_REPORT_SECONDS)
        if cause := self._supervisor.cause_of_end():
            return WorkerFailed(-1, self._position(), cause, output_tail(self._supervisor.output))
        if first is not None:
            worker = next((each for each in self.workers if each.process.pid == first[0]), worker)
            assert isinstance(worker.process, ExternalProcess)
            worker.process.returncode = first[1]
        return detector.connection_lost(worker)

    def kill(self) -> None:
        for worker in self.workers:
            worker.process.kill()  # before mpiexec can react: a stopped rank would keep it waiting
        self._release()

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.control.send(None)
        if self._supervisor is not None and self.workers:
            self._supervisor.ended(1.0)
        self._release()

    def _release(self) -> None:
        if self._supervisor is not None:
            self._supervisor.stop()
        processes = [worker.process for worker in self.workers]
        super()._release()
        if self._supervisor is not None:
            self._supervisor.output.close()
            self._supervisor = None
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None
        for process in processes:
            assert isinstance(process, ExternalProcess | RemoteProcess)
            process.close()
