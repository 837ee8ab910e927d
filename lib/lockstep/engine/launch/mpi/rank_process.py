"""What runs in a process that MPI started: `main`, whose argument is the socket of its launcher.

main thread    reads commands; idle ranks sleep there, not in MPI; it ends the process when the launcher has gone
rank threads   the ranks themselves (see `worker.Rank`): one, or with host_workers='threads' all of this host; they
               alone wait in MPI, so that the main thread always answers
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any

from lockstep.engine.cores import pin
from lockstep.engine.launch.rendezvous import RankSettings, meet_launcher
from lockstep.engine.launch.worker import Rank, check_sum, die_with_parent, redirect_output, reporter, serve_call


def main() -> None:
    """Serve until the launcher says stop or has gone."""
    die_with_parent(os.getppid())
    control, settings, board, output = meet_launcher(sys.argv[1])
    redirect_output(output)
    report = reporter(control)
    ranks = start_ranks(settings, board, report)
    # A process that cannot serve waits too: an end before the others have arrived would count as a lost process.
    with contextlib.suppress(EOFError, OSError):
        while (message := control.recv()) is not None:
            serve_call(ranks, message, report)
    # Without MPI_Finalize, which waits for all: nothing that has a name is left to be finalised.
    os._exit(0)


def start_ranks(settings: RankSettings, board: int, report: Any) -> list[Rank]:
    """Start MPI and the ranks of this process, and report it. Empty, after reporting why, if that fails."""
    sys.path[:] = settings.path
    try:
        from lockstep.engine.groups.library import MPI, start_mpi

        start_mpi()
        number, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        if size != len(settings.ranks_by_process):  # the launcher explains it, once all have arrived
            report(("ready", number, size))
            return []
        pin(sorted({core for rank in settings.ranks_by_process[number] for core in settings.cores[rank]}))
        groups = make_mpi_groups(settings, board, number)
        ranks = [Rank(group, settings.cores[group.rank], settings.threads_per_worker, report) for group in groups]
    except BaseException:
        report(("unready", traceback.format_exc()))
        return []
    report(("ready", number, size))
    return ranks


def make_mpi_groups(settings: RankSettings, board: int, number: int) -> list[Any]:
    """The groups of the ranks of process `number`, after a test that they work. Collective. Raises GroupError."""
    from lockstep.engine.groups.board import Board
    from lockstep.engine.groups.hybrid import HybridGroup, check_lanes
    from lockstep.engine.groups.mpi import MpiGroup

    lines = Board(board, len(settings.cores))
    world = MpiGroup.world(lines, settings.hosts[number] if settings.hosts else None)
    if len(settings.ranks_by_process) == len(settings.cores):
        check_sum(world)
        return [world]
    groups = HybridGroup.of(world, len(settings.ranks_by_process[number]), lines)
    check_lanes(groups, check_sum)
    return list(groups)
