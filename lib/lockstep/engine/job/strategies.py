"""The one table of strategies: a notebook's row name, and the launcher, the sync and the options behind it.

A new sync or peer needs no line here: without one it gets a row of its own name, with what its file declares. Lines
here give names to the combinations that the papers and the notebooks compare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lockstep.engine import registry
from lockstep.engine.declared import DeclaredSync


@dataclass(frozen=True)
class Strategy:
    """A row of the table."""

    fields: dict[str, Any]  # fields of Job
    label: str  # in tables, and in figures that have room for it
    distributed: bool = True  # several workers
    intra_op: bool = False  # one worker, whose operators use the whole budget of cores
    short: str = ""  # in figures; without it the label
    colour: int | None = None  # place in the palette; None: that of the row in this table
    marker: str = ""  # of its points, one of matplotlib's; empty: that of the row in this table


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


LAUNCHER_NAMES = tuple(registry.LAUNCHERS)
SYNC_LAUNCHER = "processes"
PER_WORKER = 0  # of `shards`, in this table: as many as there are workers

_ROWS: dict[str, Strategy] = {
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

_SHORT = {
    "sequential": "sequential",
    "intra_op": "threads inside operators",
    "threads": "replica per thread",
    "processes": "processes, shared memory",
    "processes_allreduce": "processes, all-reduce",
    "ddp": "processes, DDP",
    "mpi_allreduce": "MPI, all-reduce",
    "mpi_shared_memory": "MPI, shared memory",
    "engines_shared_memory": "engines, shared memory",
    "host_threads": "MPI, a process of threads per host",
    "allreduce": "all-reduce",
    "layerwise": "all-reduce per layer, overlapped",
    "bucketed": "all-reduce in 25 MiB, overlapped",
    "rma": "one-sided MPI (RMA)",
    "sockets": "TCP sockets",
    "node_aware": "shared memory per node",
    "local_sgd": "local SGD, every k steps",
    "epochwise": "local SGD, once per epoch",
    "parameter_server": "parameter server",
    "sharded_server": "a shard on every worker",
    "algorithm_1": "Algorithm 1, mean",
    "algorithm_1_best": "Algorithm 1, lowest loss",
    "algorithm_1_epochwise": "Algorithm 1, once per epoch",
    "topk": "top-k, 1 %",
    "terngrad": "TernGrad",
    "gossip": "gossip",
    "naive_pipeline": "naive model parallel",
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "interleaved 1F1B",
    "zero_bubble": "zero bubble",
    "zero_bubble_v": "zero bubble, V-shaped",
    "spark_allreduce": "Spark barrier, all-reduce",
    "spark_shared_memory": "Spark barrier, shared memory",
    "sparknet": "SparkNet, images as RDD",
    "sparknet_files": "SparkNet, images as files",
    "sparknet_tau": "SparkNet, every tau steps",
    "head_parallel": "head model parallel",
}
"""Names in figures."""
_COLOURS = {
    "mpi_allreduce": 10,
    "mpi_shared_memory": 11,
    "allreduce": 4,
    "local_sgd": 5,
    "epochwise": 11,
    "parameter_server": 2,
    "algorithm_1": 9,
    "algorithm_1_best": 12,
    "algorithm_1_epochwise": 6,
    "gpipe": 10,
    "head_parallel": 11,
    "host_threads": 12,
    "1f1b": 2,
    "interleaved_1f1b": 3,
}
"""Places in the palette, where the row's own would be grey, as published results are, or pale, or that of another row
that a figure draws beside it."""

_MARKERS = {"local_sgd": "s", "epochwise": "o", "parameter_server": "<"}
"""Marks of points, where another row of the same colour has that of the row's own place."""


def _row_of(name: str, declared: type[DeclaredSync]) -> Strategy:
    """The row of a sync or peer that has no line above."""
    launcher = next(
        each for each in (SYNC_LAUNCHER, *LAUNCHER_NAMES) if declared.runs_on(each, registry.launchers()[each])
    )
    fields = {"launcher": launcher, "sync": name, **declared.usual}
    return Strategy(fields, declared.label or name, not declared.alone, colour=declared.colour, marker=declared.marker)


def _all_rows() -> dict[str, Strategy]:
    """The table, with a row for each sync and peer that no line of the table names."""
    named = {row.fields["sync"] for row in _ROWS.values()}
    drawn = {name: (_SHORT.get(name, ""), _COLOURS.get(name), _MARKERS.get(name, "")) for name in _ROWS}
    rows = {
        name: replace(row, short=drawn[name][0], colour=drawn[name][1], marker=drawn[name][2])
        for name, row in _ROWS.items()
    }
    return rows | {
        name: _row_of(name, declared) for name, declared in registry.syncs_and_peers().items() if name not in named
    }


STRATEGIES: dict[str, Strategy] = _all_rows()

YARDSTICKS: dict[str, str] = {
    "copy_bound": "copy bandwidth",
    "roof_1_core": "matrix products and copies on one core",
    "roof": "matrix products and copies on all cores",
    "decode": "decoding alone",
    "ping_pong": "a message there and back",
    "simulated": "policies in virtual time",
    "spark_schedule": "Spark: an empty job",
    "spark_broadcast": "Spark: a broadcast",
    "spark_aggregate": "Spark: treeAggregate",
    "parquet_write": "Spark: files to Parquet",
    "parquet_read": "Spark: Parquet to decoded images",
}
"""Rows that are measured to be compared with, and train nothing."""

BASELINE_FIELDS = {"environment": "plain", "optimiser": "plain"}
"""What the papers' sequential baseline has where this library's own default is better."""


@dataclass(frozen=True)
class Rung:
    """One ingredient: the fields of `Job` that it changes, and its name in figures."""

    label: str
    fields: dict[str, Any]


RUNGS: dict[str, Rung] = {
    "sequential": Rung("sequential, torch's defaults", BASELINE_FIELDS),
    "intra_op": Rung("+ threads inside operators", {}),  # threads and cores: those of the machine
    "allocator": Rung("+ allocator profile", {"environment": "tuned"}),
    "fused": Rung("+ fused optimizer", {"optimiser": "fused"}),
    "channels_last": Rung("+ channels last", {"memory_format": "channels_last"}),
    "bfloat16": Rung("+ bfloat16", {"precision": "bfloat16"}),
    "copies": Rung("+ casts avoided", {"copies": "avoided"}),
    "cuda": Rung("on a GPU", {"device": "cuda"}),
}
