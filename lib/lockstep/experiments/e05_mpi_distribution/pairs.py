"""Which cells of notebook 05 stand back to back: all that its verdicts, tables and targets compare."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.engine.job import Job
from lockstep.experiments.back_to_back import Pair, back_to_back
from lockstep.measure.planning import Comparison

PAIRS: tuple[Pair, ...] = (
    ("bars", "mpi_shared_memory", "processes"),
    ("bars", "engines_shared_memory", "ddp"),
    ("bars", "engines_shared_memory", "mpi_shared_memory"),
    ("bars", "engines_shared_memory", "sequential"),
    ("weak", "", "sequential"),
    ("strong", "", "sequential"),
    ("timeline", "mpi_allreduce", "sequential"),
    ("headline", "host_threads", "mpi_allreduce"),
    ("headline", "mpi_shared_memory", "mpi_allreduce"),
    ("links", "", "sequential"),
    ("links", "terngrad", "allreduce"),
    ("collective", "processes_allreduce", "mpi_allreduce"),
    ("wire", "mpi_allreduce", "ping_pong"),
    ("servers_wire", "sharded_server", "parameter_server"),
    ("between_hosts", "mpi_shared_memory", "mpi_allreduce"),
    ("between_hosts", "mpi_shared_memory", "sockets"),
)
"""On equal workers and batches, unless the second one is one core."""
GROWING = {"batches": "global_batch_size", "traffic": "hosts"}
PAIRED_SEEDS = 32  # what compression costs in accuracy differs much from seed to seed, and each takes seconds
HEADLINES = (("bars", "mpi_shared_memory"), ("batches", "sequential"), ("headline", "host_threads"))


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Every pair of PAIRS and GROWING, each A/A pair, and alone what is left: cells that learn, seed after seed."""
    return back_to_back(jobs, PAIRS, GROWING, lambda job: (job.experiment, job.strategy) in HEADLINES, PAIRED_SEEDS)
