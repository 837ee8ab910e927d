"""Spark's settings of a team's application."""

from __future__ import annotations

import json
import os
import sys

from lockstep.launch.environment import PROFILES, worker_environment
from lockstep.launch.spark.cluster import JVM_OPTIONS, LOOPBACK, in_folder
from lockstep.peers.sparknet import CORES_SETTING

MASTER_VARIABLE = "LOCKSTEP_SPARK_MASTER"
"""A master's URL; empty: each team brings a cluster of its own."""
MEMORY_VARIABLE = "LOCKSTEP_SPARK_MEMORY"
"""Of the heap of each executor and of the driver, such as 2g; empty: as the team needs."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")


def application_conf(
    url: str,
    executors: int,
    threads: int,
    environment: str,
    executor_memory: str,
    driver_memory: str,
    cores: list[list[int]] | None,
    folder: str,
    cluster_folder: str,
) -> dict[str, str]:
    """Spark's settings of a team's application; `cores` only where executors are on this machine.

    `executor_memory`, `driver_memory`: the most that the heaps of each executor and of the driver may grow to.
    `folder`: for the driver's temporary files; `cluster_folder`: for those of executors on this machine.
    """
    told = {
        "spark.master": url,
        "spark.app.name": "lockstep",
        "spark.ui.enabled": "false",
        "spark.cores.max": str(executors),
        "spark.executor.cores": "1",  # an executor per worker: JVMs and Python workers of their own
        "spark.executor.instances": str(executors),
        "spark.executor.memory": executor_memory,
        "spark.driver.memory": driver_memory,
        "spark.driver.maxResultSize": "0",
        # A full heap kills a thread that fetches results, and nothing else: the job would never end.
        "spark.driver.extraJavaOptions": f"{in_folder(folder)} -XX:+ExitOnOutOfMemoryError",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.local.dir": folder,
        # As many executors as were asked for, from the first job to the last.
        "spark.dynamicAllocation.enabled": "false",
        "spark.speculation": "false",
        # All slots are there before the first job, or a barrier stage would be refused or shared out unevenly.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "30",
        # Parameters don't compress; both ends would only spend time on it.
        "spark.broadcast.compress": "false",
        "spark.broadcast.checksum": "false",
        # A partition stays with its executor, whose Python worker is warm.
        "spark.locality.wait": "60s",
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if cores is None:
        return told
    ours = worker_environment(environment, threads)
    told |= {f"spark.executorEnv.{name}": ours[name] for name in (*_THREADS, *PROFILES[environment])}
    told |= {"spark.executorEnv.PYTHONPATH": python_path(), CORES_SETTING: json.dumps(cores)}
    told["spark.executor.extraJavaOptions"] = in_folder(cluster_folder)
    return told | {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def python_path() -> str:
    """A process finds the same packages, wherever this one found them."""
    return os.pathsep.join(entry for entry in sys.path if entry)
