"""What policies that forecast have in common: a forecaster that hears of every round, and shares that follow it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.engine.options import option
from lockstep.engine.policies.base import Setting
from lockstep.engine.policies.rounds import Closed, Floats, RoundPolicy, Whole, even


def forecast_option(default: str) -> Any:
    """A field of a policy's options. Semicolons separate a forecaster's own options: commas separate a policy's."""
    return option(default, "the forecaster, such as last or smoothing:alpha=0.5 (semicolons between its own options)")


def forecaster(text: str, setting: Setting) -> Any:
    """The `Forecast` of a policy. Raises JobError for a text that names none, or one that this setting can't have."""
    from lockstep.engine.forecasts import make_forecast

    return make_forecast(text.replace(";", ","), setting.workers, setting.seed, setting.truth)


class ForecastPolicy(RoundPolicy):
    """A round-by-round policy with an option `forecast`.

    Forecasts are seconds per sample of each worker's next task, on its own clock. Of a worker that was recalled it is
    only known that it would have taken longer than the round: it counts as having taken what was forecast, or, if that
    is more, the seconds of the round. So a straggler is not taken for a fast worker because nobody waited for it, and
    one that recovers is seen as soon as it comes in time again.
    """

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.forecast = forecaster(self.options.forecast, setting)

    def predicted(self) -> Floats:
        """Seconds per sample, [workers]; all NaN before anything is known."""
        return self.quantiles(0.5)[:, 0]

    def quantiles(self, *quantiles: float) -> Floats:
        """[workers, quantiles] of the same."""
        return np.asarray(self.forecast.predict(quantiles), np.float64)

    def closed(self, over: Closed) -> None:
        """The forecaster hears of the round."""
        seconds, samples = over.seconds.copy(), over.samples
        missing = np.isnan(seconds) & (over.given > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(samples > 0, seconds / samples, np.nan)
            if missing.any():
                longer = np.fmax(over.lasted / over.given, self.predicted())
                each[missing] = longer[missing]
        self._observe(each, over)

    def _observe(self, each: Floats, over: Closed) -> None:
        known = np.isfinite(each) & (each > 0)
        if known.any():
            self.forecast.observe_round(np.where(known, each, np.nan), over.tasks, over.system)

    def state(self) -> dict[str, Any]:
        return super().state() | {"forecast": self.forecast.state()}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.forecast.load(state["forecast"])


def shares_by_speed(samples: int, seconds_per_sample: Floats) -> Whole:
    """Shares that end at the same time if the forecasts hold, int64 [workers], which sum to `samples`: in proportion to
    1 / seconds per sample, by largest remainders, and at least one sample each where there are enough. Even shares
    where a forecast is missing."""
    workers = len(seconds_per_sample)
    if samples <= workers or not np.isfinite(seconds_per_sample).all():
        return even(samples, workers)
    speed = 1 / seconds_per_sample
    ideal = samples * speed / speed.sum()
    few = ideal < 1
    while few.any():
        rest = (samples - few.sum()) * speed / speed[~few].sum()
        again = few | (rest < 1)
        ideal = np.where(few, 1.0, rest)
        if (again == few).all():
            break
        few = again
    sizes = np.floor(ideal).astype(np.int64)
    left = samples - int(sizes.sum())
    sizes[np.argsort(sizes - ideal, kind="stable")[:left]] += 1
    return sizes


def predicted_stragglers(seconds_per_sample: Floats, factor: float, usual: Floats | None = None) -> Whole:
    """The workers that take more than `factor` x the median of `usual` (or of these themselves), the slowest first."""
    usual = seconds_per_sample if usual is None else usual
    if not np.isfinite(usual).any():
        return np.empty(0, np.int64)
    limit = factor * np.nanmedian(usual)
    slowest = np.argsort(-seconds_per_sample, kind="stable")
    return slowest[seconds_per_sample[slowest] > limit]
