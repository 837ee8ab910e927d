"""What runs in an ipyparallel engine that is an MPI rank: `join_launcher` once, then `call`. Both come by apply.

engine's main thread   ipyparallel's: takes calls, waits for them to end
rank thread            the rank itself, the same as under plain mpiexec
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import time
from typing import Any

from lockstep.launch.rank import enter, redirect, reporter
from lockstep.launch.rendezvous import join
from lockstep.launch.worker import Rank, die_with, serve_call


class RankFailed(RuntimeError):
    """What ended a call on this engine; the launcher has been told the details already."""


_here: dict[str, Any] = {}  # rank, report; an engine is one rank


def main() -> None:
    """Start an engine: `main()` with the arguments of ipengine, `--file=...` among them.

    torch is loaded meanwhile, and the connection file is read only when all of it is there.
    """
    import lockstep.groups.mpi  # slow to load, and the controller is starting meanwhile

    lockstep.groups.mpi.start()
    (file,) = (argument.partition("=")[2] for argument in sys.argv if argument.startswith("--file="))
    while not is_whole(file):
        time.sleep(0.05)
    from ipyparallel.engine.app import main as engine

    engine()


def is_whole(file: str) -> bool:
    """Is `file` there, and all of its JSON? The controller writes it in place."""
    with contextlib.suppress(OSError, ValueError), open(file) as stream:
        json.load(stream)
        return True
    return False


def join_launcher(path: str, engine_id: int) -> int:
    """Become the rank of this engine for the launcher that listens at `path`. Collective over all engines."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > 1 and MPI.COMM_WORLD.rank != engine_id:
        raise RankFailed(f"engine {engine_id} is MPI rank {MPI.COMM_WORLD.rank}: names would not fit")
    die_with(os.getppid())
    control, settings, board, output = join(path)
    redirect(output)
    tell = reporter(control)
    ended: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def report(message: tuple[Any, ...]) -> None:
        tell(message)
        if message[0] in ("result", "error"):
            ended.put(message)

    rank = enter(settings, board, report)
    _here.update(rank=rank, report=report, ended=ended, control=control)
    return engine_id


def call(number: int, payload: bytes) -> int:
    """Run a call of the team on this engine's rank, to its end. Raises RankFailed if it failed."""
    rank: Rank = _here["rank"]
    serve_call([rank], (number, payload), _here["report"])
    while (message := _here["ended"].get())[1] != number:
        pass  # of a call that was given up
    if message[0] == "error":
        raise RankFailed(message[4])
    return number
