"""The team whose ranks are tasks of a barrier stage, started by TorchDistributor.

launcher --- guard --- driver --- TorchDistributor: barrier stage, a task per rank
    |                                 |
    +--- control: TCP ----------------+ rank 0, rank 1 ...     (which also connect each other)
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

from lockstep.launch.guarded_team import START_SECONDS
from lockstep.launch.rendezvous import Foreign, Remote
from lockstep.launch.spark.cluster import LOOPBACK
from lockstep.launch.spark.reception import Hello, Reception, SparkSettings
from lockstep.launch.spark.settings import python_path
from lockstep.launch.spark.team import OnSpark
from lockstep.launch.team import Worker
from lockstep.launch.watch import Watch, WorkerFailed, tail

_END_SECONDS = 5.0  # for a driver to end by itself
_VERDICT_SECONDS = 5.0  # for Spark to say what became of a task
_EXECUTOR_LOST = ("ExecutorLostFailure", "Lost executor")


class ExecutorLost(WorkerFailed):
    """An executor went, and with it a rank that had done nothing wrong."""


class SparkTeam(OnSpark):
    """A rank per executor, in one barrier stage of TorchDistributor's.

    A call that loses an executor is tried once more, with all ranks started anew; a second loss is its failure.
    """

    # A retry of Spark's own would start ranks whose team has gone.
    more_conf: Mapping[str, str] = {"spark.stage.maxConsecutiveAttempts": "1"}
    executor_memory = driver_memory = "512m"  # they only start ranks

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

    def _open(self) -> Reception:
        return Reception(_own_address(self.master), secrets.token_bytes(32))

    def _commands(self, meeting: Reception) -> dict[str, list[str]]:
        told = {
            "address": meeting.address,
            "key": meeting.key.hex(),
            "environment": self.environment,
            "threads": self.threads_per_worker,
            "path": python_path() if self.local else "",
        }
        return self._driver(meeting.folder, {"mode": "ranks", "ranks": self.size, "told": told})

    def _meet(self, meeting: Reception, deadline: float) -> None:
        """Wait until all ranks have come, tell them of each other, and wait until they are ready."""
        come: dict[int, tuple[Any, Hello]] = {}
        try:
            while len(come) < self.size:
                control = meeting.next(0.2)
                if control is not None:
                    hello = self._first_word(control, deadline)
                    come[hello.rank] = (control, hello)
                self._still_starting(deadline, f"{len(come)} of {self.size} ranks have come")
            hellos = [come[rank][1] for rank in range(self.size)]
            for rank, (control, hello) in sorted(come.items()):
                self.workers.append(self._worker(rank, control, hello))
                control.send(self._settings(rank, hellos))
            waiting: dict[Any, Worker] = {worker.control: worker for worker in self.workers}
            while waiting:  # whoever speaks first: the others may wait for one that has failed
                for found in connections.wait(list(waiting), 0.2):
                    self._hear(waiting.pop(found), {})
                self._still_starting(deadline, "ranks have come, but not all can work together")
        except BaseException:
            for control, _ in come.values():
                if not any(worker.control is control for worker in self.workers):
                    control.close()
            raise

    def _first_word(self, control: Any, deadline: float) -> Hello:
        """Who has come. Raises WorkerFailed for one that can't take part."""
        try:
            while not control.poll(0.2):
                self._still_starting(deadline, "a rank has come and says nothing")
            said = control.recv()
        except (EOFError, OSError):
            control.close()
            raise self._unable("lost a rank that had just come", {}) from None
        if isinstance(said, Hello) and said.size == self.size:
            return said
        control.close()
        if isinstance(said, Hello):
            raise self._unable(f"started {said.size} ranks instead of {self.size}", {})
        raise WorkerFailed(-1, "start", "could not start: a rank failed before it was ready", said[1])

    def _worker(self, rank: int, control: Any, hello: Hello) -> Worker:
        if not _is_here(hello):
            return Worker(Remote(), control, [rank], tempfile.TemporaryFile())
        try:
            # Its own unnamed file, which stays readable when it has gone.
            output = open(f"/proc/{hello.pid}/fd/1", "rb")  # noqa: SIM115 - closed with the worker
            return Worker(Foreign(hello.pid), control, [rank], output)
        except OSError:
            raise self._unable(f"lost rank {rank} before it was ready", {}) from None

    def _still_starting(self, deadline: float, what: str) -> None:
        assert self._guard is not None
        self._look()
        if self._guard.ended():
            raise self._unable(f"ended: {what}", {})
        if time.monotonic() > deadline:
            raise self._unable(f"is too slow: {what} after {START_SECONDS:.0f} s", {})

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

    def _aside(self, message: tuple[Any, ...]) -> None:
        kind, _, *told = message
        if kind == "pulse" and self.board is not None:
            rank, phase, step = told
            self.board.enter(rank, phase)
            self.board.at_step(rank, step)

    def _gone(self, watch: Watch, worker: Worker) -> WorkerFailed:
        """What Spark says of the rank whose connection has closed: it was killed, or lost with its executor."""
        assert self._guard is not None
        where, rank = self._place_of(worker), worker.ranks[0]
        end = time.monotonic() + _VERDICT_SECONDS
        while time.monotonic() < end:
            if self.cluster is not None and (why := self.cluster.problem()):  # its guard kills the ranks
                return WorkerFailed(-1, where, why, "")
            said = tail(self._guard.output)
            if found := re.search(r"lockstep: rank (\d+) (was killed by \w+|left with exit code \d+)", said):
                other = self.workers[int(found[1])]
                return WorkerFailed(other.ranks[0], self._place_of(other), found[2], tail(other.output))
            if any(sign in said for sign in _EXECUTOR_LOST):
                return ExecutorLost(rank, where, "was lost with its executor", said)
            if self._guard.ended(0.2):
                break
        if culprit := self._guard.culprit():
            return WorkerFailed(-1, where, culprit, tail(self._guard.output))
        return watch.gone(worker)

    def _place_of(self, worker: Worker) -> str:
        return self.board.where(worker.ranks[0]) if self.board is not None else ""

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.control.send(None)
        if self._guard is not None and self.workers:
            self._guard.ended(_END_SECONDS)  # the driver tells its master that all is done
        self.kill()  # who has not ended by then: a stopped rank would be waited for

    def _forget(self) -> None:
        for worker in self.workers:
            worker.control.close()  # which ends ranks on other hosts
        super()._forget()


def _own_address(master: str) -> str:
    """Where executors reach this host: the loopback for a cluster of this machine, else any of its addresses."""
    return LOOPBACK if not master else os.environ.get("SPARK_LOCAL_IP") or _routed_address(master)


def _routed_address(master: str) -> str:
    """This host's address on the way to `master`; without a spark:// one, what its name stands for."""
    place = master.removeprefix("spark://").split(",")[0].rpartition(":")[0] if "spark://" in master else ""
    try:
        if place:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                asked.connect((place, 1))  # sends nothing
                return str(asked.getsockname()[0])
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise WorkerFailed(
            -1, "start", f"could not start: this host's address can't be found ({error}); set SPARK_LOCAL_IP to it", ""
        ) from error


def _is_here(hello: Hello) -> bool:
    """Is that process a rank of this user on this host, where its memory can be seen? Hosts may share a name."""
    process = Path(f"/proc/{hello.pid}")
    if hello.host != socket.gethostname():
        return False
    try:
        return (
            process.stat().st_uid == os.getuid() and b"lockstep.launch.spark.rank" in (process / "cmdline").read_bytes()
        )
    except OSError:
        return False
