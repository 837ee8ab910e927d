"""The launchers `spark` and `spark_driver`: a cluster of this machine's own, or any master by its URL."""

from __future__ import annotations

import os

from lockstep.launch.base import Launcher
from lockstep.launch.spark.barrier_team import ExecutorLost, SparkTeam
from lockstep.launch.spark.cluster import StandaloneCluster
from lockstep.launch.spark.java import SparkError
from lockstep.launch.spark.settings import MASTER_VARIABLE
from lockstep.launch.spark.team import SparkDriverTeam
from lockstep.launch.team import Team

__all__ = ["ExecutorLost", "Spark", "SparkDriver", "SparkError", "StandaloneCluster"]


class Spark(Launcher):
    """A rank per executor, all of them tasks of one barrier stage (`pyspark.ml.torch.distributor`).

    `master`: spark://host:port, yarn or k8s://...; by default what LOCKSTEP_SPARK_MASTER says, and without it a
    standalone cluster on this machine, whose executors have a core per rank. On other masters `lockstep` must be
    installed where the executors run, and executors must reach this host and each other.
    """

    crowds = True  # JVMs, and the replicas in their Python workers

    def __init__(
        self,
        workers: int,
        threads_per_worker: int = 1,
        cores_per_worker: int | None = None,
        environment: str = "tuned",
        master: str | None = None,
    ) -> None:
        self.master = os.environ.get(MASTER_VARIABLE, "") if master is None else master
        super().__init__(workers, threads_per_worker, cores_per_worker, environment)

    @staticmethod
    def seats(workers: int) -> list[list[int]]:
        return [[rank] for rank in range(workers)]

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        return SparkTeam(cores, threads_per_worker, environment, self.master)


class SparkDriver(Spark):
    """Spark's driver as the only rank, with an executor per worker: for peers whose driver owns the loop."""

    @staticmethod
    def seats(workers: int) -> list[list[int]]:
        return [[0]]

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        return SparkDriverTeam(cores, threads_per_worker, environment, self.master)
