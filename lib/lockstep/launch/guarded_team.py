"""Teams whose processes somebody else starts (mpiexec, ipyparallel, Spark): a guard runs it, the processes meet here.

launcher --- guard --- whoever starts --- process 0, process 1 ...
    |                                        |
    +------ control: a socket per process ---+        commands, results, tracebacks
    +------ board: memory that all see ------+        phase and step, even of a stopped or killed rank
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

from lockstep.groups.board import Board
from lockstep.launch.guarded import Guard
from lockstep.launch.rendezvous import Foreign, Meeting, RankSettings, Remote
from lockstep.launch.team import Team, Worker
from lockstep.launch.watch import Watch, WorkerFailed, tail

START_SECONDS = 120.0
_VERDICT_SECONDS = 2.0  # for a seat to say which rank ended first, and how


class GuardedTeam(Team, ABC):
    """`hosts`: the host of each process as its ranks are told, empty for one node.

    `start_seconds`: what the last start took.
    """

    def __init__(
        self, seats: list[list[int]], cores: list[list[int]], threads_per_worker: int, environment: str
    ) -> None:
        super().__init__(seats, cores, threads_per_worker, environment)
        self.hosts: list[str] = []
        self._guard: Guard | None = None
        self._meeting: Any = None

    def _prepare(self) -> None:
        """Find what the start needs. Raises WorkerFailed if something is missing."""

    def _open(self) -> Any:
        """Where the processes meet: it has a `folder` of its own, and `close`."""
        return Meeting()

    @property
    @abstractmethod
    def _starter(self) -> str:
        """What starts the processes, for errors."""

    @abstractmethod
    def _commands(self, meeting: Any) -> dict[str, list[str]]:
        """What the guard runs, by name."""

    @abstractmethod
    def _environment(self, meeting: Any) -> dict[str, str]:
        """Of what the guard runs."""

    def start(self) -> None:
        if self.workers:
            return
        began = time.monotonic()
        self._prepare()
        try:
            self.board = Board.create(self.size)
            self._meeting = meeting = self._open()
            self._guard = Guard(self._commands(meeting), self._environment(meeting), [meeting.folder])
            self._meet(meeting, time.monotonic() + START_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.monotonic() - began

    def _rank_cores(self) -> list[list[int]]:
        """The cores of each rank."""
        return self.cores

    def _meet(self, meeting: Any, deadline: float) -> None:
        """Wait until all processes have come and are ready. Raises WorkerFailed."""
        assert self.board is not None and self._guard is not None
        count = len(self.seats)
        settings = RankSettings(self.seats, self._rank_cores(), self.threads_per_worker, self.hosts, list(sys.path))
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
        """(number, count) of the processes, as one of them tells. Raises WorkerFailed."""
        try:
            kind, *said = worker.control.recv()
        except (EOFError, OSError):
            raise self._unable("lost a rank", come, worker.output) from None
        if kind == "ready":
            return said[0], said[1]
        said_last = tail(worker.output)  # what libraries and JVMs wrote
        raise WorkerFailed(-1, "start", "could not start: a rank failed before it was ready", f"{said[0]}\n{said_last}")

    def _seat(self, told: list[tuple[Worker, int, int]]) -> None:
        """Give every worker its ranks. Raises WorkerFailed if the processes are not those of one job."""
        for worker, number, _ in told:
            worker.ranks = self.seats[number]
        self.workers = sorted((worker for worker, _, _ in told), key=lambda worker: worker.ranks)

    def _unable(self, what: str, come: Mapping[Any, Worker], output: IO[bytes] | None = None) -> WorkerFailed:
        assert self._guard is not None
        self._guard.ended(1.0 if output else 0.0)
        outputs = [output] if output else [worker.output for worker in come.values()]
        said = "\n".join(tail(each) for each in [self._guard.output, *outputs])
        return WorkerFailed(-1, "start", f"could not start: {self._starter} {what}", said)

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
            assert isinstance(process, Foreign | Remote)
            process.close()
