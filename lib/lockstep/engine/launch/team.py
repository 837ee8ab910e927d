"""A team: worker processes that stay warm between calls, and the launcher's failure detector over them."""

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
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from lockstep.engine.groups import Group
from lockstep.engine.groups.board import Board
from lockstep.engine.job import Job
from lockstep.engine.launch.environment import python_path, worker_environment
from lockstep.engine.launch.failure_detector import FailureDetector
from lockstep.engine.launch.failures import WorkerFailed, explained_by_memory, out_of_memory_kills
from lockstep.engine.launch.worker import Settings
from lockstep.engine.launch.worker_process import Worker, start_python
from lockstep.engine.peers import run_function
from lockstep.engine.training.loop import Site, Trace

_START_SECONDS = 120
_START = "from lockstep.engine.launch.worker import main; main()"
# How long the other ranks may still report, once one has failed: the cause may come after its consequence.
_GRACE_SECONDS, _SHORT_GRACE_SECONDS = 2.0, 0.2


class Team:
    """`size` ranks in processes. `ranks_by_process`: [[0, 1]] is one process with two threads, [[0], [1]] are two.

    `call` and `run` can be repeated; in between, the workers stay warm and sleep. After a failure all of them have
    ended, and the next call starts new ones. Close the team, or use a launcher's `with`.
    """

    def __init__(
        self, ranks_by_process: list[list[int]], cores: list[list[int]], threads_per_worker: int, environment: str
    ) -> None:
        self.ranks_by_process, self.cores = ranks_by_process, cores
        self.threads_per_worker, self.environment = threads_per_worker, environment
        self.size = sum(len(ranks) for ranks in ranks_by_process)
        self.workers: list[Worker] = []
        self.start_seconds = 0.0  # how long the last start took, until the last worker was ready
        self.repeated = ""  # why the last call was repeated, if it was
        self.board: Board | None = None
        self._calls = itertools.count()

    @property
    def pids(self) -> list[int]:
        """The ids of the worker processes; empty before the first call and after a failure."""
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
        function = function or run_function(job.sync)
        traces: list[Trace] = self.call(_run, function, job, site, stall_seconds=stall_seconds)
        return traces

    def call(self, function: Callable[..., Any], *arguments: Any, stall_seconds: float = 600) -> list[Any]:
        """`function(group, *arguments)` on every rank: the results, by rank.

        Raises WorkerFailed for the first rank that raised, was killed or stopped, or left, or if no rank entered
        another phase for `stall_seconds`. No process is left behind then.
        """
        payload = cloudpickle.dumps((function, arguments))
        self.start()
        number, kills = next(self._calls), out_of_memory_kills()
        assert self.board is not None
        for rank in range(self.size):
            self.board.at_step(rank, 0)
        try:
            self._dispatch(number, payload)
            del payload  # a reader's arrays may be in it
            return self._collect(number, stall_seconds)
        except WorkerFailed as failure:
            self.kill()
            raise explained_by_memory(failure, out_of_memory_kills() - kills) from None
        except BaseException:
            self.kill()
            raise

    def _dispatch(self, number: int, payload: bytes) -> None:
        """Send every worker the call."""
        for worker in self.workers:
            with contextlib.suppress(OSError):  # It has ended since the last call: the failure detector reports how.
                worker.control.send((number, payload))

    def start(self) -> None:
        """Start the workers unless they run. Raises WorkerFailed if one can't start."""
        if self.workers:
            return
        began = time.monotonic()
        self.board = Board.create(self.size)
        ends = _socket_pairs(self.ranks_by_process)
        try:
            for index in range(len(self.ranks_by_process)):
                self.workers.append(self._spawn(index, ends[index]))
            self._wait_for_all(FailureDetector(self.workers, self.board, _START_SECONDS))
            self.start_seconds = time.monotonic() - began
        except BaseException:
            self.kill()
            raise
        finally:
            for end in ends:
                for peer in end.values():
                    peer.close()

    def _wait_for_all(self, detector: FailureDetector) -> None:
        """Wait until every worker has said that it is ready. Raises WorkerFailed."""
        waiting = {worker.control: worker for worker in self.workers}
        while waiting:
            for control in detector.wait_for_messages(list(waiting)):
                worker = waiting.pop(control)
                try:
                    control.recv()
                except (EOFError, OSError):  # reset: it left without having read its settings
                    raise detector.connection_lost(worker) from None

    def _spawn(self, index: int, peers: dict[int, socket.socket]) -> Worker:
        assert self.board is not None
        ours, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        handles = {other: peer.fileno() for other, peer in peers.items()}
        environment = worker_environment(self.environment, self.threads_per_worker)
        environment |= {"PYTHONPATH": python_path()}
        inherited = [theirs.fileno(), self.board.handle, *handles.values()]
        process = start_python(_START, [str(theirs.fileno()), str(os.getpid())], environment, inherited, output)
        theirs.close()
        ranks = self.ranks_by_process[index]
        control = Connection(ours.detach())
        cores = [self.cores[rank] for rank in ranks]
        board = self.board.handle
        settings = Settings(ranks, self.size, cores, self.threads_per_worker, board, handles, list(sys.path))
        with contextlib.suppress(OSError):  # It has ended already: the failure detector reports how.
            control.send(settings)
        return Worker(process, control, ranks, output)

    def _collect(self, number: int, stall_seconds: float) -> list[Any]:
        """The results of call `number`, by rank. Raises WorkerFailed."""
        assert self.board is not None
        detector = FailureDetector(self.workers, self.board, stall_seconds)
        results: dict[int, Any] = {}
        failures = 0  # reported; a rank reports once, so when all have there is nothing to wait for
        first: WorkerFailed | None = None
        grace_end = float("inf")
        while len(results) + failures < self.size and (grace := grace_end - time.monotonic()) > 0:
            try:
                readable = detector.wait_for_messages([worker.control for worker in self.workers], grace)
            except WorkerFailed as stopped:
                raise (first or stopped) from None
            if not readable:
                self._check()
            for control in readable:
                message = self._receive(control, detector)
                if message[1] != number:
                    self._handle_other_message(message)  # perhaps of a call that was given up
                elif message[0] == "result":
                    results[message[2]] = cloudpickle.loads(message[3])
                else:
                    failures += 1
                    failure = detector.exception_reported(*message[2:])
                    if first is None or (first.follows and not failure.follows):
                        first = failure
                        grace_end = time.monotonic() + (_GRACE_SECONDS if failure.follows else _SHORT_GRACE_SECONDS)
        if first is not None:
            raise first
        return [results[rank] for rank in range(self.size)]

    def _receive(self, control: Connection, detector: FailureDetector) -> Any:
        """The next message of a worker. Raises WorkerFailed if its connection has closed."""
        try:
            return control.recv()
        except (EOFError, OSError):
            # Ranks whose peer has ended raise as well, but the peer that ended is the cause.
            worker = next(worker for worker in self.workers if worker.control is control)
            raise self._connection_lost(detector, worker) from None

    def _check(self) -> None:
        """Called twice a second while waiting: raises WorkerFailed for what only this kind of team can see."""

    def _handle_other_message(self, message: tuple[Any, ...]) -> None:
        """A message that belongs to no call under way is dropped, unless this kind of team expects such messages."""

    def _connection_lost(self, detector: FailureDetector, worker: Worker) -> WorkerFailed:
        """The failure that the closed connection of `worker` stands for."""
        return detector.connection_lost(worker)

    def kill(self) -> None:
        """End all workers now."""
        for worker in self.workers:
            worker.process.kill()  # also ends a stopped one
        self._release()

    def close(self) -> None:
        """Let the workers end; kill those that do not within a second. Can be repeated."""
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
        self._release()

    def _release(self) -> None:
        """Close what this process holds of workers that have ended or are ending."""
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


def _socket_pairs(ranks_by_process: list[list[int]]) -> list[dict[int, socket.socket]]:
    """For every process a connected socket to each other one, by the other's first rank."""
    ends: list[dict[int, socket.socket]] = [{} for _ in ranks_by_process]
    for (a, ranks_a), (b, ranks_b) in itertools.combinations(enumerate(ranks_by_process), 2):
        ends[a][ranks_b[0]], ends[b][ranks_a[0]] = socket.socketpair()
    return ends
