"""What runs in a task of Spark's barrier stage: `begin` under torchrun, and the rank's own process, `main`.

    executor (JVM) --- Python worker --- torchrun --- begin --- main: the rank
                                                                  |
                                        launcher --- control -----+      commands, results, tracebacks

`begin` starts the rank anew, because an environment profile must stand before a process begins. A rank ends with its
launcher's connection, and with its executor: each process above ends with the one above it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.connection import Client, Connection
from typing import Any

from lockstep.groups.board import Board
from lockstep.launch.spark.reception import Hello, SparkSettings

_VARIABLE = "LOCKSTEP_SPARK_RANK"
_MAIN = "from lockstep.launch.spark.rank import main; main()"
_PULSE_SECONDS = 0.5


def begin(told: dict[str, Any]) -> str:
    """Run the rank to its end: what TorchDistributor calls. `told`: address, key, environment, threads, path.

    Raises RuntimeError if the rank was killed or left.
    """
    from lockstep.launch.environment import worker_environment

    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    environment = worker_environment(told["environment"], told["threads"]) | {_VARIABLE: json.dumps(told)}
    if chosen is None:  # not the loopback: the rank takes the interface that reaches its launcher
        del environment["GLOO_SOCKET_IFNAME"]
    if told["path"]:
        environment["PYTHONPATH"] = told["path"]
    process = subprocess.Popen([sys.executable, "-c", _MAIN], env=environment, stdin=subprocess.DEVNULL)
    if code := process.wait():
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        raise RuntimeError(f"lockstep: rank {os.environ['RANK']} {how}")
    return "done"


def main() -> None:
    """Serve until the launcher says stop or is gone."""
    from lockstep.launch.rank import redirect, reporter
    from lockstep.launch.worker import die_with, serve_call

    die_with(os.getppid())
    told = json.loads(os.environ.pop(_VARIABLE))
    control = Client((told["address"][0], told["address"][1]), authkey=bytes.fromhex(told["key"]))
    with tempfile.TemporaryFile() as output:
        redirect(output.fileno())
    report = reporter(control)
    rank = _enter(control, bytes.fromhex(told["key"]), report)
    if rank is not None:
        with contextlib.suppress(EOFError, OSError):
            while (message := control.recv()) is not None:
                serve_call([rank], message, report)
    os._exit(0)  # without waiting for a rank that may be stuck


def _enter(control: Connection, key: bytes, report: Any) -> Any:
    """This process's rank, which works with the others; None, after saying why, if it can't."""
    try:
        from lockstep.groups.tcp import TcpGroup, connect_all
        from lockstep.launch.rank import check_sum
        from lockstep.launch.worker import Rank, pin

        here = _address_towards(control)
        listening = socket.create_server((here, 0), backlog=512)
        number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        host = os.environ.get("LOCKSTEP_HOST") or socket.gethostname()
        control.send(Hello(number, size, host, os.getpid(), listening.getsockname()[:2]))
        settings: SparkSettings = control.recv()
        sys.path[:] = settings.path or sys.path
        _use_interface(here)
        cores = settings.cores or _cores_here(number, settings)
        pin(cores)
        board = _board(settings)
        with listening:
            peers = connect_all(number, settings.addresses, listening, key)
        group = TcpGroup(number, settings.hosts, peers, board)
        check_sum(group)
        pulse = Pulse(number, board, report)
        rank = Rank(group, cores, settings.threads_per_worker, report if settings.board else pulse.report)
    except BaseException:
        report(("unready", traceback.format_exc()))
        return None
    report(("ready", number, size))
    if not settings.board:
        pulse.start()
    return rank


def _address_towards(control: Connection) -> str:
    """This host's address on the way to the launcher."""
    with socket.socket(fileno=os.dup(control.fileno())) as connected:
        return str(connected.getsockname()[0])


def _use_interface(address: str) -> None:
    """gloo is to use the network that reaches the launcher, unless the environment names another one."""
    import psutil

    if "GLOO_SOCKET_IFNAME" not in os.environ:
        for name, addresses in psutil.net_if_addrs().items():
            if any(each.address == address for each in addresses):
                os.environ["GLOO_SOCKET_IFNAME"] = name


def _cores_here(number: int, settings: SparkSettings) -> list[int]:
    """Cores for this rank among those of its host: the ranks before it there have others."""
    from lockstep.launch.base import cores_of, usable_cores

    place = settings.hosts[:number].count(settings.hosts[number])
    return cores_of(place, settings.threads_per_worker, usable_cores())


def _board(settings: SparkSettings) -> Board:
    if settings.board:
        return Board(os.open(settings.board, os.O_RDWR), len(settings.hosts))
    return Board.create(len(settings.hosts))


class Pulse:
    """Tells a launcher that can't see this rank's board what it shows: when that has changed, and before a failure."""

    def __init__(self, number: int, board: Board, report: Any) -> None:
        self.number, self.board, self._report = number, board, report

    def start(self) -> None:
        threading.Thread(target=self._beat, name="lockstep-pulse", daemon=True).start()

    def report(self, message: tuple[Any, ...]) -> None:
        if message[0] == "error":
            self._tell()  # where it failed
        self._report(message)

    def _tell(self) -> None:
        self._report(("pulse", None, self.number, self.board.phase(self.number), self.board.step(self.number)))

    def _beat(self) -> None:
        before = self.board.changes()
        while True:
            time.sleep(_PULSE_SECONDS)
            if (now := self.board.changes()) != before:
                self._tell()
                before = now
