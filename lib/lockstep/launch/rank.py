"""What runs in a process that MPI started: `main()`, told where its launcher listens.

main thread    reads commands; idle ranks sleep there, not in MPI; when the launcher is gone, so is this process
rank threads   the ranks themselves (see `worker.Rank`): one, or with host_workers='threads' all of this host; they
               alone wait in MPI, so that the main thread always answers
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from lockstep.launch.rendezvous import RankSettings, join
from lockstep.launch.worker import Rank, die_with, pin, serve_call

Report = Any


def main() -> None:
    """Serve until the launcher says stop or is gone."""
    die_with(os.getppid())
    control, settings, board, output = join(sys.argv[1])
    redirect(output)
    report = reporter(control)
    ranks = enter_all(settings, board, report)
    # One that can't serve waits too: an end before the others have come would be taken for a lost process.
    with contextlib.suppress(EOFError, OSError):
        while (message := control.recv()) is not None:
            serve_call(ranks, message, report)
    # Without MPI_Finalize, which waits for all: nothing that has a name is left to be finalised.
    os._exit(0)


def redirect(output: int) -> None:
    """What this process writes from now on goes to its own unnamed file, and so do its stacks on SIGUSR1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    for stream in (1, 2):
        os.dup2(output, stream)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def reporter(control: Connection) -> Report:
    """`report(message)`, from any thread; quiet when the launcher has gone."""
    sending = threading.Lock()

    def report(message: tuple[Any, ...]) -> None:
        with sending, contextlib.suppress(OSError):
            control.send(message)

    return report


def check_sum(group: Any) -> None:
    """Do the ranks really reach each other? Collective. Raises GroupError."""
    import torch

    from lockstep.groups import GroupError

    total = torch.tensor([float(group.rank + 1)])
    group.allreduce(total)
    if float(total) != group.size * (group.size + 1) / 2:
        raise GroupError(f"the sum over {group.size} ranks is {float(total)}: this MPI job does not work")


def enter(settings: RankSettings, board: int, report: Report) -> Rank | None:
    """`enter_all` for a process of one rank."""
    ranks = enter_all(settings, board, report)
    return ranks[0] if ranks else None


def enter_all(settings: RankSettings, board: int, report: Report) -> list[Rank]:
    """Start MPI and this process's ranks, and say so. Empty, after saying why, if it can't."""
    sys.path[:] = settings.path
    try:
        from lockstep.groups.library import MPI, start

        start()
        number, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        if size != len(settings.seats):  # the launcher says what that means, once all have come
            report(("ready", number, size))
            return []
        seats = settings.seats[number]
        pin(sorted({core for rank in seats for core in settings.cores[rank]}))
        groups = make_groups(settings, board, number)
        ranks = [Rank(group, settings.cores[group.rank], settings.threads_per_worker, report) for group in groups]
    except BaseException:
        report(("unready", traceback.format_exc()))
        return []
    report(("ready", number, size))
    return ranks


def make_groups(settings: RankSettings, board: int, number: int) -> list[Any]:
    """The groups of process `number`'s ranks, tried out. Collective. Raises GroupError."""
    from lockstep.groups.board import Board
    from lockstep.groups.hybrid import HybridGroup, check_lanes
    from lockstep.groups.mpi import MpiGroup

    lines = Board(board, len(settings.cores))
    world = MpiGroup.world(lines, settings.hosts[number] if settings.hosts else None)
    if len(settings.seats) == len(settings.cores):
        check_sum(world)
        return [world]
    groups = HybridGroup.of(world, len(settings.seats[number]), lines)
    check_lanes(groups, check_sum)
    return list(groups)
