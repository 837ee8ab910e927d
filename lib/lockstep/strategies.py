"""The one table of strategies: a notebook's row name, and the launcher and sync behind it.

A new strategy is a new file (a sync, a launcher or a peer) and one line here; it then stands in every grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Strategy:
    """A row of the table."""

    fields: dict[str, Any]  # fields of Job
    label: str  # in figures
    distributed: bool = True  # several workers
    intra_op: bool = False  # one worker, whose operators use the whole budget of cores


def _of(launcher: str, sync: str, label: str, **others: Any) -> Strategy:
    return Strategy({"launcher": launcher, "sync": sync}, label, **others)


def _spark(launcher: str, sync: str, label: str, **options: Any) -> Strategy:
    return Strategy({"launcher": launcher, "sync": sync, **options}, label)


def _with(sync: str, label: str, **options: Any) -> Strategy:
    """A row that compares ways to agree; a notebook names another launcher where it compares launchers too."""
    return Strategy({"launcher": SYNC_LAUNCHER, "sync": sync, **options}, label)


def _mpi(sync: str, label: str, **options: Any) -> Strategy:
    """A row that only MPI ranks can run."""
    return Strategy({"launcher": "mpiexec", "sync": sync, **options}, label)


def _served(label: str, **options: Any) -> Strategy:
    return _with("parameter_server", label, policy="wait_for_all", **options)


def _sparknet(label: str, **options: Any) -> Strategy:
    return _spark("spark_driver", "sparknet", label, **options)


def _pipeline(schedule: str, label: str, **options: Any) -> Strategy:
    """A row of one replica, cut into two stages by default; with sync="allreduce" and more workers a hybrid."""
    fields = {"launcher": SYNC_LAUNCHER, "sync": "local", "model_parallel": "pipeline", "schedule": schedule}
    return Strategy(fields | {"stages": 2, "micro_batches": 4, "partition": "balanced"} | options, label)


def _two_per_rank(schedule: str, label: str) -> Strategy:
    return _pipeline(schedule, label, stages=4, stages_per_rank=2)


LAUNCHER_NAMES = ("threads", "processes", "engines", "mpiexec", "spark", "spark_driver")
SYNC_LAUNCHER = "processes"
PER_WORKER = 0  # of `shards`, in this table: as many as there are workers

STRATEGIES: dict[str, Strategy] = {
    "sequential": _of("threads", "local", "sequential (1 thread, 1 core)", distributed=False),
    "intra_op": _of("threads", "local", "threads inside operators", distributed=False, intra_op=True),
    "threads": _of("threads", "shared_memory", "replica per thread"),
    "processes": _of("processes", "shared_memory", "process per core, shared memory"),
    "processes_allreduce": _of("processes", "allreduce", "process per core, all-reduce (gloo)"),
    "ddp": _of("processes", "ddp", "process per core, DDP (gloo)"),
    "mpi_allreduce": _of("mpiexec", "allreduce", "MPI rank per core, all-reduce (MPI)"),
    "mpi_shared_memory": _of("mpiexec", "shared_memory", "MPI rank per core, shared memory"),
    "host_threads": _mpi("shared_memory", "replica per thread, a process per host", host_workers="threads"),
    "engines_shared_memory": _of("engines", "shared_memory", "ipyparallel engine per core, shared memory"),
    "allreduce": _with("allreduce", "all-reduce"),
    "layerwise": _with("allreduce", "all-reduce per layer, overlapped", bucket="layer", overlap=True),
    "bucketed": _with("allreduce", "all-reduce in 25 MiB, overlapped", bucket="25MiB", overlap=True),
    "rma": _mpi("allreduce", "all-reduce by one-sided MPI (RMA)", transport="rma"),
    "sockets": _mpi("allreduce", "all-reduce over plain TCP sockets", transport="sockets"),
    "node_aware": _with("shared_memory", "shared memory per node, all-reduce between nodes"),
    "local_sgd": _with("local_sgd", "local SGD, averaged every k steps", exchange_every=10),
    "epochwise": _with("local_sgd", "local SGD, averaged once per epoch", exchange_every=0),
    "parameter_server": _served("parameter server: gradients to 1 server", servers=1),
    "sharded_server": _served("parameter server: a slice on every worker", shards=PER_WORKER),
    "algorithm_1": _served(
        "Algorithm 1: mean of weights every k steps", servers=1, opt_weight="mean", exchange_every=10
    ),
    "algorithm_1_best": _served(
        "Algorithm 1: weights of the lowest loss every k steps", servers=1, opt_weight="best", exchange_every=10
    ),
    "topk": _with("allreduce", "1 % of the gradient (top-k, error feedback)", compression="topk", density=0.01),
    "terngrad": _with("allreduce", "TernGrad, layer by layer", compression="terngrad", bucket="layer"),
    "gossip": _with("gossip", "gossip with the neighbours in a ring"),
    "naive_pipeline": _pipeline("naive", "model parallel, one stage at a time", micro_batches=1),
    "gpipe": _pipeline("gpipe", "pipeline: GPipe"),
    "1f1b": _pipeline("1f1b", "pipeline: 1F1B"),
    "interleaved_1f1b": _two_per_rank("interleaved_1f1b", "pipeline: interleaved 1F1B"),
    "zero_bubble": _pipeline("zero_bubble", "pipeline: zero bubble"),
    "zero_bubble_v": _two_per_rank("zero_bubble_v", "pipeline: zero bubble, V-shaped"),
    "head_parallel": _with("allreduce", "convolutions data parallel, head model parallel", model_parallel="head"),
    "spark_allreduce": _spark("spark", "allreduce", "Spark barrier mode, all-reduce (gloo)"),
    "spark_shared_memory": _spark("spark", "shared_memory", "Spark barrier mode, shared memory"),
    "sparknet": _sparknet("SparkNet: gradients every step, images as RDD", executor_data="rdd"),
    "sparknet_files": _sparknet("SparkNet: gradients every step, images as files", executor_data="files"),
    "sparknet_tau": _sparknet(
        "SparkNet: parameters every tau steps", executor_data="files", opt_weight="mean", exchange_every=10
    ),
    "algorithm_1_epochwise": _served(
        "Algorithm 1: mean of weights once per epoch", servers=1, opt_weight="mean", exchange_every=0
    ),
}

YARDSTICKS: dict[str, str] = {
    "copy_bound": "copy bandwidth",
    "roof_1_core": "matrix products and copies on one core",
    "roof": "matrix products and copies on all cores",
    "decode": "decoding alone",
    "ping_pong": "a message there and back",
    "spark_schedule": "Spark: an empty job",
    "spark_broadcast": "Spark: a broadcast",
    "spark_aggregate": "Spark: treeAggregate",
    "parquet_write": "Spark: files to Parquet",
    "parquet_read": "Spark: Parquet to decoded images",
}
"""Rows that are measured to be compared with, and train nothing."""
