"""Workers that get no work for some rounds, and what they would have done goes to others.

    round      0   1   2   3   4   5   6
    worker 0   x   x   x   x   x   x   x
    worker 1   x   x   -   -   -   x   x        rests for 3 rounds, then is tried again
    standby            x   x   x                takes its share, or else the others share it

Nobody hears from a worker that rests, so it is tried again after some rounds, whatever the forecast was.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Setting
from lockstep.engine.policies.detection import FACTOR
from lockstep.engine.policies.forecasting import ForecastPolicy, forecast_option, predicted_stragglers
from lockstep.engine.policies.rounds import Closed, RoundPolicy, Whole, even


class Resting(RoundPolicy):
    """Remembers who rests until which round. Options: `rounds`."""

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._until = np.zeros(setting.workers, np.int64)  # the round in which each works again

    @abstractmethod
    def chosen(self, over: Closed) -> Whole:
        """The workers that shall rest from now on, the worst first."""

    @property
    def at_most(self) -> int:
        """Workers that rest at the same time."""
        return self.setting.training // 2

    def rests(self, round_: int) -> Whole:
        """Who rests in that round."""
        return np.flatnonzero(self._until > round_)

    def closed(self, over: Closed) -> None:
        super().closed(over)
        trained = over.given[: self.setting.training] > 0
        worst = [worker for worker in self.chosen(over).tolist() if worker < len(trained) and trained[worker]]
        free = max(self.at_most - len(self.rests(self.round + 1)), 0)
        self._until[worst[:free]] = self.round + 1 + self.options.rounds

    def sizes(self, samples: int, present: Whole) -> Whole:
        """Even shares of those who do not rest, or of all where nobody else is left."""
        works = self._until[present] <= self.round
        if not works.any():
            return even(samples, len(present))
        sizes = np.zeros(len(present), np.int64)
        sizes[works] = even(samples, int(works.sum()))
        return sizes

    def state(self) -> dict[str, Any]:
        return super().state() | {"until": self._until.tolist()}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._until = np.array(state["until"], np.int64)


@dataclass(frozen=True)
class WranglerOptions:
    forecast: str = forecast_option("linear")
    factor: float = option(FACTOR, "times the median forecast, from which on a worker is a straggler", above=1)
    confidence: float = option(0.7, "of a forecast, above which work is deferred", above=0, below=1)
    rounds: int = option(2, "for which a predicted straggler gets no work", least=1)


class Wrangler(Resting, ForecastPolicy):
    """Yadwadkar et al. 2014, "Wrangler: predictable and faster jobs using fewer resources" (reference 46 of DPro-SM):
    a linear model on counters of the node predicts stragglers, and no task starts on such a node if the model is
    confident enough; nothing is computed twice. A "task" of MapReduce is one worker's share of an update. The source
    hears from nodes by heartbeats; here they are heard of with their contributions, so that a node is tried again
    after `rounds`.

    Confident: the quantile 1 - `confidence` of a worker's forecast is above `factor` x the median forecast.
    """

    does = "predicted stragglers get no work for some updates, and the others share it"
    label = "Wrangler"
    Options = WranglerOptions

    def chosen(self, over: Closed) -> Whole:
        usual, at_least = self.quantiles(0.5, 1 - self.options.confidence).T
        return predicted_stragglers(at_least, self.options.factor, usual)


@dataclass(frozen=True)
class StandbyOptions:
    forecast: str = forecast_option("lstm")
    factor: float = option(FACTOR, "times the median forecast, from which on a worker is a straggler", above=1)
    rounds: int = option(4, "for which a standby node does the work of a predicted straggler", least=1)


class Standby(Resting, ForecastPolicy):
    """DPro-SM, Table 2 ("standby nodes: 1 node") and section 5.3 ("proactively deploy extra resources"): a node that
    stands by takes over the share of a worker that is forecast to be late, or of one that has left. A "task" of
    MapReduce is one worker's share of an update."""

    does = "a standby node does the share of a predicted straggler"
    label = "standby node"
    Options = StandbyOptions

    def check_setting(self) -> None:
        if not self.setting.standby:
            raise JobError(f"standby=0 of {self.workers} workers: there is no node to take over; give at least 1")

    @property
    def eligible(self) -> int:
        return self.workers

    @property
    def at_most(self) -> int:
        return min(self.setting.standby, self.setting.training - 1)

    def chosen(self, over: Closed) -> Whole:
        return predicted_stragglers(self.predicted(), self.options.factor)

    def sizes(self, samples: int, present: Whole) -> Whole:
        """As many shares as workers train: of those who do not rest, then of standby nodes."""
        resting = self._until[present] > self.round
        places = np.concatenate([np.flatnonzero(~resting), np.flatnonzero(resting)])[: self.setting.training]
        sizes = np.zeros(len(present), np.int64)
        sizes[np.sort(places)] = even(samples, len(places))
        return sizes


@dataclass(frozen=True)
class BlacklistOptions:
    factor: float = option(FACTOR, "times the median, from which on a worker was a straggler", above=1)
    window: int = option(20, "last rounds of a worker that are judged", least=1)
    share: float = option(0.5, "of these in which it was a straggler, from which on it is blacklisted", above=0, most=1)
    rounds: int = option(50, "that a worker stays on the list", least=1)


class Blacklisting(Resting):
    """Ouyang et al. 2019, "Mitigating stragglers to avoid QoS violation for time-critical applications through dynamic
    server blacklisting" (reference 24 of DPro-SM): servers that straggle again and again get no tasks for a while; the
    list is dynamic, and no more than half of them are on it. A "task" of MapReduce is one worker's share of an update.
    It answers to lasting causes, not to a single delay."""

    does = "workers that were stragglers in a share of the last updates get no work for some time"
    label = "blacklisting"
    Options = BlacklistOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._history = np.zeros((setting.workers, self.options.window), np.bool_)
        self._judged = np.zeros(setting.workers, np.int64)

    def chosen(self, over: Closed) -> Whole:
        """Judged once a worker has a full window; afterwards it begins with an empty one."""
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(over.samples > 0, over.seconds / over.samples, np.nan)
        here = np.flatnonzero(np.isfinite(each))
        if not len(here):
            return here
        late = each > self.options.factor * np.median(each[here])
        self._history[here, self._judged[here] % self.options.window] = late[here]
        self._judged[here] += 1
        share = np.where(self._judged >= self.options.window, self._history.mean(axis=1), 0)
        worst = np.argsort(-share, kind="stable")
        return worst[share[worst] >= self.options.share]

    def closed(self, over: Closed) -> None:
        before = self._until.copy()
        super().closed(over)
        self._judged[self._until > before] = 0

    def state(self) -> dict[str, Any]:
        return super().state() | {"history": self._history.tolist(), "judged": self._judged.tolist()}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._history = np.array(state["history"], np.bool_)
        self._judged = np.array(state["judged"], np.int64)
