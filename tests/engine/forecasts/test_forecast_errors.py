"""Quantiles from a forecaster's own errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep.engine.forecasts import make_forecast
from lockstep.engine.forecasts.errors import KEPT_ERRORS, POOL_WEIGHT, RecentErrors
from lockstep.engine.forecasts.scores import calibration, walk


def filled(rows: list[list[float]]) -> RecentErrors:
    """Worker w has made the errors rows[w]."""
    errors = RecentErrors(len(rows))
    for worker, row in enumerate(rows):
        for error in row:
            errors.add(np.array([worker]), np.array([error]))
    return errors


def test_a_worked_example() -> None:
    """Three own errors 0, 1, 2 stand at 1/4, 2/4, 3/4: 0.6 lies at 1.4. All five, 0 0 0 1 2 at 1/6 ... 5/6, give 0.6
    at place 3.6, so 0.6. The own quantile weighs 3 / (3 + 16)."""
    factor = filled([[0, 2, 1], [0, 0]]).factors((0.6,))[0, 0]
    own = 3 / (3 + POOL_WEIGHT)
    assert math.log(factor) == pytest.approx(own * 1.4 + (1 - own) * 0.6)


def test_a_worker_without_errors_has_those_of_all() -> None:
    factors = filled([[0.3] * 40, []]).factors((0.9, 0.5))
    assert factors.tolist() == [[math.exp(0.3), 1], [math.exp(0.3), 1]]


def test_only_the_latest_errors_count() -> None:
    assert filled([[9.0] * 50 + [0.2] * KEPT_ERRORS]).factors((0.9,))[0, 0] == math.exp(0.2)


def test_quantiles_lie_on_their_side_of_the_forecast_and_in_order() -> None:
    """Even of a forecaster whose errors are all on one side."""
    factors = filled([list(np.linspace(0.1, 0.5, 32))]).factors((0.1, 0.5, 0.6, 0.95))[0]
    assert factors[0] == 1 == factors[1]
    assert 1 < factors[2] < factors[3]


@pytest.mark.parametrize("text", ["last", "median", "ar"])
def test_calibrated_on_stationary_noise(text: str) -> None:
    """The share of times below each quantile lies within three standard errors of it.

    Errors of forecasts that share past values are no independent draws; workers are. So the standard error is that of
    the mean of 60 workers' shares, each seen over 300 tasks, and no wider than twice the binomial one.
    """
    wanted = (0.1, 0.25, 0.75, 0.9)
    seconds = np.exp(0.3 * np.random.default_rng(8).standard_normal((340, 60)))
    said = walk(make_forecast(text, 60, 0), seconds, wanted)[40:]
    for column, quantile in enumerate(wanted):
        share = calibration(seconds[40:], said[..., [column]])[0]
        below = (seconds[40:] <= said[..., column]).mean(axis=0)
        binomial = math.sqrt(quantile * (1 - quantile) / below.size / 300)
        error = below.std(ddof=1) / math.sqrt(below.size)
        assert error <= 2 * binomial
        assert abs(share - quantile) <= 3 * max(error, binomial)
