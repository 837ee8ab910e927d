"""Notebook 06's cells: training on Spark beside MPI on the same cores, and Spark without training.

speedup       MPI, Spark's barrier mode and SparkNet beside one core         (Table 3 of the paper)
data          the same steps on fewer and on more images
preparation   images from files to Parquet, and from Parquet to tensors
start         how long starting a team takes
overhead      Spark's own jobs: an empty one, a broadcast, a treeAggregate
"""

from __future__ import annotations

from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.experiments.e06_spark_distribution.tables import DATA, OVERHEAD, PAIRED, PREPARATION, SPEEDUP
from lockstep.experiments.experiment import Parameters

VARIANTS: tuple[str, ...] = ("mpi_allreduce", "mpi_shared_memory", "spark_allreduce", "spark_shared_memory")
VARIANTS += ("sparknet", "sparknet_files", "sparknet_tau")
"""What `all` stands for where a parameter chooses them."""
WITH_MORE_DATA = ("sparknet", "sparknet_files", "mpi_allreduce")
STARTED_ANEW = ("mpi_shared_memory", "spark_shared_memory")

SMALLEST_MESSAGE_BYTES = 4096
"""Of the teams whose start alone is measured."""
JOBS_WITHOUT_TRAINING = 3
"""Spark's own jobs of each kind that are timed in a round."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for use_case in chosen.use_cases:
        jobs += _speedup(chosen, use_case)
    jobs.append(_trained(chosen, SPEEDUP, PAIRED, variant="b"))  # an A/A pair with the first
    for images in chosen.data_sizes:
        for strategy in WITH_MORE_DATA:
            jobs.append(_trained(chosen, DATA, strategy, images=images, steps=chosen.data_steps))
    for strategy in ("parquet_write", "parquet_read"):
        jobs.append(_on_spark(chosen, PREPARATION, strategy, images=chosen.prepared_images))
    jobs += _starts(chosen)
    jobs += _overhead(chosen)
    return jobs


def _speedup(chosen: Parameters, use_case: str) -> list[Job]:
    strategies = chosen.of("variants", use_case)
    jobs = []
    for variant in ("a", "b"):  # an A/A pair
        jobs.append(_trained(chosen, SPEEDUP, "sequential", use_case, variant=variant))
    for workers in chosen.of("worker_counts", use_case):
        for strategy in VARIANTS if strategies == ["all"] else strategies:
            jobs.append(_trained(chosen, SPEEDUP, strategy, use_case, workers=workers))
    return jobs


def _starts(chosen: Parameters) -> list[Job]:
    """The least that a team can do: it is started anew in each round for these."""
    nothing: dict[str, Any] = {"input": "none", "message_bytes": SMALLEST_MESSAGE_BYTES, "steps": 1, "warmup_steps": 0}
    return [_trained(chosen, "start", strategy, **nothing) for strategy in STARTED_ANEW]


def _overhead(chosen: Parameters) -> list[Job]:
    """Spark's own jobs, a task per worker, with as many bytes as SimpleBig has parameters unless a number is chosen."""
    alone = {"use_case": NO_USE_CASE, "input": "none", "steps": JOBS_WITHOUT_TRAINING}
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
    given: dict[str, Any] = {
        "experiment": experiment,
        "use_case": use_case,
        "steps": chosen.of("steps", use_case),
        "warmup_steps": chosen.warmup_steps,
        "workers": chosen.workers,
        "per_worker_batch_size": chosen.of("per_worker_batch_size", use_case),
    }
    given |= fields
    if strategy == "sparknet_tau":  # one whole window of steps is measured, after another
        given |= {"exchange_every": chosen.tau, "steps": chosen.tau, "warmup_steps": chosen.tau}
    return Job.of(strategy, **given)


def traced(job: Job) -> bool:
    """The resources of `speedup` are shown: all processes of a cell together, Spark's JVMs included."""
    return job.experiment == SPEEDUP and job.variant == "a" and job.precision == "float32"
