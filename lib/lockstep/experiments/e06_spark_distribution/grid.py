"""Notebook 06's cells: training on Spark beside MPI on the same cores, and Spark without training.

speedup       MPI, Spark's barrier mode and SparkNet beside one core         (Table 3 of the paper)
few           SparkNet on the 50x50 network, exchanging in every step and seldom
data          the same steps on fewer and on more images, the 50x50 network
preparation   images from files to Parquet, and from Parquet to tensors
overhead      Spark's own jobs: an empty one, a broadcast, a treeAggregate

Teams on Spark take some ten seconds to start, so their cells stand beside light ones wherever a verdict allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.experiments.back_to_back import Pair, back_to_back
from lockstep.experiments.e06_spark_distribution.tables import BESIDE, PAIRED
from lockstep.experiments.e06_spark_distribution.without_training import (
    DATA,
    FEW,
    OVERHEAD,
    PAPER_STYLE,
    PREPARATION,
    SPEEDUP,
)
from lockstep.experiments.experiment import Parameters
from lockstep.measure.planning import Comparison

VARIANTS: tuple[str, ...] = ("mpi_allreduce", "mpi_shared_memory", "spark_allreduce", "spark_shared_memory")
VARIANTS += ("sparknet", "sparknet_files", "sparknet_tau")
"""What `all` stands for where a parameter chooses them."""
WITH_MORE_DATA = ("sparknet", "sparknet_files", "mpi_allreduce")
SMALL = "Pneumonia"
"""Images of 50 x 50 pixels: a step of SparkNet on them takes a fraction of a second, and not some."""

JOBS_WITHOUT_TRAINING = 3
"""Spark's own jobs of each kind that are timed in a round."""

PAIRS: tuple[Pair, ...] = (
    (SPEEDUP, PAPER_STYLE, "sequential"),
    (SPEEDUP, "mpi_shared_memory", "sequential"),
    (SPEEDUP, "mpi_allreduce", "sequential"),
    *((SPEEDUP, strategy, BESIDE) for strategy in ("spark_allreduce", "spark_shared_memory")),
    *((SPEEDUP, strategy, "sequential") for strategy in ("sparknet_files", "sparknet_tau")),
    (FEW, "sparknet_tau", "sequential"),
    (FEW, "sparknet_tau", "sparknet_files"),
)
GROWING = {DATA: "images"}


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Every pair of PAIRS and GROWING, the A/A pair, and alone what is compared with no other cell."""
    return back_to_back(jobs, PAIRS, GROWING, _is_headline)


def _is_headline(job: Job) -> bool:
    big = job.experiment == SPEEDUP and job.use_case == "SimpleBig" and job.workers > 1
    return big and job.strategy in (PAPER_STYLE, "mpi_shared_memory")


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        jobs += _speedup(chosen, use_case)
    for strategy in ("sequential", "sparknet_files", "sparknet_tau"):
        jobs.append(_trained(chosen, FEW, strategy, SMALL))
    for images in chosen.data_sizes:
        for strategy in WITH_MORE_DATA:
            jobs.append(_trained(chosen, DATA, strategy, SMALL, images=images))
    for strategy in ("parquet_write", "parquet_read"):
        jobs.append(_on_spark(chosen, PREPARATION, strategy, images=chosen.prepared_images))
    return jobs + _overhead(chosen)


def _speedup(chosen: Parameters, use_case: str) -> list[Job]:
    """All variants on `workers`; the paper's on every number of them, for the paper does not state it."""
    strategies = chosen.of("variants", use_case)
    named = VARIANTS if strategies == ["all"] else tuple(strategies)
    jobs = [_trained(chosen, SPEEDUP, strategy, use_case) for strategy in ("sequential", *named)]
    for workers in chosen.of("worker_counts", use_case):
        if PAPER_STYLE in named and workers != chosen.workers:
            jobs.append(_trained(chosen, SPEEDUP, PAPER_STYLE, use_case, workers=workers))
    if PAIRED in named and use_case == chosen.use_cases[0]:
        jobs.append(_trained(chosen, SPEEDUP, PAIRED, use_case, variant="b"))  # an A/A pair with the first
    return jobs


def _overhead(chosen: Parameters) -> list[Job]:
    """Spark's own jobs, a task per worker, with as many bytes as SimpleBig has parameters unless a number is chosen."""
    alone = {"use_case": NO_USE_CASE, "input": "none", "steps": JOBS_WITHOUT_TRAINING}
    alone |= {"warmup_steps": chosen.warmup_steps}
    size = chosen.message_bytes or _parameter_bytes("SimpleBig")
    return [
        _on_spark(chosen, OVERHEAD, "spark_schedule", **alone),
        _on_spark(chosen, OVERHEAD, "spark_broadcast", message_bytes=size, **alone),
        _on_spark(chosen, OVERHEAD, "spark_aggregate", message_bytes=size, **alone),
    ]


def _parameter_bytes(use_case: str) -> int:
    """What the parameters of a use case's model take in float32."""
    from lockstep.measure.probes.exchange import parameter_count  # torch: figures and reports must not wait for it

    return 4 * parameter_count(use_case)


def _on_spark(chosen: Parameters, experiment: str, strategy: str, **fields: Any) -> Job:
    """A cell whose driver runs jobs of Spark and trains nothing."""
    where: dict[str, Any] = {"launcher": "spark_driver", "sync": "local", "workers": chosen.workers}
    return Job(experiment=experiment, strategy=strategy, **where, **fields)


def _trained(chosen: Parameters, experiment: str, strategy: str, use_case: str = "SimpleBig", **fields: Any) -> Job:
    given: dict[str, Any] = {"experiment": experiment, "use_case": use_case, "workers": chosen.workers}
    given |= {"steps": chosen.of("steps", use_case), "warmup_steps": chosen.warmup_steps}
    given |= {"per_worker_batch_size": chosen.of("per_worker_batch_size", use_case)}
    given |= fields
    if strategy == "sparknet_tau":  # one whole window of steps is measured, after another
        given |= {"exchange_every": chosen.tau, "steps": chosen.tau, "warmup_steps": chosen.tau}
    return Job.of(strategy, **given)


def traced(job: Job) -> bool:
    """The resources of the paper's way are shown: driver, JVMs and Python workers together."""
    return job.experiment == SPEEDUP and (job.use_case, job.strategy) == ("SimpleBig", PAPER_STYLE) and job.workers > 1
