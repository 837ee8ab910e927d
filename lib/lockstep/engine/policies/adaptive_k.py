"""The first k contributions make an update, and k grows when training stands still.

Hanna et al. 2020, "Adaptive distributed stochastic gradient descent for minimizing delay in the presence of stragglers"
(reference 21 of DPro-SM), Algorithm 1: few workers while the error falls quickly, more when it meets the noise of their
gradients. Xiong et al. 2021, "dynamic backup workers" (reference 23), vary the number likewise, without a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Needs, Setting
from lockstep.engine.policies.rounds import Closed, RoundPolicy, Whole


@dataclass(frozen=True)
class AdaptiveKOptions:
    k: int = option(1, "contributions that make an update at first", least=1)
    step: int = option(1, "contributions that are added each time", least=1)
    threshold: int = option(10, "updates whose loss rose, less those whose loss fell, before k grows", least=0)
    burn_in: int = option(20, "updates between two changes of k at least", least=0)


class AdaptiveK(RoundPolicy):
    """A task of MapReduce is one worker's share of an update; late workers are recalled.

    The signal: Algorithm 1 counts how often consecutive gradients point against each other, after Pflug. A server that
    only hears numbers sees the same in the loss: along -g(j-1) the loss rises, to first order, where g(j) and g(j-1)
    point against each other. So +1 where the mean loss of an update's contributions is above that of the update before
    it, -1 where it is below; above `threshold`, and `burn_in` updates after the last change, k grows by `step`.
    """

    does = "a server makes an update of the first k contributions; k grows when the loss stops falling"
    label = "adaptive k"
    Options = AdaptiveKOptions
    needs = Needs(recall=True, loss=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.k = self.options.k
        self._rises = self._updates = 0
        self._loss = float("nan")

    def check_setting(self) -> None:
        if self.options.k > self.setting.training:
            workers = self.setting.training
            raise JobError(f"k={self.options.k} of {workers} workers is not possible; give at most as many")

    @property
    def survives_loss(self) -> int:
        """As long as k has not grown so far."""
        return self.setting.training - self.k

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        needed = self.enough_of(self.k, expected)
        return needed if len(order) >= needed else None

    def closed(self, over: Closed) -> None:
        """Compares the loss with that of the update before, weighed by samples."""
        if over.losses is None:
            return
        here = ~np.isnan(over.losses) & (over.samples > 0)
        if not here.any():
            return
        loss = float(np.average(over.losses[here], weights=over.samples[here]))
        self._rises += (loss > self._loss) - (loss < self._loss)
        self._loss = loss
        self._updates += 1
        grown = min(self.k + self.options.step, self.setting.training)
        if self._rises > self.options.threshold and self._updates > self.options.burn_in and grown > self.k:
            self.k, self._rises, self._updates = grown, 0, 0

    def facts(self) -> dict[str, float]:
        return {"k": float(self.k)}

    def state(self) -> dict[str, Any]:
        own = {"k": self.k, "rises": self._rises, "updates": self._updates, "loss": self._loss}
        return super().state() | {"adaptive_k": own}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        own = state["adaptive_k"]
        self.k, self._rises, self._updates = int(own["k"]), int(own["rises"]), int(own["updates"])
        self._loss = float(own["loss"])
