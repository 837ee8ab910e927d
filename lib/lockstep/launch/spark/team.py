"""What teams on Spark share, and the team whose only rank is the driver.

    SparkDriverTeam    launcher --- guard --- driver = rank 0 --- jobs on executors, as the peer asks

Without a master's URL each team brings a cluster of its own (`cluster.StandaloneCluster`), which ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from lockstep.job import Job
from lockstep.launch.environment import worker_environment
from lockstep.launch.guarded_team import GuardedTeam
from lockstep.launch.rendezvous import Meeting
from lockstep.launch.spark.cluster import StandaloneCluster, check_reachable, explained, spark_environment
from lockstep.launch.spark.java import SparkError, problem
from lockstep.launch.spark.settings import MEMORY_VARIABLE, application_conf, python_path
from lockstep.launch.team import Worker
from lockstep.launch.watch import WorkerFailed
from lockstep.loop import Site, Trace

_EPOCH_STEPS = 100  # that a window of a whole epoch may be long
_DRIVER = "from lockstep.launch.spark.driver import main; main()"


class OnSpark(GuardedTeam):
    """What both kinds of team share: the cluster, the driver's start, and what Spark says of a failure.

    `executors`: how many; `master`: a URL (spark://host:port, yarn, k8s://...), empty for a cluster of this machine.
    """

    more_conf: Mapping[str, str] = {}  # of the application
    # Heaps, at most: parameters pass through each several times, and the driver's holds what all executors send.
    executor_memory, driver_memory = "3g", "4g"

    def __init__(
        self, cores: list[list[int]], threads_per_worker: int, environment: str, ranks: int, master: str
    ) -> None:
        super().__init__([[rank] for rank in range(ranks)], cores, threads_per_worker, environment)
        self.executors, self.master = len(cores), master
        self.cluster: StandaloneCluster | None = None

    @property
    def local(self) -> bool:
        """Is it a cluster of this team's own, on this machine?"""
        return not self.master

    def _prepare(self) -> None:
        try:
            if why := problem():
                raise SparkError(why)
            if self.local:
                self.cluster = StandaloneCluster(self.executors)
                self.cluster.start()
            else:
                check_reachable(self.master)
        except SparkError as error:
            self._stop_cluster()
            reason, _, said = str(error).partition("\n")
            raise WorkerFailed(-1, "start", f"could not start: {reason}", said) from error

    @property
    def pids(self) -> list[int]:
        """The roots of all that runs for this team: JVMs, Python workers and ranks are below them."""
        guards = [self._guard.process.pid] if self._guard is not None and self.workers else []
        return guards + (self.cluster.pids if guards and self.cluster is not None else [])

    @property
    def _starter(self) -> str:
        return "Spark"

    def _driver(self, folder: str, told: dict[str, Any]) -> dict[str, list[str]]:
        """The guard's command for the driver, which is told `told` through a file in `folder`."""
        url = self.cluster.url if self.cluster is not None else self.master
        told_memory = os.environ.get(MEMORY_VARIABLE)
        heaps = (told_memory or self.executor_memory, told_memory or self.driver_memory)
        cores = self.cores if self.local else None
        where = self.cluster.folder if self.cluster is not None else ""
        threads, environment = self.threads_per_worker, self.environment
        conf = application_conf(url, self.executors, threads, environment, *heaps, cores, folder, where)
        path = Path(folder, "driver.json")
        path.write_text(json.dumps(told | {"conf": {**conf, **self.more_conf}}))
        return {"driver": [sys.executable, "-c", _DRIVER, str(path)]}

    def _environment(self, meeting: Any) -> dict[str, str]:
        environment = spark_environment(worker_environment(self.environment, self.threads_per_worker), self.local)
        environment |= {"PYTHONPATH": python_path(), "TMPDIR": meeting.folder}
        if self.local:
            environment["PYSPARK_PYTHON"] = sys.executable
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        return environment | {"PYSPARK_DRIVER_PYTHON": sys.executable}

    def _unable(self, what: str, come: Any, output: IO[bytes] | None = None) -> WorkerFailed:
        return _with_cause(super()._unable(what, come, output))

    def _hear(self, worker: Worker, come: Mapping[Any, Worker]) -> tuple[int, int]:
        try:
            return super()._hear(worker, come)
        except WorkerFailed as failure:
            raise _with_cause(failure) from None

    def _look(self) -> None:
        """Raises WorkerFailed if the cluster has gone."""
        if self.cluster is not None and (why := self.cluster.problem()):
            raise WorkerFailed(-1, self._place(), why, "")

    def _place(self) -> str:
        return self.board.where(0) if self.board is not None and self.workers else "start"

    def _forget(self) -> None:
        super()._forget()
        self._stop_cluster()

    def _stop_cluster(self) -> None:
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None


def _with_cause(failure: WorkerFailed) -> WorkerFailed:
    """The same, with what the JVM's last words mean in its reason, once."""
    why = explained(failure.traceback)
    if not why or why in failure.reason:
        return failure
    return WorkerFailed(failure.rank, failure.where, f"{failure.reason}: {why}", failure.traceback)


class SparkDriverTeam(OnSpark):
    """One rank, Spark's driver; `cores` are those of the executors that its peer uses."""

    def __init__(self, cores: list[list[int]], threads_per_worker: int, environment: str, master: str = "") -> None:
        super().__init__(cores, threads_per_worker, environment, 1, master)

    def run(
        self,
        job: Job,
        site: Site | None = None,
        function: Callable[..., Trace] | None = None,
        stall_seconds: float = 600,
    ) -> list[Trace]:
        """As `Team.run`; the driver says nothing during a window, so a longer one may take longer."""
        window = (job.exchange_every or _EPOCH_STEPS) if job.sync == "sparknet" else 1
        return super().run(job, site, function, stall_seconds * window)

    def _commands(self, meeting: Meeting) -> dict[str, list[str]]:
        return self._driver(meeting.folder, {"mode": "driver", "meeting": meeting.path})

    def _rank_cores(self) -> list[list[int]]:
        # It adds up and updates while the executors wait: it may use all of their cores.
        return [sorted({core for cores in self.cores for core in cores})]
