"""Cells whose global batch stays as it is, however many workers share it: the grids of notebooks 07 to 09.

    trained("processes", "learning", global_batch_size=32, workers=2)    two replicas with 16 images each
    trained("gpipe", "learning", global_batch_size=32, workers=2)        one replica of two stages: all 32 pass through

`Job.of` grows the batch with the workers (weak scaling), as the first paper does; here the parameters that come out of
synchronous training are those of one worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.engine.job import Job
from lockstep.engine.job.strategies import STRATEGIES

PLAIN_BATCH = 32
"""Table 2's of *ConvLSTM-D-Accel*; the linear rule counts from it."""


def trained(
    strategy: str, experiment: str, *, global_batch_size: int = PLAIN_BATCH, workers: int = 2, **fields: Any
) -> Job:
    """A cell whose global batch is split among its replicas, rounded up; `fields` are those of `Job.of`.

    Raises JobError for a strategy that does not exist and for impossible values.
    """
    shared_out = strategy in STRATEGIES and STRATEGIES[strategy].distributed and not _is_pipeline(strategy)
    share = max(1, -(-global_batch_size // workers)) if shared_out else global_batch_size
    return Job.of(
        strategy,
        experiment=experiment,
        workers=workers,
        per_worker_batch_size=share,
        global_batch_size=global_batch_size,
        **fields,
    )


def _is_pipeline(strategy: str) -> bool:
    """Do its workers hold parts of one replica, so that every image passes through all of them?"""
    return STRATEGIES[strategy].fields.get("model_parallel") == "pipeline"


def in_memory_format(jobs: Iterable[Job], memory_format: str) -> list[Job]:
    """The same cells with images in that memory format, where torch trains.

    TensorFlow lays images out as it likes: a job cannot ask it for another format.
    """
    return [job.with_(memory_format=memory_format) if job.framework == "torch" else job for job in jobs]
