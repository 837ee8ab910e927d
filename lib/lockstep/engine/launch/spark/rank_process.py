"""What runs in a task of Spark's barrier stage: `begin` under torchrun, and the rank's own process, `main`.

    executor (JVM) --- Python worker --- torchrun --- begin --- main: the rank
                                                                  |
                                        launcher --- control -----+      commands, results, tracebacks

`begin` starts a new process for the rank, because an environment profile must be set before a process begins. A rank
ends with its launcher's connection, and with its executor: each process above it ends with the one above that.
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
from typing import TYPE_CHECKING, Any

from lockstep.engine.cores import cores_of_rank, pin, usable_cores
from lockstep.engine.launch.spark.tcp_rendezvous import Hello, SparkSettings

if TYPE_CHECKING:  # it needs torch, which would be imported in each of the processes above the rank, too
    from lockstep.engine.groups.board import Board

_VARIABLE = "LOCKSTEP_SPARK_RANK"
_MAIN = "from lockstep.engine.launch.spark.rank_process import main; main()"
_PULSE_SECONDS = 0.5


def begin(settings: dict[str, Any]) -> str:
    """Run the rank to its end: what TorchDistributor calls. `settings`: address, key, environment, threads, path.

    Raises RuntimeError if the rank was killed or left.
    """
    from lockstep.engine.launch.environment import worker_environment
    from lockstep.engine.launch.worker import die_with_parent

    die_with_parent(os.getppid())  # torchrun, which is killed with its own parent and then ends nobody
    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    environment = worker_environment(settings["environment"], settings["threads"])
    environment[_VARIABLE] = json.dumps(settings)
    if chosen is None:  # The rank chooses the interface that reaches its launcher, not the loopback.
        del environment["GLOO_SOCKET_IFNAME"]
    if settings["path"]:
        environment["PYTHONPATH"] = settings["path"]
    process = subprocess.Popen([sys.executable, "-c", _MAIN], env=environment, stdin=subprocess.DEVNULL)
    if code := process.wait():
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        raise RuntimeError(f"lockstep: rank {os.environ['RANK']} {how}")
    return "done"


def main() -> None:
    """Serve until the launcher says stop or has gone."""
    from lockstep.engine.launch.worker import die_with_parent, redirect_output, reporter, serve_call

    die_with_parent(os.getppid())
    settings = json.loads(os.environ.pop(_VARIABLE))
    control = Client((settings["address"][0], settings["address"][1]), authkey=bytes.fromhex(settings["key"]))
    with tempfile.TemporaryFile() as output:
        redirect_output(output.fileno())
    report = reporter(control)
    rank = _start_rank(control, bytes.fromhex(settings["key"]), report)
    if rank is not None:
        with contextlib.suppress(EOFError, OSError):
            while (message := control.recv()) is not None:
                serve_call([rank], message, report)
    os._exit(0)  # without waiting for a rank that may be stuck


def _start_rank(control: Connection, key: bytes, report: Any) -> Any:
    """This process's rank, after a test that it reaches the others; None, after reporting why, if that fails."""
    try:
        from lockstep.engine.groups.board import Board
        from lockstep.engine.groups.tcp import TcpGroup, connect_all
        from lockstep.engine.launch.worker import Rank, check_sum

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
        shared = settings.board
        board = Board(os.open(shared, os.O_RDWR), size) if shared else Board.create(size)
        with listening:
            peers = connect_all(number, settings.addresses, listening, key)
        group = TcpGroup(number, settings.hosts, peers, board)
        check_sum(group)
        pulse = BoardSender(number, board, report)
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
    """Make gloo use the network that reaches the launcher, unless the environment names another one."""
    import psutil

    if "GLOO_SOCKET_IFNAME" not in os.environ:
        for name, addresses in psutil.net_if_addrs().items():
            if any(each.address == address for each in addresses):
                os.environ["GLOO_SOCKET_IFNAME"] = name


def _cores_here(number: int, settings: SparkSettings) -> list[int]:
    """Cores of its host for this rank: the ranks before it on that host have others."""
    index = settings.hosts[:number].count(settings.hosts[number])
    return cores_of_rank(index, settings.threads_per_worker, usable_cores())


class BoardSender:
    """Sends the board's line of this rank to a launcher that cannot see it: after changes, and before a failure."""

    def __init__(self, number: int, board: Board, report: Any) -> None:
        self.number, self.board, self._report = number, board, report

    def start(self) -> None:
        threading.Thread(target=self._run, name="lockstep-pulse", daemon=True).start()

    def report(self, message: tuple[Any, ...]) -> None:
        if message[0] == "error":
            self._send()  # where it failed
        self._report(message)

    def _send(self) -> None:
        self._report(("pulse", None, self.number, self.board.phase(self.number), self.board.step(self.number)))

    def _run(self) -> None:
        before = self.board.changes()
        while True:
            time.sleep(_PULSE_SECONDS)
            if (now := self.board.changes()) != before:
                self._send()
                before = now
