"""Linear forecasters that all workers teach together: autoregression, and regression on the state of the system.

Both forecast y, the log of a worker's next seconds per sample, as a sum of coefficients times numbers that are known by
then. The coefficients are found by **recursive least squares with forgetting**: they minimise

    sum over rounds r  forget^(now - r)  sum over workers (y - coefficients . x)^2  +  RIDGE |coefficients - prior|^2

where the prior's coefficients repeat the worker's last value, so that a forecaster that has seen little is the one
that others must beat. A round is as many observations as there are workers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.forecasts.base import Array, Forecast, Seen
from lockstep.engine.forecasts.history import RecentSeconds
from lockstep.engine.forecasts.kept import Kept
from lockstep.engine.forecasts.system import FEATURES_PER_NUMBER, SystemFeatures
from lockstep.engine.options import option

RIDGE = 0.1
"""What the prior weighs, in observations."""


@dataclass(frozen=True)
class RegressionOptions:
    """How fast the past fades."""

    forget: float = option(0.98, "weight of a round relative to the one after it; 1 forgets nothing", above=0, most=1)


@dataclass(frozen=True)
class AutoregressionOptions(RegressionOptions):
    """Also how far back it looks."""

    order: int = option(4, "the last tasks of a worker that are looked at", least=1)


class SharedRegression(Kept):
    """Recursive least squares as above, by sums over workers of outer products; `prior` are the coefficients before."""

    kept: ClassVar[tuple[str, ...]] = ("_squares", "_products")

    def __init__(self, prior: Array, forget: float, workers: int) -> None:
        self.prior, self.forget, self.workers = prior, forget, workers
        self._squares = np.zeros((len(prior), len(prior)))  # sum of x x'
        self._products = np.zeros(len(prior))  # sum of (y - prior . x) x
        self._found: Array | None = None

    def load(self, state: Mapping[str, Any]) -> None:
        """As `Kept.load`."""
        self._found = None
        super().load(state)

    def learn(self, x: Array, y: Array) -> None:
        """x: [k, features], y: [k]."""
        fade = self.forget ** (len(y) / self.workers)
        self._squares = fade * self._squares + x.T @ x
        self._products = fade * self._products + x.T @ (y - x @ self.prior)
        self._found = None

    def coefficients(self) -> Array:
        """[features]: those that fit best."""
        if self._found is None:
            ridge = RIDGE * np.eye(len(self.prior))
            self._found = self.prior + np.linalg.solve(self._squares + ridge, self._products)
        return self._found


class _Linear(Forecast):
    """Forecasts exp(level + coefficients . x); level, the first seconds of all, only keeps x small.

    A kind says which numbers x are known before a task, and which of them is the worker's last value.
    """

    kept: ClassVar[tuple[str, ...]] = ("_level", "_x", "_fits", "_regression")
    last = 1
    """The column of x that holds the last value."""

    def __init__(self, workers: int, options: RegressionOptions, seed: int, features: int) -> None:
        super().__init__(workers, options, seed)
        self._level = float("nan")
        self._size(features)

    def _size(self, features: int) -> None:
        prior = np.zeros(features)
        prior[self.last] = 1
        self._x = np.full((self.workers, features), np.nan)
        self._fits = np.zeros(self.workers, bool)  # whether a worker's x is complete, and so an example
        self._regression = SharedRegression(prior, self.options.forget, self.workers)

    @property
    def coefficients(self) -> Array:
        """[features]: what x is multiplied by."""
        return self._regression.coefficients()

    def learn(self, seen: Seen) -> None:
        """Fits the coefficients to what followed, then keeps what the next forecast is made from."""
        if np.isnan(self._level):
            self._level = float(np.median(np.log(seen.seconds)))
        logs = np.log(seen.seconds) - self._level
        example = seen.follows & self._fits[seen.who]
        if example.any():
            self._regression.learn(self._x[seen.who[example]], logs[example])
        self._x[seen.who], self._fits[seen.who] = self.features(seen, logs)

    def centre(self) -> Array:
        """NaN where nothing was seen."""
        return np.exp(self._level + self._x @ self.coefficients)

    @abstractmethod
    def features(self, seen: Seen, logs: Array) -> tuple[Array, NDArray[np.bool_]]:
        """x, [k, features], for the task after the one seen, and whether it is complete."""


class Autoregression(_Linear):
    """log seconds = c + a_1 last + ... + a_order the one `order` tasks ago; one set of coefficients for all workers.

    After a gap the lags begin anew; until there are as many, the oldest one stands for those before it.
    """

    does = "autoregression by recursive least squares with forgetting, coefficients shared by all workers"
    options_kind = AutoregressionOptions
    kept: ClassVar[tuple[str, ...]] = ("_history",)

    def __init__(self, workers: int, options: AutoregressionOptions, seed: int) -> None:
        super().__init__(workers, options, seed, features=1 + options.order)
        self._history = RecentSeconds(workers, options.order)

    def features(self, seen: Seen, logs: Array) -> tuple[Array, NDArray[np.bool_]]:
        """1 and the lags, the latest first."""
        if not seen.follows.all():
            self._history.restart(seen.who[~seen.follows])
        self._history.add(seen.who, logs)
        lags = self._history.latest(seen.who, self.options.order)
        return np.column_stack([np.ones(len(logs)), lags]), self._history.count[seen.who] >= self.options.order


class LinearOnSystem(_Linear):
    """log seconds = c + a last + b . features of the system's state, as the worker's last task ended.

    The idea of Wrangler (Yadwadkar et al., 2014), which forecasts stragglers by a linear model of what its nodes'
    monitors report. Here the model is a regression, its numbers are those that come with `observe`, and each gives the
    three features of `SystemFeatures`. Without any it forecasts from the last value alone.
    """

    does = "linear regression on the state of the system, shared by all workers"
    options_kind = RegressionOptions
    kept: ClassVar[tuple[str, ...]] = ("_numbers", "_system")

    def __init__(self, workers: int, options: RegressionOptions, seed: int) -> None:
        super().__init__(workers, options, seed, features=2)
        self._begin(0)

    def _begin(self, numbers: int) -> None:
        self._numbers = numbers
        self._system = SystemFeatures(self.workers, numbers)
        self._size(2 + FEATURES_PER_NUMBER * numbers)

    def learn(self, seen: Seen) -> None:
        """The first observation says how many numbers there are."""
        if seen.readings.shape[1] != self._numbers:
            self._begin(seen.readings.shape[1])
        super().learn(seen)

    def features(self, seen: Seen, logs: Array) -> tuple[Array, NDArray[np.bool_]]:
        """1, the last value, and three for each number."""
        state = self._system.take(seen.who, seen.readings)
        return np.column_stack([np.ones(len(logs)), logs, state]), np.ones(len(logs), bool)

    def load(self, state: Mapping[str, Any]) -> None:
        """As every forecaster's."""
        self._begin(state.get("_numbers", 0))
        super().load(state)
