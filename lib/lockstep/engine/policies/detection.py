"""Whoever takes much longer than the others is dropped, once that is seen.

The rule by which stragglers are defined throughout the literature that DPro-SM reviews (section 4, "drop stragglers"):
more than 1.5 times the median (Ouyang et al. 2019; Zaharia et al. 2008 for progress instead of time).
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.options import option
from lockstep.engine.policies.base import Needs
from lockstep.engine.policies.rounds import Floats, RoundPolicy

FACTOR = 1.5
"""Times the median, from which on a worker is a straggler."""


@dataclass(frozen=True)
class DetectionOptions:
    factor: float = option(FACTOR, "times the median of all workers' arrivals, after which nobody waits", least=1)


class DropAfterDetection(RoundPolicy):
    """A task of MapReduce is one worker's share of an update. The median of all is known when more than half have
    arrived; the round then closes at `factor` x median after it began, or when all are there. The samples of those who
    are dropped go back to the pool."""

    does = "a server waits for `factor` times the median arrival, then makes an update without those that are missing"
    label = "drop after detection"
    Options = DetectionOptions
    needs = Needs(recall=True)

    @property
    def survives_loss(self) -> int:
        return (self.setting.training - 1) // 2

    def limit_after(self, expected: int) -> int | None:
        return expected // 2 + 1

    def limit_seconds(self, arrivals: Floats, expected: int) -> float:
        return self.options.factor * median_of_all(arrivals, expected)


def median_of_all(arrivals: Floats, workers: int) -> float:
    """The median of `workers` arrivals of which the first, more than half, are known in order."""
    middle = workers // 2
    return float(arrivals[middle] if workers % 2 else (arrivals[middle - 1] + arrivals[middle]) / 2)
