"""How processes that others start (mpiexec, ipyparallel) meet their launcher: at a socket in a private folder.

    launcher                                     process of one rank or more, started by whomever
    listens at <folder>/s
                         <--- connects ---       the kernel tells its process id
    --- board, output (descriptors), settings -->
                         <--- ready, number, count ---      MPI's own rank and size: those of the processes

The folder is the launcher's alone, and goes with the job.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

_LONGEST_PATH = 90  # of a socket: the system allows 108 bytes
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class RankSettings:
    """What the launcher tells every process first."""

    seats: list[list[int]]  # the ranks of each process, in order of MPI's own ranks
    cores: list[list[int]]  # of each rank
    threads_per_worker: int
    hosts: list[str]  # the emulated host of each process; empty: the machine's own name
    path: list[str]  # sys.path


class Meeting:
    """The launcher's side, as long as the job lives."""

    def __init__(self) -> None:
        base = tempfile.gettempdir()
        self.folder = tempfile.mkdtemp(prefix="lockstep-", dir=base if len(base) < _LONGEST_PATH else "/tmp")
        self.path = os.path.join(self.folder, "s")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(self.path)
        self.socket.listen(512)
        self.ends_path = os.path.join(self.folder, "e")
        self._ends = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ends.bind(self.ends_path)

    def accept(self, settings: RankSettings, handles: list[int]) -> tuple[int, Connection]:
        """(process id, control connection) of the next process, which gets `settings` and descriptors `handles`."""
        peer, _ = self.socket.accept()
        pid, _, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        socket.send_fds(peer, [b"x"], handles)
        control = Connection(peer.detach())
        control.send(settings)
        return pid, control

    def first_end(self, seconds: float) -> tuple[int, int] | None:
        """(process id, exit code or minus the signal) of who ended first; None if nobody did (see `seat`)."""
        if not select.select([self._ends], [], [], seconds)[0]:
            return None
        pid, code = self._ends.recv(64).split()
        return int(pid), int(code)

    def close(self) -> None:
        self.socket.close()
        self._ends.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def join(path: str) -> tuple[Connection, RankSettings, int, int]:
    """The process's side: control connection, settings, and descriptors of board and output."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(path)
    _, handles, _, _ = socket.recv_fds(peer, 1, 2)
    control = Connection(peer.detach())
    settings: Any = control.recv()
    return control, settings, handles[0], handles[1]


class Foreign:
    """A process that somebody else started, with what Popen offers of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  # as whoever started it says
        self._handle = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int | None:
        """Raises subprocess.TimeoutExpired."""
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Remote:
    """A process on another host, with what Popen offers as far as that goes: it ends when its connection closes."""

    pid = 0  # no process of this host
    returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """It can't be reached."""

    def kill(self) -> None:
        """The connection's end is its own."""

    def wait(self, timeout: float | None = None) -> int | None:
        return None

    def close(self) -> None:
        """Nothing is held."""
