"""What teams on Spark share, and the team whose only rank is the driver.

    SparkDriverTeam    launcher --- supervisor --- driver = rank 0 --- jobs of the peer, on executors

Without a master's URL each team starts a cluster of its own (`cluster.StandaloneCluster`), which ends with the team.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from lockstep.engine.job import Job
from lockstep.engine.launch.environment import python_path, worker_environment
from lockstep.engine.launch.failures import WorkerFailed
from lockstep.engine.launch.rendezvous import Rendezvous
from lockstep.engine.launch.spark.cluster import (
    SECRET_VARIABLE,
    StandaloneCluster,
    check_reachable,
    explained,
    spark_environment,
)
from lockstep.engine.launch.spark.java import SparkError, problem
from lockstep.engine.launch.spark.settings import MEMORY_VARIABLE, application_conf
from lockstep.engine.launch.supervised_team import SupervisedTeam
from lockstep.engine.launch.worker_process import Worker
from lockstep.engine.training.loop import Site, Trace

_EPOCH_STEPS = 100  # the longest that a window of a whole epoch may be
_DRIVER = "from lockstep.engine.launch.spark.driver import main; main()"


class SparkApplicationTeam(SupervisedTeam):
    """What both kinds of team share: the cluster, the driver's start, and what Spark reports of a failure.

    `executors`: their number; `master`: a URL (spark://host:port, yarn, k8s://...), empty for a cluster of its own.
    """

    more_conf: Mapping[str, str] = {}  # of the application
    # The largest heaps: parameters pass through each several times, and the driver's holds what all executors send.
    executor_memory, driver_memory = "3g", "4g"

    def __init__(
        self, cores: list[list[int]], threads_per_worker: int, environment: str, ranks: int, master: str
    ) -> None:
        super().__init__([[rank] for rank in range(ranks)], cores, threads_per_worker, environment)
        self.executors, self.master = len(cores), master
        self.cluster: StandaloneCluster | None = None

    @property
    def local(self) -> bool:
        """Does this team use a cluster of its own, on this machine?"""
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
            reason, _, output = str(error).partition("\n")
            raise WorkerFailed(-1, "start", f"could not start: {reason}", output) from error

    @property
    def pids(self) -> list[int]:
        """The roots of all that runs for this team: JVMs, Python workers and ranks are below them."""
        return self._roots if self.workers else []

    @property
    def _starting_program(self) -> str:
        return "Spark"

    def _driver(self, folder: str, options: dict[str, Any]) -> dict[str, list[str]]:
        """The supervisor's command for the driver, which reads `options` from a file in `folder`."""
        url = self.cluster.url if self.cluster is not None else self.master
        memory = os.environ.get(MEMORY_VARIABLE)
        heaps = (memory or self.executor_memory, memory or self.driver_memory)
        cores = self.cores if self.local else None
        cluster_folder = self.cluster.folder if self.cluster is not None else ""
        threads, environment = self.threads_per_worker, self.environment
        conf = application_conf(url, self.executors, threads, environment, *heaps, cores, folder, cluster_folder)
        path = Path(folder, "driver.json")
        path.write_text(json.dumps(options | {"conf": {**conf, **self.more_conf}}))
        return {"driver": [sys.executable, "-c", _DRIVER, str(path)]}

    def _environment_of_commands(self, rendezvous: Any) -> dict[str, str]:
        environment = spark_environment(worker_environment(self.environment, self.threads_per_worker), self.local)
        environment |= {"PYTHONPATH": python_path(), "TMPDIR": rendezvous.folder}
        if self.local:
            environment["PYSPARK_PYTHON"] = sys.executable
        if self.cluster is not None:
            environment[SECRET_VARIABLE] = self.cluster.secret
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        return environment | {"PYSPARK_DRIVER_PYTHON": sys.executable}

    def _start_failure(self, what: str, arrived: Any, output: IO[bytes] | None = None) -> WorkerFailed:
        return _with_cause(super()._start_failure(what, arrived, output))

    def _receive_ready(self, worker: Worker, arrived: Mapping[Any, Worker]) -> tuple[int, int]:
        try:
            return super()._receive_ready(worker, arrived)
        except WorkerFailed as failure:
            raise _with_cause(failure) from None

    def _check(self) -> None:
        """Raises WorkerFailed if the cluster has gone, or a part of it was stopped."""
        super()._check()
        if self.cluster is not None and (why := self.cluster.problem()):
            raise WorkerFailed(-1, self._position(), why, "")

    @property
    def _roots(self) -> list[int]:
        return super()._roots + (self.cluster.pids if self.cluster is not None else [])

    def _release(self) -> None:
        super()._release()
        self._stop_cluster()

    def _stop_cluster(self) -> None:
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None


def _with_cause(failure: WorkerFailed) -> WorkerFailed:
    """The same failure, whose reason also explains the last output of the JVM."""
    why = explained(failure.traceback)
    if not why or why in failure.reason:
        return failure
    return WorkerFailed(failure.rank, failure.where, f"{failure.reason}: {why}", failure.traceback)


class SparkDriverTeam(SparkApplicationTeam):
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
        """As `Team.run`. The driver reports nothing during a window, so a longer window is allowed more time."""
        window = (job.exchange_every or _EPOCH_STEPS) if job.sync == "sparknet" else 1
        return super().run(job, site, function, stall_seconds * window)

    def _commands(self, rendezvous: Rendezvous) -> dict[str, list[str]]:
        return self._driver(rendezvous.folder, {"mode": "driver", "rendezvous": rendezvous.path})

    def _rank_cores(self) -> list[list[int]]:
        # The driver adds up and updates while the executors wait, so it may use all of their cores.
        return [sorted({core for cores in self.cores for core in cores})]
