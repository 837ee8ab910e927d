"""What a run may not leave: processes, listening ports, shared memory, networks and temporary files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from listening import Listening, sockets_of
from lockstep.engine.launch.supervisor import _names_in_use
from mpi_files import left_since, library_files
from processes import command
from soak import roles

END_SECONDS = 15.0  # for what ends by itself, on a busy machine
RUN_FOLDER = "lockstep-run-"
_OURS = ("psm_", "torch_", "lockstep", "sem.mp-")


@dataclass
class Before:
    """What there was before a run, and what was seen of it while it ran."""

    memory: set[str] = field(default_factory=lambda: _shared_memory())
    library: set[str] = field(default_factory=library_files)
    networks: tuple[str, ...] = field(default_factory=lambda: networks())
    ports: set[Listening] = field(default_factory=set)

    def look(self, pids: list[int]) -> None:
        """Note where these processes listen."""
        self.ports |= set(sockets_of(pids))

    def left(self, token: str, temporary: Path, killed: bool, old: set[str]) -> list[str]:
        """What is still there, in words. `killed`: the runner was, whose folder goes when the next run starts; `old`:
        what was in the temporary folder before, of a run that was killed, if this one may not have come so far."""
        found: list[str] = []
        _settled(lambda: not roles.of_run(token))
        for process in roles.of_run(token).values():
            found.append(f"process {process.pid} ({process.status()}): {command(process)[:120]}")
        _settled(lambda: not self._memory() and self._ports_left() == set())
        found += [f"shared memory {name}" for name in sorted(self._memory())]
        found += [f"port {one.port} of {one.program}" for one in sorted(self._ports_left())]
        found += [f"file of MPI {name}" for name in sorted(left_since(self.library))]
        found += [f"network {name}" for name in sorted(set(networks()) - set(self.networks))]
        names = {name for name in os.listdir(temporary) if not (killed and name.startswith(RUN_FOLDER))}
        names -= {name for name in old if name.startswith(RUN_FOLDER)}
        return found + [f"temporary file {name}" for name in sorted(names)]

    def _memory(self) -> set[str]:
        new = _shared_memory() - self.memory
        return new - _names_in_use() if new else new

    def _ports_left(self) -> set[Listening]:
        if not self.ports:
            return set()
        connections = [one for one in psutil.net_connections("inet") if one.status == psutil.CONN_LISTEN]
        listening = {(one.laddr.ip, one.laddr.port) for one in connections}
        return {one for one in self.ports if one.kind == "SOCK_STREAM" and (one.address, one.port) in listening}


def networks() -> tuple[str, ...]:
    """Interfaces and named networks of this machine."""
    named: list[str] = []
    with contextlib.suppress(OSError):
        named = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()
    return (*sorted(psutil.net_if_addrs()), *named)


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {name for name in os.listdir(folder) if name.startswith(_OURS)} if folder.is_dir() else set()


def _settled(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
