"""Each forecaster by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.engine.forecasts import make_forecast
from lockstep.engine.forecasts.follow_the_best import BestOptions, FollowTheBest
from lockstep.engine.forecasts.regression import Autoregression, LinearOnSystem
from lockstep.engine.forecasts.scores import mean_absolute_error, onsets, walk


def after(text: str, *values: float) -> float:
    """What is forecast for one worker that has shown `values`."""
    forecast = make_forecast(text, 1, 0)
    for task, value in enumerate(values):
        forecast.observe(0, task, value)
    return float(forecast.predict()[0, 0])


def error(text: str, seconds: np.ndarray) -> float:
    """The mean absolute error of the forecaster `text`."""
    return mean_absolute_error(seconds, walk(make_forecast(text, seconds.shape[1], 0), seconds)[..., 0])


def test_the_last_value_to_the_bit() -> None:
    assert after("last", 0.1, 0.3, 0.2) == 0.2


def test_mean_and_median_of_the_window() -> None:
    assert after("mean:window=3", 9, 1, 2, 6) == pytest.approx(3)
    assert after("mean:window=3", 9, 1) == pytest.approx(5)
    assert after("median:window=3", 9, 1, 2, 6) == 2
    assert after("median:window=4", 1, 9) == 5
    assert after("median:window=4", 9, 1, 2, 6, 4) == 3


def test_smoothing_moves_the_level_by_alpha() -> None:
    """8, then 8 + (4 - 8) / 4 = 7, then 7 + (3 - 7) / 4 = 6."""
    assert after("smoothing:alpha=0.25", 8, 4, 3) == 6
    assert after("smoothing:alpha=1", 8, 4, 3) == 3


def test_the_oracle_says_the_next_task_of_each_worker() -> None:
    forecast = make_forecast("oracle", 3, 0, truth=lambda worker, task: 10 * worker + task + 1)
    assert forecast.predict()[:, 0].tolist() == [1, 11, 21], "known before anything was seen"
    forecast.observe(1, 0, 11.0)
    forecast.observe(2, 4, 25.0)
    forecast.observe(1, 1, 12.0)
    assert forecast.predict((0.5, 0.9)).tolist() == [[1, 1], [13, 13], [26, 26]], "and has no errors"


def autoregressive(rounds: int, workers: int) -> np.ndarray:
    """log s = 0.5 + 0.6 last + 0.3 the one before + noise: stationary around log s = 5."""
    random = np.random.default_rng(4)
    logs = [np.full(workers, 5.0)] * 2
    for _ in range(rounds):
        logs.append(0.5 + 0.6 * logs[-1] + 0.3 * logs[-2] + 0.1 * random.standard_normal(workers))
    return np.exp(np.array(logs[2:]))


def test_autoregression_recovers_known_coefficients() -> None:
    """Of 16 000 examples: the standard error of a lag's coefficient is about sqrt((1 - 0.3^2) / 16 000) = 0.0075."""
    seconds = autoregressive(400, 40)
    forecast = make_forecast("ar:order=3,forget=1", 40, 0)
    walk(forecast, seconds)
    assert isinstance(forecast, Autoregression)
    assert forecast.coefficients[1:] == pytest.approx([0.6, 0.3, 0.0], abs=3 * 0.0075)
    level = forecast.coefficients[0] / (1 - forecast.coefficients[1:].sum()) + forecast.state()["_level"]
    assert level == pytest.approx(5, abs=0.1)


def test_forgetting_follows_coefficients_that_change() -> None:
    """A sign that turns: noise around 1 that first persists, then alternates."""
    random = np.random.default_rng(0)
    logs = np.zeros((600, 8))
    for row in range(1, 600):
        logs[row] = (0.8 if row < 300 else -0.8) * logs[row - 1] + 0.1 * random.standard_normal(8)
    found = {}
    for forget in ("0.95", "1"):
        forecast = make_forecast(f"ar:order=1,forget={forget}", 8, 0)
        walk(forecast, np.exp(logs))
        assert isinstance(forecast, Autoregression)
        found[forget] = forecast.coefficients[1]
    assert found["0.95"] == pytest.approx(-0.8, abs=0.15)
    assert abs(found["1"]) < 0.3


