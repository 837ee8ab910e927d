"""Forecasts of every worker's completion time per sample, for policies on real ranks and in a simulation.

    forecast = make_forecast("ar:order=4,forget=0.98", workers=8, seed=0)
    forecast.observe(worker=3, task=0, seconds_per_sample=0.012)
    forecast.predict((0.5, 0.9))        # [workers, 2] seconds per sample of each worker's next task

A new kind is a class beside these and a line in `FORECASTS`. No file here imports torch before the LSTM is used.
"""

from __future__ import annotations

from lockstep.engine.forecasts.base import Forecast
from lockstep.engine.forecasts.follow_the_best import FollowTheBest
from lockstep.engine.forecasts.lstm import Lstm
from lockstep.engine.forecasts.regression import Autoregression, LinearOnSystem
from lockstep.engine.forecasts.simple import LastValue, Oracle, RunningMean, RunningMedian, Smoothing, Truth
from lockstep.engine.option_text import parse_named
from lockstep.engine.options import JobError

FORECASTS: dict[str, type[Forecast]] = {
    "last": LastValue,
    "mean": RunningMean,
    "median": RunningMedian,
    "smoothing": Smoothing,
    "ar": Autoregression,
    "linear": LinearOnSystem,
    "lstm": Lstm,
    "best": FollowTheBest,
    "oracle": Oracle,
}
"""By the name in an option's text."""


def make_forecast(text: str, workers: int, seed: int, truth: Truth | None = None) -> Forecast:
    """The forecaster that a text such as `last`, `mean:window=20` or `best:of=last+ar` describes.

    `truth` is for the oracle alone, which can't do without. Raises JobError for a text that names no forecaster, or
    options or values that it does not have, and ValueError for a number of workers or a seed that can't be.
    """
    name, options = parse_named(text, {kind: known.options_kind for kind, known in FORECASTS.items()}, "forecast")
    if name == "oracle":
        return Oracle(workers, options, seed, truth)
    if name == "best":
        members = [member.strip() for member in options.of.split("+")]
        if "best" in members or len(set(members)) < len(members):
            raise JobError(f"forecast={text!r}: each forecaster is named once in of=, and none of them is best")
        return FollowTheBest(workers, options, seed, [make_forecast(each, workers, seed, truth) for each in members])
    return FORECASTS[name](workers, options, seed)


__all__ = ["FORECASTS", "Forecast", "Truth", "make_forecast"]
