"""A thread of every rank that ends an MPI job which nobody else watches: a cluster's, started by plain mpiexec or srun.

    every half second, over the ranks of this node:   is one stopped?    has any of them entered another phase?
    if so, or if none has for `stall_seconds`:         say which rank and where, dump the stacks, end the job

It is a thread, not a signal handler: those do not run while a rank waits inside a library.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

import psutil

from lockstep.groups.board import Board

_LOOK_SECONDS = 0.5
_STOPPED_LOOKS = 2


class Watchdog:
    """Watches `ranks` (rank: process id) of this node on `board`; calls `end(message)` once something is wrong."""

    def __init__(self, board: Board, ranks: dict[int, int], stall_seconds: float, end: Callable[[str], None]) -> None:
        self._board, self._ranks, self._stall_seconds, self._end = board, ranks, stall_seconds, end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lockstep-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        stopped = dict.fromkeys(self._ranks, 0)
        changes, moved = self._board.changes(), time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            for rank, pid in self._ranks.items():
                stopped[rank] = stopped[rank] + 1 if _is_stopped(pid) else 0
                if stopped[rank] >= _STOPPED_LOOKS:
                    self._bark(f"rank {rank} was stopped (SIGSTOP) ({self._board.where(rank)})")
                    return
            if self._board.changes() != changes:
                changes, moved = self._board.changes(), time.monotonic()
            elif time.monotonic() - moved > self._stall_seconds:
                places = "; ".join(f"rank {rank}: {self._board.where(rank)}" for rank in self._ranks)
                self._bark(f"no rank of this node has moved for {self._stall_seconds:.0f} s; {places}")
                return

    def _bark(self, message: str) -> None:
        print(f"lockstep: {message}; stacks of process {os.getpid()}:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(file=2, all_threads=True)
        self._end(message)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False
