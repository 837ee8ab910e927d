"""How long a visit of a cell takes: as seen in this folder, else elsewhere, else as the cells most like it suggest.
Pure: no clock.

The slowest visit counts, for the first of a cell starts its workers, and what is asked is what *cannot* end in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lockstep.analysis.tables import TRACE_SECONDS
from lockstep.engine import registry
from lockstep.engine.job import LEARNING, Job
from lockstep.measure.planning import Comparison

_ALIKE: tuple[Callable[[Job], tuple[Any, ...]], ...] = (
    lambda job: (job.experiment, job.use_case),
    lambda job: (job.repeated_by_seed, job.use_case),
    lambda job: (job.experiment,),
)
"""What two cells have in common that take a similar time: the first of these that any measured cell shares."""


class Durations:
    """Seconds of the slowest visit of each cell of a grid, and from these, or from what it took elsewhere, what an
    unmeasured one should take."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._slowest: dict[int, float] = {}
        self._elsewhere: dict[int, float] = {}
        self._of_kind: dict[tuple[Any, ...], tuple[float, float]] = {}  # the most seconds, the most per image

    def note(self, place: int, seconds: float) -> None:
        """A visit of the cell at this place of the grid took so long."""
        self._slowest[place] = max(seconds, self._slowest.get(place, 0.0))
        job = self._jobs[place]
        for level, kind in enumerate(_ALIKE):
            most, per_image = self._of_kind.get((level, *kind(job)), (0.0, 0.0))
            found = max(most, seconds), max(per_image, seconds / images_shown(job))
            self._of_kind[(level, *kind(job))] = found

    def expect(self, place: int, seconds: float) -> None:
        """A visit of the cell at this place took so long elsewhere, which counts until one of it is noted."""
        self._elsewhere[place] = seconds

    def visit(self, place: int) -> float:
        """Seconds of a visit; NaN where nothing like it was measured.

        An unmeasured cell takes as long as elsewhere, else as the slowest one like it, and longer in proportion if more
        images go through it; never less, for starting workers takes the same however little they do.
        """
        for seen in (self._slowest, self._elsewhere):
            if place in seen:
                return seen[place]
        job = self._jobs[place]
        for level, kind in enumerate(_ALIKE):
            if (known := self._of_kind.get((level, *kind(job)))) is not None:
                most, per_image = known
                return max(most, per_image * images_shown(job))
        return math.nan

    def of_visits(self, places: Iterable[int]) -> float:
        """Seconds of these visits together; NaN where one of them is not known."""
        return math.fsum(self.visit(place) for place in places)

    def of_round(self, comparison: Comparison) -> float:
        """Seconds of a round; of a trace those of two short runs and of the minute between."""
        if comparison.trace:
            return 2 * self.of_visits(comparison.cells) + TRACE_SECONDS
        return self.of_visits(comparison.visits)


def images_shown(job: Job) -> int:
    """How many images go through a cell in one visit, at least 1."""
    if job.experiment in LEARNING:
        return max(1, job.updates * job.global_batch_size or job.epochs * job.images)
    policy = registry.policy_named(job.policy)
    by_one = policy is not None and policy.updates_by_one
    return max(1, (job.warmup_steps + job.steps) * job.global_batch_size // (job.workers if by_one else 1))
