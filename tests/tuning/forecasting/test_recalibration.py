"""What finished curves correct of forecasts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep.tuning.forecasting.recalibration import Recalibration, in_units

RULE = Recalibration(offset_prior=4, spread_prior=4)
PRIOR = np.log([0.25, 0.75]) / np.log([0.25, 0.75]).mean()  # the larger and the smaller misses of the prior's four


def misses(count: int, epochs: int = 10, middle: float = 1.0, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """In units: Laplace's around `middle`, the last epoch being known."""
    units = np.random.default_rng(seed).laplace(middle, scale, (count, epochs))
    units[:, -1] = np.nan
    return units


def test_without_finished_curves_nothing_changes() -> None:
    for units in (np.empty((0, 0)), np.empty((0, 10)), np.full((3, 10), np.nan)):
        offset, factor = RULE.tables(units, np.arange(1, 11))
        assert (offset == 0).all() and (factor == 1).all()


def test_offset_and_spread_go_to_the_studys_and_are_shrunk_with_few_curves() -> None:
    few, many = RULE.tables(misses(2, middle=2, scale=3)), RULE.tables(misses(400, middle=2, scale=3))
    assert many[0][:9] == pytest.approx([2] * 9, abs=0.5)
    assert many[1][:9] == pytest.approx([3] * 9, abs=0.4)
    assert (np.abs(few[0]) < np.abs(many[0]).max()).all()
    one = RULE.tables(np.array([[2.0, 2.0, np.nan]]))
    assert one[0] == pytest.approx([PRIOR[1]] * 3), "the median of -PRIOR, PRIOR and 2"
    assert one[1] == pytest.approx([(4 + 2 - PRIOR[1]) / 5] * 3)
    assert RULE.tables(np.array([[-900.0, np.nan]]))[0][0] == pytest.approx(-PRIOR[1]), "one that collapsed"
    sure = RULE.tables(misses(400, middle=-1, scale=0.1))
    assert sure[0][:9] == pytest.approx([-1] * 9, abs=0.05) and (sure[1] < 0.2).all()


def test_early_and_late_epochs_are_told_apart() -> None:
    units = misses(300, epochs=20, middle=0, scale=1)
    units[:, :3] += 3
    offset, _ = RULE.tables(units)
    assert offset[0] > 2.5 and abs(offset[15]) < 0.3
    assert 0 < offset[3] < 3, "smoothed between"


def test_curves_of_any_length_and_epochs_beyond_them() -> None:
    units = np.full((2, 6), np.nan)
    units[0, :5], units[1, :2] = 1.0, 3.0
    offset, factor = RULE.tables(units, np.array([1, 6, 300]))
    assert offset == pytest.approx([(PRIOR[1] + 1) / 2] * 3), "the median of -PRIOR, PRIOR, 1 and 3"
    assert np.isfinite(factor).all()


def test_a_prior_that_weighs_everything_or_nothing() -> None:
    fixed = Recalibration(math.inf, math.inf).tables(misses(50))
    assert (fixed[0] == 0).all() and (fixed[1] == 1).all()
    spread_alone = Recalibration(math.inf, 1).tables(misses(50, scale=3))
    assert (spread_alone[0] == 0).all() and (spread_alone[1] > 2).all()
    offset, _ = Recalibration(0, 1).tables(np.array([[2.0, np.nan]]))
    assert offset[0] == 2


def test_units_are_misses_in_the_forecasts_scale() -> None:
    curves = np.array([[0.5, 0.6, 0.9]])
    units = in_units(curves, np.array([[0.7, 1.0, 0.9]]), np.array([[0.1, 0.2, 0.1]]))
    assert units[0, :2] == pytest.approx([2, -0.5])
    assert np.isnan(units[0, 2])
