"""WHERE workers run. A new launcher is a file here and a line in `lockstep.engine.registry.LAUNCHERS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lockstep.engine import registry
from lockstep.engine.launch.base import Launcher
from lockstep.engine.launch.mpi.ipyparallel import Engines
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from lockstep.engine.launch.processes import Processes
from lockstep.engine.launch.spark.launchers import Spark, SparkDriver
from lockstep.engine.launch.threads import Threads

if TYPE_CHECKING:
    from lockstep.engine.launch.failures import WorkerFailed
    from lockstep.engine.launch.team import Team

LAUNCHERS = cast("dict[str, type[Launcher]]", registry.launchers())

_LATER = {"Team": "team", "WorkerFailed": "failures"}


def __getattr__(name: str) -> Any:
    # On demand: the launchers' declarations are read without torch (lockstep.engine.registry), and teams need it.
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
]
