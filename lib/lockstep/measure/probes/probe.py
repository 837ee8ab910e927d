"""What a probe declares: an experiment whose cells measure something other than training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import Source

OF_PIPELINES = (
    "schedule", "stages", "stages_per_rank", "micro_batches", "partition", "activations", "global_batch_size",
    "variant",
)  # fmt: skip
"""The columns that tell cells of models cut into stages apart."""


@dataclass(frozen=True)
class Probe:
    """`run` is called on every rank in place of `run_job`. `tables`: each traced table that it adds rows to -> the
    fields of the job that stand before them, besides those that every table has."""

    run: Callable[[Job, Group, Site | None], Trace]
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    any_framework: bool = False  # else it measures torch alone
    restarts_team: bool = False  # in every round, so that `launch_seconds` is measured as often as all else
    lacking: Callable[[Job, Source | None], str | None] = lambda job, source: None
    """Why a cell can't be measured with these data, or None if it can: then its row is skipped."""


Probes = Mapping[str, Probe]
"""By the name of the experiment whose cells it measures; an experiment that is not named trains."""
