"""Spark's settings of a team's application."""

from __future__ import annotations

import json
import os

from lockstep.engine.launch.environment import PROFILES, python_path, worker_environment
from lockstep.engine.launch.spark.cluster import JVM_OPTIONS, LOOPBACK, SECRET_VARIABLE, in_folder
from lockstep.engine.peers.sparknet_driver import CORES_SETTING

MASTER_VARIABLE = "LOCKSTEP_SPARK_MASTER"
"""The URL of a master; empty: each team starts a cluster of its own."""
MEMORY_VARIABLE = "LOCKSTEP_SPARK_MEMORY"
"""The heap of each executor and of the driver, such as 2g; empty: as much as the team needs."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
# Settings that are the same for every application.
_FIXED = {
    "spark.app.name": "lockstep",
    "spark.ui.enabled": "false",
    "spark.executor.cores": "1",  # an executor per worker: JVMs and Python workers of their own
    "spark.driver.maxResultSize": "0",
    # The number of executors stays the same from the first job to the last.
    "spark.dynamicAllocation.enabled": "false",
    "spark.speculation": "false",
    # All slots exist before the first job; otherwise a barrier stage would be refused or divided unevenly.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "30",
    # Parameters cannot be compressed; both ends would only spend time on it.
    "spark.broadcast.compress": "false",
    "spark.broadcast.checksum": "false",
    # A partition stays with its executor, whose Python worker is warm.
    "spark.locality.wait": "60s",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


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
    settings = _FIXED | {
        "spark.master": url,
        "spark.cores.max": str(executors),
        "spark.executor.instances": str(executors),
        "spark.executor.memory": executor_memory,
        "spark.driver.memory": driver_memory,
        # A full heap kills a thread that fetches results, and nothing else: the job would never end.
        "spark.driver.extraJavaOptions": f"{in_folder(folder)} -XX:+ExitOnOutOfMemoryError",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.local.dir": folder,
    }
    # The secret itself is in the environment; Spark only asks whether this is set.
    secret = {"spark.authenticate": "true", "spark.authenticate.secret": "in the environment"}
    if cores is None:
        return settings | (secret if os.environ.get(SECRET_VARIABLE) else {})
    variables = worker_environment(environment, threads)
    settings |= {f"spark.executorEnv.{name}": variables[name] for name in (*_THREADS, *PROFILES[environment])}
    settings |= {"spark.executorEnv.PYTHONPATH": python_path(), CORES_SETTING: json.dumps(cores)}
    settings["spark.executor.extraJavaOptions"] = in_folder(cluster_folder)
    return settings | secret | {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
