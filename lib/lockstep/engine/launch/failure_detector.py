"""Failure detectors: they notice a worker that raised, died or was stopped, and ranks that no longer progress.

`ProgressMonitor`        what both detectors look at: process states, and the phases that ranks write on the board
`FailureDetector`        in the launcher: also reads the messages of the workers, and raises WorkerFailed
`FailureDetectorThread`  in a rank of `lockstep mpi`, where no launcher exists: ends the whole MPI job

    a rank raises            its traceback arrives as a message
    a process dies           its control connection closes; the reason is its exit code or signal and its last output
    a process is stopped     the kernel reports its state; it is continued just long enough to dump its stacks
    no rank progresses       no rank has entered another phase for `stall_seconds`; a suspect's stacks are dumped
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing.connection as connections
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from lockstep.engine.groups.board import Board
from lockstep.engine.launch.failures import WorkerFailed, output_tail
from lockstep.engine.launch.stopped_programs import is_stopped
from lockstep.engine.launch.worker_process import Worker

_CHECK_SECONDS = 0.5
_STOPPED_CHECKS = 2  # A process counts as stopped when so many checks in a row say so: a debugger may stop it briefly.
_STACK_DUMP_SECONDS = 0.5
_WAITING_PHASES = ("wait", "exchange")


class ProgressMonitor:
    """Looks after `processes`, pairs of (process id, its ranks): is one stopped, do the ranks still progress?"""

    def __init__(self, board: Board, processes: Sequence[tuple[int, Sequence[int]]], stall_seconds: float) -> None:
        self.board, self.processes, self.stall_seconds = board, processes, stall_seconds
        self._stopped_checks = [0] * len(processes)
        self._changes, self._last_progress = board.changes(), time.monotonic()

    def stopped_process(self) -> int | None:
        """The index of a process that has been stopped since the last check; None if all of them run."""
        for index, (pid, _) in enumerate(self.processes):
            self._stopped_checks[index] = self._stopped_checks[index] + 1 if is_stopped(pid) else 0
            if self._stopped_checks[index] >= _STOPPED_CHECKS:
                return index
        return None

    def stalled(self) -> bool:
        """Has no rank of the board entered another phase for `stall_seconds`?"""
        changes = self.board.changes()
        if changes != self._changes:
            self._changes = changes
            self.note_progress()
        return time.monotonic() - self._last_progress > self.stall_seconds

    def note_progress(self) -> None:
        """Something else than a phase shows that the ranks progress, such as a message."""
        self._last_progress = time.monotonic()

    def suspect(self) -> tuple[int, int]:
        """(index of the process, rank) of the likely cause of a stall.

        A rank that waits for others is where it should be, so the first rank that does not wait is the suspect.
        """
        for index, (_, ranks) in enumerate(self.processes):
            for rank in ranks:
                if self.board.phase(rank) not in _WAITING_PHASES:
                    return index, rank
        return 0, self.processes[0][1][0]

    def positions(self, ranks: Iterable[int] | None = None) -> str:
        """Step and phase of `ranks`, by default of all of them, in words."""
        shown = [rank for _, own in self.processes for rank in own] if ranks is None else ranks
        return "; ".join(f"rank {rank}: {self.board.where(rank)}" for rank in shown)


class FailureDetector:
    """The launcher's: waits for messages of `workers` and meanwhile checks that all of them are well."""

    def __init__(self, workers: Sequence[Worker], board: Board, stall_seconds: float) -> None:
        self.workers, self.board = workers, board
        processes = [(worker.process.pid, worker.ranks) for worker in workers]
        self._monitor = ProgressMonitor(board, processes, stall_seconds)

    def wait_for_messages(self, controls: list[Connection], most_seconds: float = float("inf")) -> list[Any]:
        """The connections that have a message or were closed, after half a second or `most_seconds` at most.

        Raises WorkerFailed if a worker is stopped, or if no rank has entered another phase for too long.
        """
        ready = connections.wait(controls, min(_CHECK_SECONDS, most_seconds))
        if ready:
            self._monitor.note_progress()
            return ready
        if (index := self._monitor.stopped_process()) is not None:
            worker = self.workers[index]
            reason = "was stopped (SIGSTOP)"
            raise WorkerFailed(worker.ranks[0], self.position_of(worker), reason, _dump_stacks(worker))
        if self._monitor.stalled():
            raise self._stall()
        return []

    def _stall(self) -> WorkerFailed:
        reason = f"has not moved for {self._monitor.stall_seconds:.0f} s; {self._monitor.positions()}"
        index, rank = self._monitor.suspect()
        return WorkerFailed(rank, self.board.where(rank), reason, _dump_stacks(self.workers[index]))

    def connection_lost(self, worker: Worker) -> WorkerFailed:
        """The failure of a worker whose connection has closed."""
        where = self.position_of(worker)
        with contextlib.suppress(Exception):
            worker.process.wait(2)
        code = worker.process.returncode
        reason = f"left with exit code {code}"
        if code is None:
            reason = "left, and nobody saw how"
        elif code < 0:
            reason = f"was killed by {signal.Signals(-code).name}"
        return WorkerFailed(worker.ranks[0], where, reason, output_tail(worker.output))

    def exception_reported(self, rank: int, follows: bool, error: str, traceback: str) -> WorkerFailed:
        """The failure of a rank that reported an exception."""
        return WorkerFailed(rank, self.board.where(rank), f"raised {error}", traceback, follows=follows)

    def position_of(self, worker: Worker) -> str:
        if len(worker.ranks) == 1:
            return self.board.where(worker.ranks[0])
        return self._monitor.positions(worker.ranks)


def _dump_stacks(worker: Worker) -> str:
    """All Python stacks of a worker that cannot answer: its signal handler writes them to its output."""
    with contextlib.suppress(ProcessLookupError):
        worker.process.send_signal(signal.SIGUSR1)
        worker.process.send_signal(signal.SIGCONT)
        time.sleep(_STACK_DUMP_SECONDS)
    return output_tail(worker.output)


class FailureDetectorThread:
    """A rank's own: watches `ranks` (rank: process id) of this node, and calls `end_job` when something is wrong.

    It first names the rank and its phase on stderr, with the stacks of this process. It is a thread and no signal
    handler, because a signal handler does not run while a rank waits inside a library.
    """

    def __init__(self, board: Board, ranks: dict[int, int], stall_seconds: float, end_job: Callable[[], None]) -> None:
        self._monitor = ProgressMonitor(board, [(pid, [rank]) for rank, pid in ranks.items()], stall_seconds)
        self._end_job = end_job
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lockstep-failure-detector", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; returns when the thread has ended."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        monitor = self._monitor
        while not self._closed.wait(_CHECK_SECONDS):
            if (index := monitor.stopped_process()) is not None:
                rank = monitor.processes[index][1][0]
                self._report(f"rank {rank} was stopped (SIGSTOP) ({monitor.board.where(rank)})")
                return
            if monitor.stalled():
                seconds = monitor.stall_seconds
                self._report(f"no rank of this node has moved for {seconds:.0f} s; {monitor.positions()}")
                return

    def _report(self, message: str) -> None:
        print(f"lockstep: {message}; stacks of process {os.getpid()}:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(file=2, all_threads=True)
        self._end_job()
