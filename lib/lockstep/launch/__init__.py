"""WHERE workers run. A new launcher is a file here and a line in `LAUNCHERS`."""

from lockstep.launch.base import Launcher, Processes, Threads, usable_cores
from lockstep.launch.engines import Engines
from lockstep.launch.mpiexec import Mpiexec
from lockstep.launch.spark import Spark, SparkDriver
from lockstep.launch.team import Team
from lockstep.launch.watch import WorkerFailed

LAUNCHERS: dict[str, type[Launcher]] = {
    "threads": Threads,
    "processes": Processes,
    "mpiexec": Mpiexec,
    "engines": Engines,
    "spark": Spark,
    "spark_driver": SparkDriver,
}

__all__ = [
    "LAUNCHERS",
    "Engines",
    "Launcher",
    "Mpiexec",
    "Processes",
    "Spark",
    "SparkDriver",
    "Team",
    "Threads",
    "WorkerFailed",
    "usable_cores",
]
