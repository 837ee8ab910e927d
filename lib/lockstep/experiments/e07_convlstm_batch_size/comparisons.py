"""Which of notebook 07's cells stand back to back, and with how many seeds a cell learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.engine.job import LEARNING, Job
from lockstep.experiments.e07_convlstm_batch_size.grid import SAME
from lockstep.experiments.fixed_batch import PLAIN_BATCH
from lockstep.measure.comparisons import SEEDS
from lockstep.measure.planning import Comparison

_PLAIN: Mapping[str, Any] = {"network": "cnn", "dropout": 0.0, "weight_decay": 0.0, "pooling": "default"}
_SOME_SEEDS, _FEW_SEEDS = 12, 8
_SECONDS_IMAGES = 5200  # an image takes about a millisecond of two cores


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Timed cells in the pairs that tables and verdicts compare; a cell that learns alone, seed after seed.

    Headlines are the ways that the paper may have trained in, at Table 2's batch, and the ConvLSTM's data-parallel
    steps beside a CNN's by one worker.
    """
    places = {job: place for place, job in enumerate(jobs)}
    timed = [job for job in jobs if job.experiment == "speed"]
    pairs = dict.fromkeys(pair for job in timed for pair in _pairs(job, timed))
    found = [Comparison((places[above], places[under]), _over_cnn(above, under)) for above, under in pairs]
    there = {job for pair in pairs for job in pair}
    for job, place in places.items():
        if job not in there:
            found.append(Comparison((place,), _table2(job), seeds_of(job)))
    return found


def _pairs(job: Job, timed: Sequence[Job]) -> Iterator[tuple[Job, Job]]:
    """Each pair in which `job` is the first: beside sequential training (a second run beside the first), the ConvLSTM
    beside the CNN, TensorFlow beside torch, the plain CNN beside what is added to it, and two processes with a larger
    batch beside two with Table 2's."""
    if job.variant != "a":
        yield from ((job, other) for other in timed if other == job.with_(variant="a"))
        return
    if job.strategy != "sequential":
        yield from ((job, other) for other in _sequential(job, timed))
        if (job.strategy, job.framework) == ("processes", "torch") and job.global_batch_size > PLAIN_BATCH:
            plain = {"strategy": "processes", "global_batch_size": PLAIN_BATCH}
            yield from ((job, other) for other in _sequential(job, timed, **plain))
        if job.framework == "tensorflow":
            yield from ((job, other) for other in _sequential(job, timed, framework="torch", strategy=job.strategy))
        if (job.network, job.framework, job.model_parallel) == ("convlstm", "torch", "none"):
            yield from ((job, other) for other in _sequential(job, timed, network="cnn"))
        return
    if job.framework == "tensorflow":
        yield from ((job, other) for other in _sequential(job, timed, framework="torch"))
        return
    yield from ((job, other) for other in _sequential(job, timed, **_PLAIN) if other != job)


def _sequential(job: Job, timed: Sequence[Job], **changed: Any) -> list[Job]:
    """The sequential cell that shares SAME with a timed one, but for the fields `changed`."""
    wanted = {name: getattr(job, name) for name in SAME} | {"strategy": "sequential", "variant": "a", **changed}
    return [each for each in timed if all(getattr(each, name) == value for name, value in wanted.items())]


def _over_cnn(above: Job, under: Job) -> bool:
    return above.workers > 1 and (above.network, under.network) == ("convlstm", "cnn")


def _table2(job: Job) -> bool:
    """Trained by data parallelism with Table 2's batch, at equal epochs, and nothing added: not by a pipeline."""
    return _at_table2(job) and job.model_parallel == "none" and job.network != "convlstm2d"


def _at_table2(job: Job) -> bool:
    plain = (job.global_batch_size, job.updates, job.framework) == (PLAIN_BATCH, 0, "torch")
    return job.experiment == "learning" and plain and job.learning_rate_rule == "constant"


def seeds_of(job: Job) -> int:
    """With how many seeds a cell learns; 0 for one that does not.

    SEEDS where a training takes seconds, and for what claims are judged by within 2 points: the difference of the two
    networks, and the ConvLSTM in every way that the paper may have trained in; fewer where one takes half a minute or
    other claims are judged by it, and fewest where it takes a minute or what is shown is large.
    """
    if job.experiment not in LEARNING:
        return 0
    shown = job.updates * job.global_batch_size or job.epochs * (job.images or 2000)
    if job.experiment == "heads" and job.head != "long":
        return SEEDS  # whether a larger head or the LSTM is what gains lies in a point or two
    papers_own = _at_table2(job) and job.network == "convlstm"
    if shown <= _SECONDS_IMAGES or papers_own or (_table2(job) and job.synchronous):
        return SEEDS
    large = job.experiment not in ("learning", "selected", "paired", "ablation") or job.global_batch_size > PLAIN_BATCH
    return _FEW_SEEDS if large else _SOME_SEEDS
