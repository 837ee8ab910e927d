"""The launchers `spark` and `spark_driver`: a cluster of this machine's own, or any master by its URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockstep.engine.launch.base import Launcher

if TYPE_CHECKING:
    from lockstep.engine.launch.team import Team


class Spark(Launcher):
    """A rank per executor, all of them tasks of one barrier stage (`pyspark.ml.torch.distributor`).

    `master`: spark://host:port, yarn or k8s://...; by default what LOCKSTEP_SPARK_MASTER says, and without it a
    standalone cluster on this machine, whose executors have a core per rank. On other masters `lockstep` must be
    installed where the executors run, and executors must reach this host and each other.
    """

    does = "every worker is a task of one barrier stage on a Spark cluster"
    label = "Spark, barrier mode"
    spark = True
    heavy_when_idle = True  # JVMs, and the replicas in their Python workers

    def __init__(
        self,
        workers: int,
        threads_per_worker: int = 1,
        cores_per_worker: int | None = None,
        environment: str = "tuned",
        master: str | None = None,
    ) -> None:
        from lockstep.engine.launch.spark.settings import MASTER_VARIABLE

        self.master = os.environ.get(MASTER_VARIABLE, "") if master is None else master
        super().__init__(workers, threads_per_worker, cores_per_worker, environment)

    @staticmethod
    def ranks_by_process(workers: int) -> list[list[int]]:
        return [[rank] for rank in range(workers)]

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        from lockstep.engine.launch.spark.barrier_team import SparkTeam

        return SparkTeam(cores, threads_per_worker, environment, self.master)


class SparkDriver(Spark):
    """Spark's driver as the only rank, with an executor per worker: for peers whose driver owns the loop."""

    does = "Spark's driver owns the training loop, and every worker is an executor"
    label = "Spark's driver"
    owns_loop = True

    @staticmethod
    def ranks_by_process(workers: int) -> list[list[int]]:
        return [[0]]

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        from lockstep.engine.launch.spark.team import SparkDriverTeam

        return SparkDriverTeam(cores, threads_per_worker, environment, self.master)
