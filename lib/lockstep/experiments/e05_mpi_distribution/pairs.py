"""Which cells of notebook 05 stand back to back: all that its verdicts, tables and targets compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.engine.job import LEARNING, Job
from lockstep.measure.comparisons import SEEDS
from lockstep.measure.planning import Comparison

PAIRS: tuple[tuple[str, str, str], ...] = (
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
"""Experiment, one strategy (empty: every other) and the one beside it, on equal workers unless that is one core."""
GROWING = {"batches": "global_batch_size", "traffic": "hosts"}
"""Experiments of one strategy -> what grows: the others stand beside the smallest."""
HEADLINES = (("bars", "mpi_shared_memory"), ("batches", "sequential"), ("headline", "host_threads"))

_SAME = ("experiment", "use_case", "device", "precision", "message_bytes", "global_batch_size")
_SAME_WHERE = ("workers", "link_bits_per_second")


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Every pair of PAIRS and GROWING, each A/A pair, and alone what is left: cells that learn, seed after seed."""
    pairs = list(dict.fromkeys(_pairs(jobs)))
    paired = {place for pair in pairs for place in pair}
    together = [Comparison(pair, headline=_is_headline(jobs, pair)) for pair in pairs]
    alone = [
        Comparison((place,), seeds=SEEDS if job.experiment in LEARNING else 0)
        for place, job in enumerate(jobs)
        if place not in paired
    ]
    return [*together, *alone]


def _is_headline(jobs: Sequence[Job], pair: tuple[int, int]) -> bool:
    first = jobs[pair[0]]
    return (first.experiment, first.strategy) in HEADLINES


def _pairs(jobs: Sequence[Job]) -> Iterable[tuple[int, int]]:
    for experiment, above, under in PAIRS:
        for place, job in enumerate(jobs):
            fits = job.experiment == experiment and job.strategy != under and above in ("", job.strategy)
            if fits and job.variant == "a" and (beside := _beside(jobs, job, under)) is not None:
                yield place, beside
    for place, job in enumerate(jobs):
        if job.variant == "b":
            yield place, jobs.index(job.with_(variant="a"))
        if job.experiment in GROWING:
            grows = GROWING[job.experiment]
            own = [other for other in jobs if (other.experiment, other.use_case) == (job.experiment, job.use_case)]
            least = min(own, key=lambda other: getattr(other, grows))
            if least != job:
                yield place, jobs.index(least)


def _beside(jobs: Sequence[Job], job: Job, strategy: str) -> int | None:
    """The place of the first cell of `strategy` that is like `job` but for how it trains."""
    alone = strategy == "sequential"
    same = [name for name in (*_SAME, *_SAME_WHERE) if not (alone and name in (*_SAME_WHERE, "global_batch_size"))]
    for place, other in enumerate(jobs):
        if other.strategy == strategy and all(getattr(other, name) == getattr(job, name) for name in same):
            return place
    return None
