"""Where processes that others start (mpiexec, ipyparallel) meet their launcher: a socket in a private folder.

    launcher                                     process of one rank or more, started by another program
    listens at <folder>/s
                         <--- connects ---       the kernel reports its process id
    --- board, output (descriptors), settings -->
                         <--- ready, number, count ---      MPI's own rank and size: those of the processes

The folder belongs to the launcher alone, and is removed with the job.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from lockstep.engine.files import ScratchFolder

TEAM_FOLDER = "lockstep-team-"
_LONGEST_BASE = 70  # of a socket's path, names in it included, the system allows 108 bytes
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class RankSettings:
    """What the launcher first sends to every process."""

    ranks_by_process: list[list[int]]  # in order of MPI's own ranks
    cores: list[list[int]]  # of each rank
    threads_per_worker: int
    hosts: list[str]  # the emulated host of each process; empty: the machine's own name
    path: list[str]  # sys.path


class Rendezvous:
    """The launcher's side, which exists as long as the job."""

    def __init__(self) -> None:
        base = tempfile.gettempdir()
        self._scratch = ScratchFolder(TEAM_FOLDER, base if len(base) < _LONGEST_BASE else "/tmp")
        self.folder = str(self._scratch.path)
        self.path = os.path.join(self.folder, "s")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(self.path)
        self.socket.listen(512)
        self.exit_reports_path = os.path.join(self.folder, "e")
        self._exit_reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._exit_reports.bind(self.exit_reports_path)

    def accept(self, settings: RankSettings, handles: list[int]) -> tuple[int, Connection]:
        """(process id, control connection) of the next process, which gets `settings` and descriptors `handles`."""
        peer, _ = self.socket.accept()
        pid, _, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        socket.send_fds(peer, [b"x"], handles)
        control = Connection(peer.detach())
        control.send(settings)
        return pid, control

    def first_exit(self, seconds: float) -> tuple[int, int] | None:
        """(process id, exit code or minus the signal) of the process that ended first; None if none has.

        `seconds`: how long to wait for it. The parents of the ranks report it (see `rank_parent`).
        """
        if not select.select([self._exit_reports], [], [], seconds)[0]:
            return None
        pid, code = self._exit_reports.recv(64).split()
        return int(pid), int(code)

    def close(self) -> None:
        self.socket.close()
        self._exit_reports.close()
        self._scratch.close()


def meet_launcher(path: str) -> tuple[Connection, RankSettings, int, int]:
    """The process's side: control connection, settings, and descriptors of board and output."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(path)
    _, handles, _, _ = socket.recv_fds(peer, 1, 2)
    control = Connection(peer.detach())
    settings: Any = control.recv()
    return control, settings, handles[0], handles[1]
