"""What runs in a worker process: `main`, whose arguments are a control file descriptor and the launcher's process id.

main thread   reads commands from the launcher; it ends the process when the launcher has gone
rank threads  one per rank of this process (one for `processes`, all of them for `threads`)
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from lockstep.engine.cores import pin
from lockstep.engine.thread_names import name_training_thread

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Settings:
    """What the launcher first sends to a worker process."""

    ranks: list[int]
    size: int
    cores: list[list[int]]  # of each rank here
    threads_per_worker: int
    board: int  # file descriptor
    peers: dict[int, int]  # other rank -> file descriptor of the socket to it
    path: list[str]  # sys.path


class Rank:
    """A rank's own thread. It lives as long as the process, so that what a call has warmed up stays warm."""

    def __init__(self, group: Any, cores: list[int], threads: int, report: Any) -> None:
        self.group, self.cores, self.threads, self.report = group, cores, threads, report
        self.calls: queue.SimpleQueue[tuple[int, Any, tuple[Any, ...]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=f"lockstep-rank-{group.rank}", daemon=True).start()

    def _serve(self) -> None:
        name_training_thread("rank")  # before torch starts threads of its own
        import torch

        from lockstep.engine.groups.memory import release_memory

        pin(self.cores)
        torch.set_num_threads(self.threads)
        # Per thread: denormal gradients slow a convolution's backward pass 100-fold.
        torch.set_flush_denormal(True)
        while True:
            call, function, arguments = self.calls.get()
            self._call(call, function, arguments)
            del function, arguments
            release_memory()

    def _call(self, call: int, function: Any, arguments: tuple[Any, ...]) -> None:
        import cloudpickle

        from lockstep.engine.groups import GroupAborted

        rank = self.group.rank
        self.group.at_step(0)  # of this call: a warm rank's last one ended at its last step
        self.group.enter("start")
        try:
            result = cloudpickle.dumps(function(self.group, *arguments))
        except BaseException as error:  # SystemExit too: a rank that leaves is a failure of the team
            follows = isinstance(error, GroupAborted)
            text = traceback.format_exc()
            self.report(("error", call, rank, follows, f"{type(error).__name__}: {error}", text))
            if not follows:
                with contextlib.suppress(Exception):
                    self.group.abort(f"rank {rank} failed: {type(error).__name__}: {error}")
        else:
            self.report(("result", call, rank, result))


def die_with_parent(parent: int) -> None:
    """Be killed when process `parent` dies, even while this process is stopped (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Serve until the launcher says stop or has gone."""
    die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    control = Connection(int(sys.argv[1]))
    settings: Settings = control.recv()
    sys.path[:] = settings.path
    pin(sorted({core for cores in settings.cores for core in cores}))
    report = reporter(control)
    ranks = [
        Rank(group, cores, settings.threads_per_worker, report)
        for group, cores in zip(make_groups(settings), settings.cores, strict=True)
    ]
    report(("ready",))
    with contextlib.suppress(EOFError, OSError):
        while (message := control.recv()) is not None:
            serve_call(ranks, message, report)
            del message  # its bytes are unpacked: a reader's arrays would stand twice as long as the call lasts
    os._exit(0)  # without waiting for a rank that may be stuck


def reporter(control: Connection) -> Any:
    """A function `report(message)` for any thread, which does nothing when the launcher has gone."""
    sending = threading.Lock()

    def report(message: tuple[Any, ...]) -> None:
        with sending, contextlib.suppress(OSError):
            control.send(message)

    return report


def redirect_output(output: int) -> None:
    """From now on this process writes to descriptor `output`, also its stacks when it receives SIGUSR1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    for stream in (1, 2):
        os.dup2(output, stream)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def serve_call(ranks: list[Rank], message: tuple[int, bytes], report: Any) -> None:
    """Start a call on every rank of this process; a call that cannot be unpacked is an error of every rank."""
    import cloudpickle

    call, payload = message
    for rank in ranks:
        try:
            function, arguments = cloudpickle.loads(payload)  # each rank its own copy
        except Exception as error:
            report(("error", call, rank.group.rank, False, f"{type(error).__name__}: {error}", traceback.format_exc()))
            continue
        rank.calls.put((call, function, arguments))


def make_groups(settings: Settings) -> list[Any]:
    from lockstep.engine.groups.board import Board
    from lockstep.engine.groups.processes import ProcessGroup
    from lockstep.engine.groups.threads import ThreadGroup

    board = Board(settings.board, settings.size)
    if len(settings.ranks) == settings.size:
        return list(ThreadGroup.of(settings.size, board))
    sockets = {other: socket.socket(fileno=handle) for other, handle in settings.peers.items()}
    return [ProcessGroup(settings.ranks[0], settings.size, sockets, board)]


def check_sum(group: Any) -> None:
    """Checks that the ranks of `group` reach each other. Collective. Raises GroupError if they do not."""
    import torch

    from lockstep.engine.groups import GroupError

    total = torch.tensor([float(group.rank + 1)])
    group.allreduce(total)
    if float(total) != group.size * (group.size + 1) / 2:
        raise GroupError(f"the sum over {group.size} ranks is {float(total)}: this MPI job does not work")
