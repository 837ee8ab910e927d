"""One cell of an experiment's grid, as data.

A `Job` says WHAT is trained (use case, data, batch), WHERE (launcher, workers, cores) and HOW the
replicas agree (sync). It is JSON: it travels to the workers, and its fields are the identity columns
of `records.csv`, in this order. Its parts, one file each, are listed in `lockstep.engine.job.cell`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import lockstep.engine.job.strategies as strategies
from lockstep.engine.job.agreement import with_new_options
from lockstep.engine.job.cautions import cautions_of
from lockstep.engine.job.cell import NO_USE_CASE
from lockstep.engine.job.clock import LEARNING
from lockstep.engine.job.cut import OF_PIPELINES
from lockstep.engine.job.sizes import OF_SIZES, Sizes
from lockstep.engine.job.what import OF_LEARNING
from lockstep.engine.options import JobError, at_least

__all__ = [
    "CHOICES",
    "IDENTITY",
    "LEARNING",
    "NO_USE_CASE",
    "OF_LEARNING",
    "OF_PIPELINES",
    "OF_SIZES",
    "Job",
    "JobError",
    "at_least",
]


@dataclass(frozen=True)
@with_new_options
class Job(Sizes):
    """WHAT x WHERE x HOW. Every field is a column of `records.csv` (see `lockstep.records.COLUMNS`).

    Raises JobError, which names the field, its value and the fix, for what can't be run.
    """

    def check(self) -> None:
        super().check()
        self.check_strategies()

    def cautions(self, usable_cores: int) -> list[str]:
        """What is allowed but worth a warning and a note in the records."""
        return list(cautions_of(self, usable_cores))

    @classmethod
    def of(cls, strategy: str, *, workers: int = 1, per_worker_batch_size: int = 32, **others: Any) -> Job:
        """The job of a row of `job.strategies.STRATEGIES`; weak scaling: the batch grows with the workers.

        Raises JobError for a strategy that does not exist and for impossible values.
        """
        if strategy not in strategies.STRATEGIES:
            raise JobError(f"strategy={strategy!r} does not exist; there are: {', '.join(strategies.STRATEGIES)}")
        at_least("workers", workers, 1)
        at_least("per_worker_batch_size", per_worker_batch_size, 1)
        chosen: dict[str, Any] = dict(strategies.STRATEGIES[strategy].fields)
        chosen.update(others)
        count = workers if strategies.STRATEGIES[strategy].distributed else 1
        if chosen.get("shards") == strategies.PER_WORKER:
            chosen["shards"] = count
        # The same batch whether a budget of cores is spent on workers or inside one worker's operators.
        parts = workers if strategies.STRATEGIES[strategy].intra_op else count
        chosen.setdefault("global_batch_size", per_worker_batch_size * parts)
        # A budget of cores that a strategy spends on threads of one worker is spelt threads_per_worker.
        if strategies.STRATEGIES[strategy].intra_op:
            chosen.setdefault("threads_per_worker", workers)
        chosen.setdefault("cores_per_worker", chosen.get("threads_per_worker", 1))
        return cls(strategy=strategy, workers=count, per_worker_batch_size=per_worker_batch_size, **chosen)

    def with_(self, **changes: Any) -> Job:
        """A copy with some fields changed. Raises TypeError for a field that a job does not have."""
        return Job(**{**self.values, **changes})

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Raises JobError if a field is unknown."""
        values = json.loads(text)
        unknown = set(values) - set(IDENTITY)
        if unknown:
            raise JobError(f"unknown job field(s) {sorted(unknown)}; there are: {', '.join(IDENTITY)}")
        return cls(**values)

    @property
    def label(self) -> str:
        """Short name for progress and errors."""
        size = f"{self.workers}x{self.threads_per_worker}"
        if self.model_parallel == "pipeline":
            size += f" {self.stages} stages, {self.micro_batches} micro-batches,"
        chosen = [name for name in (self.network, self.head, self.framework) if name not in ("default", "torch")]
        what = " ".join([self.use_case, *chosen, self.strategy])
        return f"{what} {size} {self.precision} {self.input} batch {self.global_batch_size}"


IDENTITY: tuple[str, ...] = tuple(field.name for field in fields(Job))

CHOICES: dict[str, tuple[str, ...]] = {name: option.choices for name, option in Job.options().items() if option.choices}
"""The values of the text fields that have a fixed set of them; launcher, sync and strategy have lists of their own."""
