"""Cells that tell what the LSTM does from what a larger head does: the same training with other heads in its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lockstep.engine.job import Job, JobError
from lockstep.engine.models.layers import HEADS
from lockstep.experiments.fixed_batch import PLAIN_BATCH, trained

CNN, LSTM = "cnn", "lstm"
"""What stands beside the controls of `lockstep.engine.models.layers.HEADS`: no layer between features and output, and
the LSTM itself."""


def head_cells(
    use_case: str,
    *,
    names: Iterable[str],
    batch_sizes: Iterable[int],
    tuned: Iterable[str],
    learning_rates: Iterable[float],
    way: str,
    epochs: int,
    updates: int,
) -> list[Job]:
    """The CNN, the LSTM and the controls `names`: at Table 2's batch for `epochs` and, if there are any, for `updates`,
    and for `epochs` at the other `batch_sizes`. Those of `tuned` also with each of the learning rates, scored on
    held-out training images, so that each head can have a rate of its own.

    No controls and none tuned: no cells. Raises JobError for a name that does not exist.
    """
    controls, own = list(dict.fromkeys(names)), list(dict.fromkeys(tuned))
    known = (CNN, LSTM, *(name for name in HEADS if name not in ("default", LSTM)))
    if unknown := [name for name in (*controls, *own) if name not in known]:
        raise JobError(f"heads has {unknown[0]!r}, which does not exist; there are: {', '.join(known)}")
    shared: dict[str, Any] = {"use_case": use_case}
    jobs = []
    for name in dict.fromkeys((CNN, LSTM, *controls)) if controls else ():
        fields = shared | _network(name) | {"scored_on": "test"}
        sizes = dict.fromkeys((PLAIN_BATCH, *batch_sizes))
        jobs += [trained(way, "heads", global_batch_size=size, epochs=epochs, **fields) for size in sizes]
        if updates:
            jobs.append(trained(way, "heads", updates=updates, **fields))
    for name in own:
        fields = shared | _network(name) | {"scored_on": "validation", "epochs": epochs}
        jobs += [trained(way, "heads", learning_rate=float(rate), **fields) for rate in learning_rates]
    return _shortest_first(jobs)


def _network(name: str) -> dict[str, str]:
    """The job's options: the LSTM is what a convlstm has anyway."""
    if name in (CNN, LSTM):
        return {"network": CNN if name == CNN else "convlstm"}
    return {"network": "convlstm", "head": name}


def _shortest_first(jobs: Sequence[Job]) -> list[Job]:
    """A sequence of 512 steps takes most of the time: whoever stops early has the others."""
    return sorted(jobs, key=lambda job: job.head == "long")
