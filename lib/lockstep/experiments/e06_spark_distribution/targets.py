"""What we aim at in notebook 06: training on Spark, and preparing images with it."""

from __future__ import annotations

from typing import Any

from lockstep.analysis.targets import Read, Target, compared
from lockstep.experiments.e06_spark_distribution.tables import PAIRED
from lockstep.experiments.e06_spark_distribution.without_training import FEW, PREPARATION, SPEEDUP

_TWO: dict[str, Any] = {"experiment": SPEEDUP, "use_case": "SimpleBig", "variant": "a", "device": "cpu", "workers": 2}


_SELDOM: dict[str, Any] = {"experiment": FEW, "variant": "a", "device": "cpu", "workers": 2}


def _over(above: str, below: str, shared: dict[str, Any] = _TWO) -> Read:
    return compared({"strategy": above}, {"strategy": below}, shared=shared)


def _prepared(strategy: str) -> Read:
    return compared({"experiment": PREPARATION, "strategy": strategy}, None)


TARGETS: tuple[Target, ...] = (
    Target("Spark's barrier mode over MPI, all-reduce, 2 workers", 0.90, _over(PAIRED, "mpi_allreduce")),
    Target("the same with shared memory in Spark's ranks", 0.90, _over("spark_shared_memory", "mpi_allreduce")),
    Target(
        "SparkNet: exchanging every tau steps over every step, 2 workers, the 50x50 network",
        3.0,
        _over("sparknet_tau", "sparknet_files", _SELDOM),
    ),
    Target("images per second from files to Parquet", 300.0, _prepared("parquet_write")),
    Target("images per second from Parquet to decoded images", 300.0, _prepared("parquet_read")),
)
