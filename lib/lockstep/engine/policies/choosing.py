"""Chooses among round-by-round rules by replaying the last rounds under each of them.

    round      0 ............ 24 | 25 ........... 49 | 50 ...
    rule       wait for all      | k = 6             | k = 7
    at its end  every candidate is asked when it would have closed each of the last rounds: the cheapest goes on

A round is worth the samples that it brings: the cost of a rule is the seconds of its rounds over their samples. Of a
worker that was recalled only the least that it would have taken is known. It is taken to have needed what it needed
in one of the rounds in which all came, if that was more, or else one of the others then. So that there are such
rounds, once in `explore` choices everybody is waited for in one round. No round lasts longer than ten times what half
of the workers need: one that never comes must not stop all.

The replay knows no link and no update, which cost all candidates the same. `lockstep.simulate` has both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import option
from lockstep.engine.policies.base import Needs, Setting
from lockstep.engine.policies.k_sync import KSync, KSyncOptions
from lockstep.engine.policies.rounds import Closed, Floats, RoundPolicy, Whole
from lockstep.engine.policies.wait_for_all import WaitForAll

LONGER = 1.5
"""What a recalled worker would have taken where nothing else is known, as a multiple of the round that it missed."""
PATIENCE = 10.0
"""The longest round, as a multiple of the time that half of the workers need."""
COMPLETE = 25
"""Rounds in which all came that are remembered."""


@dataclass(frozen=True)
class ChoosingOptions:
    every: int = option(25, "rounds between two choices", least=1)
    window: int = option(50, "rounds that are replayed", least=1)
    explore: int = option(2, "choices after which one round waits for everybody", least=1)


class Choosing(RoundPolicy):
    """Among waiting for all and for the first k, for up to nine k between half of the workers and all but one."""

    does = "a server replays the last rounds under several rules, and goes on with the cheapest"
    label = "chosen by replay"
    Options = ChoosingOptions
    needs = Needs(recall=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.candidates = candidates(setting)
        self.chosen = 0
        self._choices = 0
        self._exploring = False
        self._rounds: deque[Floats] = deque(maxlen=self.options.window)
        self._complete: deque[Floats] = deque(maxlen=COMPLETE)

    @property
    def survives_loss(self) -> int:
        return self.setting.training - max(1, self.setting.training // 2)

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        if self._exploring:
            return super().closes_at(order, expected)
        return self.candidates[self.chosen].closes_at(order, expected)

    def limit_after(self, expected: int) -> int | None:
        return max(1, expected // 2)

    def limit_seconds(self, arrivals: Floats, expected: int) -> float:
        del expected
        return PATIENCE * float(arrivals[-1])

    def closed(self, over: Closed) -> None:
        """Remembers the round, unless its batch was so short that some had no sample, and chooses if it is time."""
        own = over.arrivals[: self.setting.training]
        if np.count_nonzero(over.given[: self.setting.training]) >= self.alive:
            if not np.isnan(own).any():
                self._complete.append(own)
            self._rounds.append(self._completed(own))
        self._exploring = False
        if (self.round + 1) % self.options.every == 0:
            self._choices += 1
            self._exploring = self._choices % self.options.explore == 0
            self.chosen = int(np.argmin(replayed_costs(self.candidates, self._rounds)))

    def _completed(self, seconds: Floats) -> Floats:
        """With what those would have needed who did not come."""
        least, filled = 0.999 * float(np.nanmax(seconds)), seconds.copy()  # it may have been about to come
        missing = np.flatnonzero(np.isnan(seconds))
        seen = np.array(self._complete).reshape(-1, len(seconds))
        longer = seen[seen >= least]
        filled[missing] = longer[(self.round + missing) % len(longer)] if len(longer) else LONGER * least
        was_longer = seen[:, missing] >= least
        times = was_longer.sum(axis=0)
        own = missing[times > 0]
        nth = (self.round + own) % times[times > 0] + 1
        filled[own] = seen[(was_longer[:, times > 0].cumsum(axis=0) < nth).sum(axis=0), own]
        return filled

    def facts(self) -> dict[str, float]:
        """The rule that it has come to: so many contributions close a round."""
        rule = self.candidates[self.chosen]
        return {"chosen_contributions": float(rule.k if isinstance(rule, KSync) else self.setting.training)}

    def state(self) -> dict[str, Any]:
        own = {"chosen": self.chosen, "choices": self._choices, "exploring": self._exploring}
        seen = {name: [one.tolist() for one in getattr(self, f"_{name}")] for name in ("rounds", "complete")}
        return super().state() | own | seen

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.chosen, self._choices = int(state["chosen"]), int(state["choices"])
        self._exploring = bool(state["exploring"])
        self._rounds.extend(np.array(one, dtype=np.float64) for one in state["rounds"])
        self._complete.extend(np.array(one, dtype=np.float64) for one in state["complete"])


def candidates(setting: Setting) -> list[RoundPolicy]:
    """Wait for all first, then k-sync with the largest k first."""
    workers = setting.training
    if workers == 1:
        return [WaitForAll(setting)]
    ks = np.unique(np.linspace(max(1, workers // 2), workers - 1, 9).round().astype(int))[::-1].tolist()
    return [WaitForAll(setting), *(KSync(setting, KSyncOptions(k=k)) for k in ks)]


def replayed_costs(rules: Sequence[RoundPolicy], rounds: Sequence[Floats] | deque[Floats]) -> list[float]:
    """Seconds per contribution that each of `rules`, which have no limit, would have needed in these rounds: float64
    [workers] each, seconds until a worker would have come. Infinite for one that would have closed none."""
    total, came = [0.0] * len(rules), [0] * len(rules)
    for seconds in rounds:
        order = np.argsort(seconds, kind="stable")
        for place, rule in enumerate(rules):
            enough = rule.closes_at(order, len(order))
            if enough is not None:
                total[place] += float(seconds[order[enough - 1]])
                came[place] += enough
    return [spent / many if many else float("inf") for spent, many in zip(total, came, strict=True)]
