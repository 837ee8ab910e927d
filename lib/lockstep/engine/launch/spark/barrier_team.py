"""The team whose ranks are tasks of a barrier stage, started by TorchDistributor.

launcher --- supervisor --- driver --- TorchDistributor: barrier stage, a task per rank
    |                                      |
    +--- control: TCP ---------------------+ rank 0, rank 1 ...     (which also connect to each other)
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection as connections
import os
import re
import secrets
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockstep.engine.launch.environment import python_path
from lockstep.engine.launch.failure_detector import FailureDetector
from lockstep.engine.launch.failures import WorkerFailed, output_tail
from lockstep.engine.launch.spark.cluster import LOOPBACK
from lockstep.engine.launch.spark.tcp_rendezvous import Hello, SparkSettings, TcpRendezvous
from lockstep.engine.launch.spark.team import SparkApplicationTeam
from lockstep.engine.launch.supervised_team import START_SECONDS
from lockstep.engine.launch.worker_process import ExternalProcess, RemoteProcess, Worker

_END_SECONDS = 5.0  # for a driver to end by itself
_REPORT_SECONDS = 5.0  # for Spark to report what became of a task
_EXECUTOR_LOST = ("ExecutorLostFailure", "Lost executor")


class ExecutorLost(WorkerFailed):
    """An executor was lost, and with it a rank that had not failed itself."""


class SparkTeam(SparkApplicationTeam):
    """A rank per executor, in one barrier stage of TorchDistributor.

    A call that loses an executor is repeated once, with new ranks; after a second loss it fails.
    """

    # A retry by Spark itself would start ranks whose team has ended.
    more_conf: Mapping[str, str] = {"spark.stage.maxConsecutiveAttempts": "1"}
    executor_memory = driver_memory = "512m"  # driver and executors only start ranks

    def __init__(self, cores: list[list[int]], threads_per_worker: int, environment: str, master: str = "") -> None:
        super().__init__(cores, threads_per_worker, environment, len(cores), master)

    def call(self, function: Callable[..., Any], *arguments: Any, stall_seconds: float = 600) -> list[Any]:
        self.repeated = ""
        try:
            return super().call(function, *arguments, stall_seconds=stall_seconds)
        except ExecutorLost as lost:
            self.repeated = "begun again after an executor was lost, its resources not known"
            warnings.warn(f"rank {lost.rank} {lost.reason}: the barrier stage is started once more", stacklevel=2)
            return super().call(function, *arguments, stall_seconds=stall_seconds)

    def _open_rendezvous(self) -> TcpRendezvous:
        return TcpRendezvous(_own_address(self.master), secrets.token_bytes(32))

    def _commands(self, rendezvous: TcpRendezvous) -> dict[str, list[str]]:
        settings = {
            "address": rendezvous.address,
            "key": rendezvous.key.hex(),
            "environment": self.environment,
            "threads": self.threads_per_worker,
            "path": python_path() if self.local else "",
        }
        return self._driver(rendezvous.folder, {"mode": "ranks", "ranks": self.size, "settings": settings})

    def _wait_until_ready(self, rendezvous: TcpRendezvous, deadline: float) -> None:
        """Wait until all ranks have arrived, send each the addresses of all, and wait until they are ready."""
        arrived: dict[int, tuple[Any, Hello]] = {}
        try:
            while len(arrived) < self.size:
                control = rendezvous.next(0.2)
                if control is not None:
                    hello = self._receive_hello(control, deadline)
                    arrived[hello.rank] = (control, hello)
                self._still_starting(deadline, f"{len(arrived)} of {self.size} ranks have come")
            hellos = [arrived[rank][1] for rank in range(self.size)]
            for rank, (control, hello) in sorted(arrived.items()):
                self.workers.append(self._worker(rank, control, hello))
                control.send(self._settings(rank, hellos))
            waiting: dict[Any, Worker] = {worker.control: worker for worker in self.workers}
            while waiting:  # in the order of their reports: a rank that has failed may keep the others waiting
                for found in connections.wait(list(waiting), 0.2):
                    self._receive_ready(waiting.pop(found), {})
                self._still_starting(deadline, "ranks have come, but not all can work together")
        except BaseException:
            for control, _ in arrived.values():
                if not any(worker.control is control for worker in self.workers):
                    control.close()
            raise

    def _receive_hello(self, control: Any, deadline: float) -> Hello:
        """Which rank has arrived. Raises WorkerFailed for a rank that cannot take part."""
        try:
            while not control.poll(0.2):
                self._still_starting(deadline, "a rank has come and says nothing")
            message = control.recv()
        except (EOFError, OSError):
            control.close()
            raise self._start_failure("lost a rank that had just come", {}) from None
        if isinstance(message, Hello) and message.size == self.size:
            return message
        control.close()
        if isinstance(message, Hello):
            raise self._start_failure(f"started {message.size} ranks instead of {self.size}", {})
        raise WorkerFailed(-1, "start", "could not start: a rank failed before it was ready", message[1])

    def _worker(self, rank: int, control: Any, hello: Hello) -> Worker:
        if not _is_here(hello):
            return Worker(RemoteProcess(), control, [rank], tempfile.TemporaryFile())
        try:
            # A file of its own without a name, which stays readable when the process has ended.
            output = open(f"/proc/{hello.pid}/fd/1", "rb")  # noqa: SIM115 - closed with the worker
            return Worker(ExternalProcess(hello.pid), control, [rank], output)
        except OSError:
            raise self._start_failure(f"lost rank {rank} before it was ready", {}) from None

    def _still_starting(self, deadline: float, what: str) -> None:
        assert self._supervisor is not None
        self._check()
        if self._supervisor.ended():
            raise self._start_failure(f"ended: {what}", {})
        if time.monotonic() > deadline:
            raise self._start_failure(f"is too slow: {what} after {START_SECONDS:.0f} s", {})

    def _settings(self, rank: int, hellos: list[Hello]) -> SparkSettings:
        assert self.board is not None
        here = _is_here(hellos[rank])
        return SparkSettings(
            [hello.host for hello in hellos],
            [hello.address for hello in hellos],
            self.cores[rank] if here else [],
            self.threads_per_worker,
            f"/proc/{os.getpid()}/fd/{self.board.handle}" if here else "",
            list(sys.path) if here and self.local else [],
        )

    def _handle_other_message(self, message: tuple[Any, ...]) -> None:
        kind, _, *details = message
        if kind == "pulse" and self.board is not None:
            rank, phase, step = details
            self.board.enter(rank, phase)
            self.board.at_step(rank, step)

    def _connection_lost(self, detector: FailureDetector, worker: Worker) -> WorkerFailed:
        """What Spark reports of the rank whose connection has closed: it was killed, or lost with its executor."""
        assert self._supervisor is not None
        where, rank = detector.position_of(worker), worker.ranks[0]
        end = time.monotonic() + _REPORT_SECONDS
        while time.monotonic() < end:
            if self.cluster is not None and (why := self.cluster.problem()):  # its supervisor kills the ranks
                return WorkerFailed(-1, where, why, "")
            output = output_tail(self._supervisor.output)
            if found := re.search(r"lockstep: rank (\d+) (was killed by \w+|left with exit code \d+)", output):
                other = self.workers[int(found[1])]
                return WorkerFailed(other.ranks[0], detector.position_of(other), found[2], output_tail(other.output))
            if any(sign in output for sign in _EXECUTOR_LOST):
                return ExecutorLost(rank, where, "was lost with its executor", output)
            if self._supervisor.ended(0.2):
                break
        if cause := self._supervisor.cause_of_end():
            return WorkerFailed(-1, where, cause, output_tail(self._supervisor.output))
        return detector.connection_lost(worker)

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.control.send(None)
        if self._supervisor is not None and self.workers:
            self._supervisor.ended(_END_SECONDS)  # the driver reports to its master that all is done
        self.kill()  # those that have not ended by then: waiting for a stopped rank would not end

    def _release(self) -> None:
        for worker in self.workers:
            worker.control.close()  # which ends ranks on other hosts
        super()._release()


def _own_address(master: str) -> str:
    """Where executors reach this host: the loopback for a cluster of this machine, else any of its addresses."""
    return LOOPBACK if not master else os.environ.get("SPARK_LOCAL_IP") or _routed_address(master)


def _routed_address(master: str) -> str:
    """This host's address towards `master`; for a master that is no spark:// URL, the address of this host's name."""
    host = master.removeprefix("spark://").split(",")[0].rpartition(":")[0] if "spark://" in master else ""
    try:
        if host:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, 1))  # sends nothing
                return str(probe.getsockname()[0])
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise WorkerFailed(
            -1, "start", f"could not start: this host's address can't be found ({error}); set SPARK_LOCAL_IP to it", ""
        ) from error


def _is_here(hello: Hello) -> bool:
    """Is this process a rank of this user on this host, so that it can share the board? Hosts may share a name."""
    process = Path(f"/proc/{hello.pid}")
    if hello.host != socket.gethostname():
        return False
    try:
        return (
            process.stat().st_uid == os.getuid()
            and b"lockstep.engine.launch.spark.rank_process" in (process / "cmdline").read_bytes()
        )
    except OSError:
        return False
