"""When a run ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lockstep.analysis.statistics import AnalysisError


@dataclass(frozen=True)
class Until:
    """The first of these that is reached; a run without any of them would never end, and is refused.

    `loss`: of the learner after an update. Everything is judged after updates, so the last one counts whole.
    """

    updates: int | None = None
    samples: int | None = None  # of updates, again those that are used twice
    seconds: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not given:
            raise AnalysisError("a run that ends neither by updates, samples, seconds nor loss has no end; give one")
        for name, value in given.items():
            if not value > 0 or not math.isfinite(value):
                raise AnalysisError(f"{name}={value} ends no run; give a number above 0")

    def reached(self, updates: int, samples: float, seconds: float, loss: float) -> bool:
        """Has a run with so many updates and samples, whose last update ended then, come to its end?"""
        return (
            (self.updates is not None and updates >= self.updates)
            or (self.samples is not None and samples >= self.samples)
            or (self.seconds is not None and seconds >= self.seconds)
            or (self.loss is not None and loss <= self.loss)
        )
