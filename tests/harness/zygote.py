"""Workers that are forked from a process which has imported torch already, in place of new Python processes.

A start then takes a tenth of a second of CPU time instead of two seconds for each worker. Only tests do this: forked
workers share pages, which would flatter the memory that the library measures. Tests that are about the start itself,
about what it costs or about the processes around it are marked `true_start`.

There is one zygote for each set of variables that are read when a library is loaded, such as the number of threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from harness.zygote_process import LENGTH, NUMBER
from lockstep.engine.launch import team, worker_process
from lockstep.engine.launch.environment import PROFILES, python_path, worker_environment
from lockstep.engine.launch.mpi import engines
from lockstep.engine.launch.mpi import team as mpi_team
from lockstep.engine.launch.mpi.engines import EnginesTeam
from lockstep.engine.launch.mpi.team import MpiTeam
from lockstep.engine.launch.rank_parent import rank_parent_command
from lockstep.engine.launch.rendezvous import Rendezvous

_HERE = Path(__file__).resolve().parent
_READ_EARLY = ("OMP_", "MKL_", "KMP_", "OPENBLAS_", "MALLOC_", "LD_", "GLIBC_", "ATEN_", "TORCH_", "PYTHONHASHSEED")
_READ_EARLY += tuple({name for profile in PROFILES.values() for name in profile})
_TRUE_START, _TRUE_RANKS = team._START, (mpi_team._RANK, engines._ENGINE)


class ForkedProcess:
    """A worker that a zygote has forked: what `subprocess.Popen` is to a team."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        (self.pid,) = NUMBER.unpack(_exactly(connection, NUMBER.size))
        self.returncode: int | None = None
        self._handle: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it may have ended by now
            self._handle = os.pidfd_open(self.pid)

    def send_signal(self, sig: int, /) -> None:
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int | None:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            (self.returncode,) = NUMBER.unpack(_exactly(self._connection, NUMBER.size))
            self._connection.close()
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None
        return self.returncode


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := connection.recv(count - len(found))):
            raise RuntimeError("the zygote has ended; its output says why")
        found += more
    return found


class Zygotes:
    """All zygotes of a session, each started when it is first needed."""

    def __init__(self) -> None:
        self.wanted = True  # Does the test that runs now take forked workers?
        self._forked: list[ForkedProcess] = []
        self._starting = threading.Lock()  # a study starts a team from each of several threads
        self._folder = tempfile.mkdtemp(prefix="zygotes-", dir="/tmp")  # a short path, for sockets
        self._processes: dict[tuple[tuple[str, str], ...], tuple[subprocess.Popen[bytes], str]] = {}

    @property
    def pids(self) -> set[int]:
        return {process.pid for process, _ in self._processes.values()}

    def socket_of(self, environment: Mapping[str, str]) -> str:
        """Where the zygote listens whose libraries were loaded with these variables."""
        early = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(_READ_EARLY)))
        with self._starting:
            if early not in self._processes or self._processes[early][0].poll() is not None:
                self._processes[early] = self._start(environment, len(self._processes))
            return self._processes[early][1]

    def _start(self, environment: Mapping[str, str], number: int) -> tuple[subprocess.Popen[bytes], str]:
        path = os.path.join(self._folder, str(number))
        with open(f"{path}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(_HERE / "zygote_process.py"), path],
                env={k: v for k, v in environment.items() if k != "TMPDIR"} | {"PYTHONPATH": python_path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"a zygote did not start: {Path(f'{path}.log').read_text()}")
        return process, path

    def start_python(
        self,
        code: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        handles: Sequence[int],
        output: IO[bytes],
    ) -> worker_process.Process:
        """In place of `worker_process.start_python`."""
        if not self.wanted or code != _TRUE_START:
            return worker_process.start_python(code, arguments, environment, handles, output)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.socket_of(environment))
        words = ["PARENT" if word == str(os.getpid()) else word for word in arguments]
        request = {"code": code, "arguments": words, "environment": dict(environment), "folder": os.getcwd()}
        body = json.dumps(request | {"numbers": [0, 1, 2, *handles]}).encode()
        with open(os.devnull, "rb") as nothing:
            passed = [nothing.fileno(), output.fileno(), output.fileno(), *handles]
            socket.send_fds(connection, [LENGTH.pack(len(body))], passed)
        connection.sendall(body)
        worker = ForkedProcess(connection)
        # A team that forgets a worker must not end it thereby: tests look for such workers.
        self._forked = [each for each in self._forked if each.returncode is None] + [worker]
        return worker

    def commands(self, this: MpiTeam, rendezvous: Rendezvous) -> dict[str, list[str]]:
        """In place of `MpiTeam._commands`: the parent of each rank, and the rank, become a client of a zygote."""
        found = _true_commands[type(this)](this, rendezvous)
        if not self.wanted or (mpi_team._RANK, engines._ENGINE) != _TRUE_RANKS:
            return found
        parent = rank_parent_command(rendezvous.exit_reports_path)
        at = found["mpiexec"].index(parent[-1]) - len(parent) + 1
        zygote = self.socket_of(worker_environment(this.environment, this.threads_per_worker))
        client = [sys.executable, "-I", "-S", str(_HERE / "rank_client.py"), parent[-1], zygote]
        found["mpiexec"][at : at + len(parent)] = client
        return found

    def stop(self) -> None:
        for process, _ in self._processes.values():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        for path in Path(self._folder).iterdir():
            path.unlink()
        os.rmdir(self._folder)


# Ranks on emulated hosts always start anew: a zygote is on none of them.
_true_commands = {kind: kind._commands for kind in (MpiTeam, EnginesTeam)}


def install(monkeypatch: pytest.MonkeyPatch) -> Zygotes:
    """From now on teams of this process have forked workers."""
    zygotes = Zygotes()
    monkeypatch.setattr(team, "start_python", zygotes.start_python)
    for kind in _true_commands:
        monkeypatch.setattr(kind, "_commands", lambda this, rendezvous: zygotes.commands(this, rendezvous))
    # Engines are registered with the controller's next heartbeat but one; nothing here measures what more of them cost.
    often = ["--HeartMonitor.period=100", "--HeartMonitor.max_heartmonitor_misses=1200"]
    monkeypatch.setattr(engines, "_HEARTBEAT", often)
    return zygotes
