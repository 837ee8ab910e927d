"""Follow the best: several forecasters watch, and the one that was the best lately speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lockstep.engine.forecasts.base import Array, Forecast, Seen
from lockstep.engine.options import option


@dataclass(frozen=True)
class BestOptions:
    """Who is followed, and how fast errors are forgotten."""

    of: str = option("last+median+smoothing+ar", "names of forecasters, joined by +; each has its usual options")
    discount: float = option(0.98, "weight of a round's errors relative to the round after it", above=0, most=1)


class FollowTheBest(Forecast):
    """Forecasts what the member forecasts whose discounted sum of absolute log errors is the lowest so far.

    One member speaks for all workers. A member that can't forecast a worker yet is charged as much as the worst that
    can; of equals the first one named is followed.
    """

    does = "the forecaster with the lowest discounted error so far"
    options_kind = BestOptions
    kept: ClassVar[tuple[str, ...]] = ("_members", "_losses")

    def __init__(self, workers: int, options: BestOptions, seed: int, members: Sequence[Forecast] = ()) -> None:
        """Raises ValueError without members, and for members of another number of workers."""
        super().__init__(workers, options, seed)
        if not members or any(member.workers != workers for member in members):
            found = [member.workers for member in members]
            raise ValueError(f"best: give one forecaster or more of {workers} workers, not of {found}")
        self._members = list(members)
        self._losses = np.zeros(len(members))

    @property
    def followed(self) -> int:
        """The number of the member that speaks, in the order in which they are named."""
        return int(np.argmin(self._losses))

    def learn(self, seen: Seen) -> None:
        """Charges every member for what it said of these tasks, then lets all of them learn."""
        known = seen.following()
        self._losses *= self.options.discount ** (len(seen.who) / self.workers)
        if known.who.size:
            said = np.stack([member.standing()[known.who] for member in self._members])
            errors = np.abs(np.log(known.seconds / said))
            worst = np.where(np.isfinite(errors), errors, 0).max(axis=0)
            self._losses += np.where(np.isfinite(errors), errors, worst).sum(axis=1)
        for member in self._members:
            member.take(seen)

    def centre(self) -> Array:
        """What the best member says."""
        return self._members[self.followed].standing().copy()

    def idle(self, budget_seconds: float) -> None:
        """Those members that train share it."""
        training = [member for member in self._members if type(member).idle is not Forecast.idle]
        for member in training:
            member.idle(budget_seconds / len(training))
