"""DPro-SM, in every reading that its text allows.

Section 5 says of a predicted straggler

    gradient   that it is "replaced by the output of the n LSTM node", "replacing the function of the straggler node":
               an LSTM makes up its gradient
    weights    that "the LSTM node substitutes the weights for the straggler node": an LSTM makes up its parameters
    shares     (5.3) that the framework may "proactively deploy extra resources or tasks": what is forecast decides on
               the next shares (section 6: "decision-making on task assignment to employees")

and of when

    proactive  "the straggler node is proactively identified": whoever is forecast to be late is not waited for
    detected   "during the occurrence of a straggler node, a delay occurs, and the model detects the presence"

A standby node ("1 node", Table 2) that does a share itself is `resting.Standby`. The forecaster is the LSTM of section
5.3, or any other. A "task" of MapReduce is one worker's share of an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import choice, option
from lockstep.engine.policies.base import GradientStandIn, Needs, Setting
from lockstep.engine.policies.detection import FACTOR, median_of_all
from lockstep.engine.policies.forecasting import ForecastPolicy, forecast_option, predicted_stragglers, shares_by_speed
from lockstep.engine.policies.rounds import Closed, Floats, Whole
from lockstep.engine.policies.stand_ins import GRADIENTS, WEIGHTS


@dataclass(frozen=True)
class DproOptions:
    reading: str = choice("gradient", "weights", "shares", help="what the LSTM makes up, or what follows the forecast")
    when: str = choice("proactive", "detected", help="a straggler is forecast, or a delay was seen")
    stand_in: str = choice("lstm", *(kind for kind in GRADIENTS if kind != "lstm"), help="what makes up a gradient")
    forecast: str = forecast_option("lstm")
    factor: float = option(FACTOR, "times the median, from which on a worker is a straggler", above=1)


class DproSm(ForecastPolicy):
    """Gradient and weights: every worker is given its share. A round closes when all have come that are waited for:
    proactively all but the predicted stragglers, or else all until `factor` x the median arrival. Whoever is missing is
    recalled, its samples go back to the pool, and the stand-in gets its weight.

    Shares: a server waits for all. Proactively shares always follow the forecast; otherwise they are even, and follow
    it in the update after one in which a worker took more than `factor` x the median.
    """

    does = "stragglers are forecast by an LSTM; it makes up their gradients or weights, or shares follow the forecast"
    label = "DPro-SM"
    Options = DproOptions
    needs = Needs(recall=True, single_gradients=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._skipped = np.zeros(setting.workers, np.bool_)  # who is not waited for
        self._delayed = False

    @property
    def _replaces(self) -> bool:
        return bool(self.options.reading != "shares")

    @property
    def _proactive(self) -> bool:
        return bool(self.options.when == "proactive")

    @property
    def survives_loss(self) -> int:
        """Proactively none: a worker that was never late is waited for."""
        return (self.setting.training - 1) // 2 if self._replaces and not self._proactive else 0

    @property
    def stand_in_kinds(self) -> tuple[str, ...]:
        kind = WEIGHTS if self.options.reading == "weights" else self.options.stand_in
        return (kind,) if self._replaces and kind != "nothing" else ()

    def sizes(self, samples: int, present: Whole) -> Whole:
        if self._replaces or not (self._proactive or self._delayed):
            sizes = super().sizes(samples, present)
        else:
            sizes = shares_by_speed(samples, self.predicted()[present])
        self._given_to = present[sizes > 0]
        return sizes

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        if not self._skipped.any():
            return super().closes_at(order, expected)
        skipped = self._given_to[self._skipped[self._given_to]].tolist()
        needed = expected - sum(worker not in self._gone for worker in skipped)
        if needed < 1:
            return super().closes_at(order, expected)
        waited = np.cumsum(~self._skipped[np.asarray(order, np.int64)])
        return int(np.searchsorted(waited, needed)) + 1 if len(waited) and waited[-1] >= needed else None

    def limit_after(self, expected: int) -> int | None:
        return None if self._proactive or not self._replaces else expected // 2 + 1

    def limit_seconds(self, arrivals: Floats, expected: int) -> float:
        return self.options.factor * median_of_all(arrivals, expected)

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """With a stand-in, whoever is missing has the weight of its share."""
        total = sum(samples) + sum(self._replaced(workers).values())
        return [own / total if total else 0.0 for own in samples]

    def stand_ins(self, missing: Sequence[int]) -> tuple[GradientStandIn, ...]:
        del missing
        replaced = self._replaced(list(self._here))
        total = sum(one.samples for one in self._here.values()) + sum(replaced.values())
        return tuple(
            GradientStandIn(worker, self.stand_in_kinds[0], samples / total) for worker, samples in replaced.items()
        )

    def _replaced(self, here: Sequence[int]) -> dict[int, int]:
        """Samples of those that a stand-in replaces, by worker: of all who were given work and are not here."""
        if not self.stand_in_kinds:
            return {}
        missing = sorted(self._working.difference(here))
        return {worker: self._given[worker].samples for worker in missing}

    def closed(self, over: Closed) -> None:
        """Hears who took how long, and says who will."""
        super().closed(over)
        if not self._replaces:
            self._delayed = _was_late(over, self.options.factor)
        elif self._proactive:
            self._skipped[:] = False
            self._skipped[predicted_stragglers(self.predicted(), self.options.factor)] = True

    def state(self) -> dict[str, Any]:
        return super().state() | {"skipped": self._skipped.tolist(), "delayed": self._delayed}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._skipped = np.array(state["skipped"], np.bool_)
        self._delayed = bool(state["delayed"])


def _was_late(over: Closed, factor: float) -> bool:
    """Did a worker take more than `factor` x the median of all?"""
    here = over.seconds[~np.isnan(over.seconds)]
    return bool(len(here) and here.max() > factor * np.median(here))
