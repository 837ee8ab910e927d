"""Workers on a Spark cluster: a cluster of this machine's own, or any master by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.engine.launch.spark.launchers import Spark, SparkDriver

if TYPE_CHECKING:
    from lockstep.engine.launch.spark.barrier_team import ExecutorLost
    from lockstep.engine.launch.spark.cluster import StandaloneCluster
    from lockstep.engine.launch.spark.java import SparkError

_LATER = {"ExecutorLost": "barrier_team", "StandaloneCluster": "cluster", "SparkError": "java"}


def __getattr__(name: str) -> Any:
    # On demand: the launchers' declarations are read without torch (lockstep.engine.registry), and teams need it.
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["ExecutorLost", "Spark", "SparkDriver", "SparkError", "StandaloneCluster"]
