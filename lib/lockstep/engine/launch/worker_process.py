"""Worker processes as their launcher sees them: its own children, processes that others started, remote ones."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Protocol


class Process(Protocol):
    """What a team needs of a worker's process. `subprocess.Popen` has it, and so have the classes below."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    def send_signal(self, sig: int, /) -> None: ...

    def wait(self, timeout: float | None = None) -> int | None: ...


@dataclass
class Worker:
    """A worker process, and what connects the launcher with it."""

    process: Process
    control: Connection
    ranks: list[int]
    output: IO[bytes]  # its stdout and stderr: a file without a name, which is read when it fails


def start_python(
    code: str, arguments: Sequence[str], environment: Mapping[str, str], handles: Sequence[int], output: IO[bytes]
) -> Process:
    """A new Python process that runs `code`; it inherits the descriptors `handles`, and writes to `output`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        pass_fds=handles,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


class ExternalProcess:
    """A process of this machine that another program started, held by a descriptor of the kernel's (pidfd)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None  # set by whoever learns it from the parent of the process
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


class RemoteProcess:
    """A process on another host. Its launcher cannot signal it; it ends when its connection closes."""

    pid = 0  # no process of this host has this number
    returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Does nothing: signals do not reach another host."""

    def kill(self) -> None:
        """Does nothing: the process ends when its connection closes."""

    def wait(self, timeout: float | None = None) -> int | None:
        return None

    def close(self) -> None:
        """Does nothing: no descriptor is held."""