def test_nothing_is_learned_or_scored_across_a_gap() -> None:
    """Every other task is unseen, so no example is complete, and no error is known: the prior stays to the bit."""
    forecast = make_forecast("ar:order=1", 4, 0)
    random = np.random.default_rng(0)
    for task in range(0, 60, 2):
        forecast.observe_round(random.uniform(1, 5, 4), task)
    said = forecast.predict((0.1, 0.5, 0.9))
    assert isinstance(forecast, Autoregression)
    assert forecast.coefficients.tolist() == [0, 1]
    assert (said == said[:, :1]).all()


def credits_run_out(workers: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """A worker spends one credit a task, and is slow while it has none, until 5 tasks later it has 4 to 20 new ones."""
    random = np.random.default_rng(5)
    balance, waits = random.integers(4, 20, workers), np.zeros(workers, int)
    seconds, left = np.empty((rounds, workers)), np.empty((rounds, workers))
    for row in range(rounds):
        seconds[row] = np.where(balance > 0, 1.0, 4.0) * np.exp(0.05 * random.standard_normal(workers))
        waits = np.where(balance > 0, 0, waits + 1)
        balance = np.where(waits == 5, random.integers(4, 20, workers), np.maximum(balance - 1, 0))
        left[row] = balance
    return seconds, left


def test_the_state_of_the_system_tells_an_onset_that_times_do_not() -> None:
    seconds, left = credits_run_out(8, 200)
    forecast = make_forecast("linear", 8, 0)
    with_state = onsets(seconds, walk(forecast, seconds, system={"credits": left})[..., 0])
    without = onsets(seconds, walk(make_forecast("linear", 8, 0), seconds)[..., 0])
    assert isinstance(forecast, LinearOnSystem)
    assert with_state.count > 50
    assert with_state.recall >= 0.9
    assert with_state.chance <= 0.05
    assert without.recall <= 0.05


def test_the_best_is_followed_and_left_when_it_is_best_no_longer() -> None:
    """A level that jumps and stays is best followed by the last value, noise around a level by the median."""
    random = np.random.default_rng(0)
    levels = np.repeat(random.uniform(1, 5, (50, 4)), 4, axis=0)
    noisy = np.exp(0.5 * random.standard_normal((200, 4)))
    members = [make_forecast(text, 4, 0) for text in ("median", "last")]
    forecast = FollowTheBest(4, BestOptions(), 0, members)
    walk(forecast, levels)
    assert forecast.followed == 1
    said = forecast.predict()
    assert (said[:, 0] == levels[-1]).all()
    for task, row in enumerate(noisy, start=200):
        forecast.observe_round(row, task)
    assert forecast.followed == 0


def test_the_best_is_nearly_as_good_as_the_best_of_its_members() -> None:
    for seconds in (autoregressive(300, 8), np.exp(0.4 * np.random.default_rng(1).standard_normal((300, 8)))):
        last, median, best = (error(text, seconds) for text in ("last", "median", "best:of=last+median"))
        assert min(last, median) * 0.9 < best < min(last, median) * 1.03 < max(last, median)


def test_pauses_are_forecast_by_the_median_as_well_as_they_can_be() -> None:
    """25 % below the last value, on pauses that nobody can see coming."""
    random = np.random.default_rng(2)
    shape = (400, 8)
    for pauses in (random.exponential(0.5, shape), 0.2 * random.pareto(1.5, shape), 2.0 * (random.random(shape) < 0.1)):
        seconds = (1 + pauses) * np.exp(0.02 * random.standard_normal(shape))
        last, median, best = (error(text, seconds) for text in ("last", "median", "best"))
        assert median <= 0.75 * last
        assert best <= 1.03 * median
