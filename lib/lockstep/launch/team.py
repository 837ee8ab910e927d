"""A team: worker processes that stay warm, and the watch over them."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any, Protocol

import cloudpickle

from lockstep.groups import Group
from lockstep.groups.board import Board
from lockstep.job import Job
from lockstep.launch.environment import worker_environment
from lockstep.launch.watch import Watch, WorkerFailed, memory_kills, with_memory
from lockstep.launch.worker import Settings
from lockstep.loop import Site, Trace, run_job
from lockstep.peers import PEERS

_START_SECONDS = 120
_START = "from lockstep.launch.worker import main; main()"
_GRACE_SECONDS = 2.0  # for the other ranks to say what happened to them, once one has failed


class Process(Protocol):
    """What a team needs of a worker's process: Popen has it, and so has `rendezvous.Foreign`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    def send_signal(self, sig: int, /) -> None: ...

    def wait(self, timeout: float | None = None) -> int | None: ...


@dataclass
class Worker:
    """A worker process, seen from the launcher."""

    process: Process
    control: Connection
    ranks: list[int]
    output: IO[bytes]  # its stdout and stderr: an unnamed file, read when it fails


class Team:
    """`size` ranks in the processes that `seats` says: [[0, 1]] two threads of one, [[0], [1]] a process each.

    `call` and `run` can be repeated; workers stay warm in between and sleep. After a failure all of them are
    gone, and the next call starts them anew. Close it, or use a launcher's `with`.
    """

    def __init__(
        self, seats: list[list[int]], cores: list[list[int]], threads_per_worker: int, environment: str
    ) -> None:
        self.seats, self.cores = seats, cores
        self.threads_per_worker, self.environment = threads_per_worker, environment
        self.size = sum(len(ranks) for ranks in seats)
        self.workers: list[Worker] = []
        self.start_seconds = 0.0  # what the last start took, until the last worker was ready
        self.repeated = ""  # why the last call was begun again, if it was
        self.board: Board | None = None
        self._calls = itertools.count()

    @property
    def pids(self) -> list[int]:
        """Of the worker processes; empty before the first call and after a failure."""
        return [worker.process.pid for worker in self.workers]

    def run(
        self,
        job: Job,
        site: Site | None = None,
        function: Callable[..., Trace] | None = None,
        stall_seconds: float = 600,
    ) -> list[Trace]:
        """`function(job, group, site)` on every rank, by default `run_job` or the peer that `job.sync` names.

        Returns the traces, by rank. Raises WorkerFailed.
        """
        function = function or PEERS.get(job.sync, run_job)
        traces: list[Trace] = self.call(_run, function, job, site, stall_seconds=stall_seconds)
        return traces

    def call(self, function: Callable[..., Any], *arguments: Any, stall_seconds: float = 600) -> list[Any]:
        """`function(group, *arguments)` on every rank: the results, by rank.

        Raises WorkerFailed for the first rank that raised, was killed or stopped, left, or if no rank entered
        another phase for `stall_seconds`. Nobody is left behind then.
        """
        payload = cloudpickle.dumps((function, arguments))
        self.start()
        number, kills = next(self._calls), memory_kills()
        try:
            self._dispatch(number, payload)
            return self._collect(number, stall_seconds)
        except WorkerFailed as failure:
            self.kill()
            raise with_memory(failure, memory_kills() - kills) from None
        except BaseException:
            self.kill()
            raise

    def _dispatch(self, number: int, payload: bytes) -> None:
        """Tell every worker what to call."""
        for worker in self.workers:
            with contextlib.suppress(OSError):  # it has gone since the last call: the watch says how
                worker.control.send((number, payload))

    def start(self) -> None:
        """Start the workers unless they run. Raises WorkerFailed if one can't start."""
        if self.workers:
            return
        began = time.monotonic()
        self.board = Board.create(self.size)
        ends = _socket_pairs(self.seats)
        try:
            for index in range(len(self.seats)):
                self.workers.append(self._spawn(index, ends[index]))
            watch = Watch(self.workers, self.board, _START_SECONDS)
            waiting = {worker.control: worker for worker in self.workers}
            while waiting:
                for control in watch.readable(list(waiting)):
                    worker = waiting.pop(control)
                    try:
                        control.recv()
                    except (EOFError, OSError):  # reset: it left without having read its settings
                        raise watch.gone(worker) from None
            self.start_seconds = time.monotonic() - began
        except BaseException:
            self.kill()
            raise
        finally:
            for end in ends:
                for peer in end.values():
                    peer.close()

    def _spawn(self, index: int, peers: dict[int, socket.socket]) -> Worker:
        assert self.board is not None
        ours, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        handles = {other: peer.fileno() for other, peer in peers.items()}
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs.fileno()), str(os.getpid())],
            env=worker_environment(self.environment, self.threads_per_worker) | {"PYTHONPATH": _python_path()},
            pass_fds=[theirs.fileno(), self.board.handle, *handles.values()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        theirs.close()
        ranks = self.seats[index]
        control = Connection(ours.detach())
        cores = [self.cores[rank] for rank in ranks]
        told = Settings(ranks, self.size, cores, self.threads_per_worker, self.board.handle, handles, list(sys.path))
        with contextlib.suppress(OSError):  # it has gone already: the watch says how
            control.send(told)
        return Worker(process, control, ranks, output)

    def _collect(self, number: int, stall_seconds: float) -> list[Any]:
        assert self.board is not None
        watch = Watch(self.workers, self.board, stall_seconds)
        results: dict[int, Any] = {}
        first: WorkerFailed | None = None
        grace_end = float("inf")
        while len(results) < self.size and time.monotonic() < grace_end:
            try:
                readable = watch.readable([worker.control for worker in self.workers])
            except WorkerFailed as stopped:
                raise (first or stopped) from None
            if not readable:
                self._look()
            for control in readable:
                worker = next(worker for worker in self.workers if worker.control is control)
                try:
                    message = control.recv()
                except (EOFError, OSError):
                    # Ranks whose peer has gone raise as well, but the peer that went is the cause.
                    raise self._gone(watch, worker) from None
                if message[1] != number:
                    self._aside(message)  # perhaps of a call that was given up
                    continue
                if message[0] == "result":
                    results[message[2]] = cloudpickle.loads(message[3])
                    continue
                failure = watch.raised(*message[2:])
                if first is None or (first.follows and not failure.follows):
                    first = failure
                    grace_end = time.monotonic() + (_GRACE_SECONDS if failure.follows else 0.2)
        if first is not None:
            raise first
        return [results[rank] for rank in range(self.size)]

    def _look(self) -> None:
        """Twice a second while waiting: raises WorkerFailed for what only this kind of team can see."""

    def _aside(self, message: tuple[Any, ...]) -> None:
        """A message that belongs to no call under way: forget it, unless this kind of team expects some."""

    def _gone(self, watch: Watch, worker: Worker) -> WorkerFailed:
        """The failure that the closed connection of `worker` tells of."""
        return watch.gone(worker)

    def kill(self) -> None:
        """End all workers now."""
        for worker in self.workers:
            worker.process.kill()  # also ends a stopped one
        self._forget()

    def close(self) -> None:
        """Let the workers end; kill who does not within a second. Can be repeated."""
        for worker in self.workers:
            try:
                worker.control.send(None)
            except OSError:
                continue
        end = time.monotonic() + 1.0
        for worker in self.workers:
            try:
                worker.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
        self._forget()

    def _forget(self) -> None:
        for worker in self.workers:
            worker.process.wait()
            worker.control.close()
            worker.output.close()
        self.workers = []
        if self.board is not None:
            self.board.close()
            self.board = None


def _run(group: Group, function: Callable[..., Trace], job: Job, site: Site | None) -> Trace:
    return function(job, group, site)


def _socket_pairs(seats: list[list[int]]) -> list[dict[int, socket.socket]]:
    """For every process a connected socket to each other one, by the other's first rank."""
    ends: list[dict[int, socket.socket]] = [{} for _ in seats]
    for a, b in itertools.combinations(range(len(seats)), 2):
        ends[a][seats[b][0]], ends[b][seats[a][0]] = socket.socketpair()
    return ends


def _python_path() -> str:
    """The worker finds the same packages, wherever this process found them."""
    return os.pathsep.join(entry for entry in sys.path if entry)
