"""What runs in an ipyparallel engine that is an MPI rank: `main`, then by apply `join_launcher` once, and `call`.

main thread    ipyparallel's: receives calls and waits for them to end
rank thread    the rank itself, the same as under plain mpiexec
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import time
from typing import Any

from lockstep.engine.launch.mpi.rank_process import start_ranks
from lockstep.engine.launch.rendezvous import meet_launcher
from lockstep.engine.launch.worker import Rank, die_with_parent, redirect_output, reporter, serve_call


class RankFailed(RuntimeError):
    """What ended a call on this engine; the launcher has received the details already."""


_state: dict[str, Any] = {}  # rank, report, ended, control: an engine is one rank


def main() -> None:
    """Start an engine: `main()` with the arguments of ipengine, `--file=...` among them.

    It loads torch while the controller starts, and reads the connection file once that is complete.
    """
    from lockstep.engine.groups.library import start_mpi

    start_mpi()
    (file,) = (argument.partition("=")[2] for argument in sys.argv if argument.startswith("--file="))
    while not is_complete(file):
        time.sleep(0.05)
    from ipyparallel.engine.app import main as engine

    engine()


def is_complete(file: str) -> bool:
    """Does `file` exist, with all of its JSON? The controller writes it in place."""
    with contextlib.suppress(OSError, ValueError), open(file) as stream:
        json.load(stream)
        return True
    return False


def join_launcher(path: str, engine_id: int) -> int:
    """Become the rank of this engine for the launcher that listens at `path`. Collective over all engines."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.size > 1 and MPI.COMM_WORLD.rank != engine_id:
        raise RankFailed(f"engine {engine_id} is MPI rank {MPI.COMM_WORLD.rank}: names would not fit")
    die_with_parent(os.getppid())
    control, settings, board, output = meet_launcher(path)
    redirect_output(output)
    send = reporter(control)
    ended: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def report(message: tuple[Any, ...]) -> None:
        send(message)
        if message[0] in ("result", "error"):
            ended.put(message)

    ranks = start_ranks(settings, board, report)
    _state.update(rank=ranks[0] if ranks else None, report=report, ended=ended, control=control)
    return engine_id


def call(number: int, payload: bytes) -> int:
    """Run a call of the team on this engine's rank, to its end. Raises RankFailed if it failed."""
    rank: Rank = _state["rank"]
    serve_call([rank], (number, payload), _state["report"])
    while (message := _state["ended"].get())[1] != number:
        pass  # It belongs to a call that was given up.
    if message[0] == "error":
        raise RankFailed(message[4])
    return number
