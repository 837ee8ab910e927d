"""Who failed, where and why: the launcher's watch over its workers.

a rank raises            its own traceback arrives as a message
a process dies           its control connection closes; exit code or signal, and the end of its output
a process is stopped     its state says so; it is continued just long enough to dump its stacks
nobody moves             no rank entered another phase for `stall_seconds`; all stacks are dumped
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connections
import re
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

from lockstep.groups.board import Board

if TYPE_CHECKING:
    from lockstep.launch.team import Worker

_LOOK_SECONDS = 0.5
_STOPPED_LOOKS = 2  # seen stopped this often in a row: not just a debugger's blink
_OUTPUT_BYTES = 8_000


class WorkerFailed(RuntimeError):
    """A worker failed. `rank`, `where` (step and phase), `reason` and its own `traceback`, as far as there is one.

    `follows`: it failed because another rank had.
    """

    def __init__(self, rank: int, where: str, reason: str, traceback: str, *, follows: bool = False) -> None:
        # `rank` is -1 where the team as a whole could not start.
        self.rank, self.where, self.reason, self.traceback, self.follows = rank, where, reason, traceback, follows
        name = f"rank {rank}" if rank >= 0 else "the team"
        detail = f"\n\n--- {name} ---\n{traceback.rstrip()}" if traceback.strip() else ""
        super().__init__(f"{name} {reason} ({where}){detail}")


def memory_kills() -> int:
    """Processes of this machine that its kernel has ended for lack of memory since it began (Linux, else 0)."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def with_memory(failure: WorkerFailed, kills: int) -> WorkerFailed:
    """`failure`, which says so if something was killed while the kernel ended `kills` processes."""
    if kills <= 0 or "SIGKILL" not in failure.reason:
        return failure
    reason = f"{failure.reason}: the kernel ended a process meanwhile, for the machine's memory was full"
    return type(failure)(failure.rank, failure.where, reason, failure.traceback, follows=failure.follows)


class Watch:
    """Waits for messages of `workers` and meanwhile looks whether all of them are well."""

    def __init__(self, workers: Sequence[Worker], board: Board, stall_seconds: float) -> None:
        self.workers, self.board, self.stall_seconds = workers, board, stall_seconds
        self._stopped: dict[int, int] = {}
        self._changes, self._moved = board.changes(), time.monotonic()

    def readable(self, controls: list[Connection]) -> list[Any]:
        """The connections that have a message or were closed, after half a second at most.

        Raises WorkerFailed if a worker is stopped or if nobody has moved for too long.
        """
        ready = connections.wait(controls, _LOOK_SECONDS)
        if ready:
            self._moved = time.monotonic()
            return ready
        self._look_for_stopped()
        changes = self.board.changes()
        if changes != self._changes:
            self._changes, self._moved = changes, time.monotonic()
        elif time.monotonic() - self._moved > self.stall_seconds:
            raise self._stalled()
        return []

    def _look_for_stopped(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(psutil.Error):
                pid = worker.process.pid
                stopped = psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
                self._stopped[pid] = self._stopped.get(pid, 0) + 1 if stopped else 0
                if self._stopped[pid] >= _STOPPED_LOOKS:
                    rank = worker.ranks[0]
                    where = self._where(worker)
                    raise WorkerFailed(rank, where, "was stopped (SIGSTOP)", self._stacks(worker))

    def _stalled(self) -> WorkerFailed:
        places = "; ".join(f"rank {r}: {self.board.where(r)}" for w in self.workers for r in w.ranks)
        # Who waits for the others is where it should be: the one that does not is the suspect.
        waiting = ("wait", "exchange")
        suspects = [w for w in self.workers if any(self.board.phase(r) not in waiting for r in w.ranks)]
        worker = (suspects or list(self.workers))[0]
        rank = next((r for r in worker.ranks if self.board.phase(r) not in waiting), worker.ranks[0])
        reason = f"has not moved for {self.stall_seconds:.0f} s; {places}"
        return WorkerFailed(rank, self.board.where(rank), reason, self._stacks(worker))

    def gone(self, worker: Worker) -> WorkerFailed:
        """The failure of a worker whose connection has closed."""
        where = self._where(worker)
        with contextlib.suppress(Exception):
            worker.process.wait(2)
        code = worker.process.returncode
        reason = f"left with exit code {code}"
        if code is None:
            reason = "left, and nobody saw how"
        elif code < 0:
            reason = f"was killed by {signal.Signals(-code).name}"
        return WorkerFailed(worker.ranks[0], where, reason, tail(worker.output))

    def raised(self, rank: int, follows: bool, error: str, text: str) -> WorkerFailed:
        """The failure of a rank that reported an exception."""
        return WorkerFailed(rank, self.board.where(rank), f"raised {error}", text, follows=follows)

    def _where(self, worker: Worker) -> str:
        if len(worker.ranks) == 1:
            return self.board.where(worker.ranks[0])
        return "; ".join(f"rank {rank}: {self.board.where(rank)}" for rank in worker.ranks)

    def _stacks(self, worker: Worker) -> str:
        """All Python stacks of a worker that can't answer: its signal handler writes them."""
        with contextlib.suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGUSR1)
            worker.process.send_signal(signal.SIGCONT)
            time.sleep(0.5)
        return tail(worker.output)


def tail(output: IO[bytes]) -> str:
    """The end of what a worker wrote."""
    size = output.seek(0, 2)
    output.seek(max(0, size - _OUTPUT_BYTES))
    return output.read().decode(errors="replace")
