"""What holds of every forecaster of learning curves, and what a forecast says."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from lockstep.tuning.forecasting import (
    FORECASTERS,
    CurveForecast,
    Forecaster,
    PriorSettings,
    chances_above,
    in_units,
    make_forecaster,
)
from lockstep.tuning.forecasting.base import SPREAD_OF_SCALE
from lockstep.tuning.forecasting.lstm import CurveLstm, LstmNotPretrained, LstmRefitted
from lockstep.tuning.prior import draw_curves

SHORT = PriorSettings(steps=8, batch=16, most_epochs=12, hidden=8)
CURVES = draw_curves(9, 12, 400, seed=5, studies=1)


def made(name: str) -> Forecaster:
    kind = FORECASTERS[name]
    forecaster = kind(prior=SHORT) if issubclass(kind, CurveLstm) else kind()
    if isinstance(forecaster, LstmRefitted):
        forecaster.steps = 10
    return forecaster


every = pytest.mark.parametrize("name", FORECASTERS)


# A forecast -----------------------------------------------------------------------------------------------------------


def test_a_forecast_is_laplaces() -> None:
    """Half above the middle, a twentieth above the interval; the spread is the standard deviation of its draws."""
    said = CurveForecast.around(0.6, 0.05)
    drawn = np.random.default_rng(0).laplace(0.6, 0.05, 200_000)
    assert said.chance_above(said.mean) == pytest.approx(0.5)
    assert said.chance_above(said.high) == pytest.approx(0.05)
    assert said.chance_above(said.low) == pytest.approx(0.95)
    assert said.spread == pytest.approx(drawn.std(), rel=0.02)
    for level in (0.5, 0.58, 0.7):
        assert said.chance_above(level) == pytest.approx(np.mean(drawn > level), abs=0.005)


def test_the_chance_falls_from_1_to_0_and_scores_end_at_both() -> None:
    said = CurveForecast.around(0.97, 0.05)
    chances = [said.chance_above(level) for level in np.linspace(-0.1, 1.1, 121)]
    assert (np.diff(chances) <= 0).all()
    assert (chances[0], chances[-1]) == (1, 0)
    assert all(0 <= chance <= 1 for chance in chances)
    assert said.high == 1
    assert said.chance_above(1) == 0
    assert CurveForecast.around(1.3, 0.1).mean == 1
    known = CurveForecast.around(0.5, 0.0)
    assert [known.chance_above(level) for level in (0.49, 0.5, 0.51)] == [1, 0, 0]
    with pytest.raises(ValueError, match="the level is NaN"):
        said.chance_above(float("nan"))


# Every forecaster -----------------------------------------------------------------------------------------------------


@every
def test_any_prefix_any_horizon(name: str) -> None:
    """Before anything is finished, and after; the last score itself is known."""
    forecaster = made(name)
    for finished in ([], CURVES[:1], CURVES):
        forecaster.fit(finished, seed=0)
        for seen, horizon in ((1, 1), (1, 500), (3, 9), (12, 1), (40, 5)):
            said = forecaster.predict(np.resize(CURVES[0], seen), horizon)
            assert 0 <= said.low <= said.mean <= said.high <= 1
            assert np.isfinite(said.spread) and said.spread > 0
            assert 0 < said.chance_above(0.999 * said.mean) <= 1
        assert forecaster.predict([0.25, 0.5], 0) == CurveForecast(0.5, 0.5, 0.5, 0.0)


@every
def test_a_replay_uses_the_same_numbers_as_predict(name: str) -> None:
    """`raw` of all prefixes at once and the tables of the recalibration are what `predict` says of each."""
    forecaster, pool = made(name), np.stack(CURVES)
    forecaster.fit(CURVES, seed=0)
    middle, scale = forecaster.raw(pool, 12)
    units = forecaster._units if forecaster.learns else in_units(pool, middle, scale)
    offset, factor = forecaster.recalibration.tables(units)
    if not len(units):
        offset, factor = np.zeros(12), np.ones(12)
    means, spreads = middle + offset * scale, SPREAD_OF_SCALE * factor * scale
    chances = chances_above(means, spreads, 0.7)
    for row, seen in ((0, 1), (2, 5), (8, 11)):
        said = forecaster.predict(pool[row, :seen], 12 - seen)
        at = row, seen - 1
        assert said.mean == pytest.approx(np.clip(means[at], 0, 1), abs=1e-6)
        assert said.spread == pytest.approx(spreads[at], abs=1e-6)
        assert said.chance_above(0.7) == pytest.approx(chances[at], abs=1e-5)


@every
def test_a_file_holds_all_that_it_says(name: str, tmp_path: Path) -> None:
    forecaster, again = made(name), made(name)
    forecaster.fit(CURVES[:7], seed=1)
    forecaster.save(tmp_path / "kept.npz")
    again.load(tmp_path / "kept.npz")
    for seen in (1, 4, 11):
        assert forecaster.predict(CURVES[8][:seen], 12 - seen) == again.predict(CURVES[8][:seen], 12 - seen)


@every
def test_the_same_arguments_give_the_same_numbers(name: str) -> None:
    """Whatever was fitted before."""
    one, other = made(name), made(name)
    other.fit(CURVES[:5], seed=4)
    other.fit([], seed=0)
    for forecaster in (one, other):
        forecaster.fit(CURVES, seed=2)
    assert one.predict(CURVES[0][:3], 9) == other.predict(CURVES[0][:3], 9)


@every
def test_what_is_not_finite_cuts_a_curve_and_says_so(name: str) -> None:
    whole, cut = made(name), made(name)
    holed = [*CURVES[1][:6], np.nan, *CURVES[1][7:]]
    with pytest.warns(UserWarning, match="curve 1 is cut at epoch 7 of 12, which is not finite"):
        cut.fit([CURVES[0], holed], seed=0)
    whole.fit([CURVES[0], CURVES[1][:6]], seed=0)
    with pytest.warns(UserWarning, match="the prefix is cut at epoch 3 of 4"):
        said = cut.predict([0.5, 0.6, np.nan, 0.7], 8)
    assert said == whole.predict([0.5, 0.6], 10), "the epoch that is forecast stays the 12th"
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no finite score"):
        cut.predict([np.nan, 0.5], 3)


def test_impossible_curves_and_horizons() -> None:
    forecaster = make_forecaster("best")
    with pytest.raises(ValueError, match=r"the prefix has 1.2 at epoch 2; give scores in 0 to 1"):
        forecaster.predict([0.5, 1.2], 3)
    with pytest.raises(ValueError, match=r"curve 1 has -0.5 at epoch 1"):
        forecaster.fit([[0.5], [-0.5]], seed=0)
    with pytest.raises(ValueError, match=r"the prefix has the shape \(1, 2\); give one score per epoch"):
        forecaster.predict([[0.5, 0.2]], 3)
    with pytest.raises(ValueError, match="horizon=-1 is not possible; give a whole number of at least 0"):
        forecaster.predict([0.5], -1)
    with pytest.raises(ValueError, match="no finite score"):
        forecaster.predict([], 1)


def test_names(tmp_path: Path) -> None:
    names = ["last", "best", "gain", "power", "lstm", "lstm_not_pretrained", "lstm_not_recalibrated", "lstm_refitted"]
    assert list(FORECASTERS) == names
    assert all(make_forecaster(name).name == name and FORECASTERS[name].does for name in names)
    with pytest.raises(ValueError, match="forecaster='arima' does not exist; there are: last, best"):
        make_forecaster("arima")
    make_forecaster("best").save(tmp_path / "best.npz")
    with pytest.raises(ValueError, match=r"holds best, not the forecaster 'gain'"):
        make_forecaster("gain").load(tmp_path / "best.npz")
    (tmp_path / "torn.npz").write_bytes((tmp_path / "best.npz").read_bytes()[:90])
    with pytest.raises(ValueError, match=r"torn\.npz is no file of arrays, or a damaged one"):
        make_forecaster("best").load(tmp_path / "torn.npz")
    with pytest.raises(FileNotFoundError):
        make_forecaster("best").load(tmp_path / "none.npz")


# The simple ones ------------------------------------------------------------------------------------------------------


def test_the_simple_ones_say_what_their_names_do() -> None:
    finished = [[0.2, 0.4, 0.6, 0.6], [0.3, 0.3, 0.5, 0.7], [0.1, 0.4, 0.7, 0.6]]
    said = {}
    for name in ("last", "best", "gain"):
        forecaster = make_forecaster(name)
        forecaster.fit(finished, seed=0)
        said[name] = forecaster.predict([0.5, 0.4], 2).mean
    assert (said["last"], said["best"]) == (0.4, 0.5)
    assert said["gain"] == pytest.approx(0.5 + 0.2, abs=0.06), "the others gained 0.2, 0.4 and 0.2 from epoch 2 on"


def test_the_spread_of_the_simple_ones_comes_from_the_studys_misses() -> None:
    steady, wild = make_forecaster("last"), make_forecaster("last")
    steady.fit([[0.50, 0.51, 0.50]] * 10, seed=0)
    wild.fit([[0.5, 0.51, 0.9], [0.5, 0.6, 0.1]] * 5, seed=0)
    assert steady.predict([0.5], 2).spread < 0.02 < 0.4 < wild.predict([0.5], 2).spread


def test_a_power_law_is_found_again() -> None:
    epochs = np.arange(1, 31)
    curve = 0.9 - 0.5 * epochs**-0.8
    forecaster = make_forecaster("power")
    assert forecaster.predict(curve[:10], 20).mean == pytest.approx(curve[-1], abs=0.003)
    assert forecaster.predict(curve[:3], 20).mean == curve[2], "too few epochs to fit"
    assert forecaster.predict([0.9, 0.8, 0.7, 0.6, 0.5], 10).mean == pytest.approx(0.7), "falling: a is 0"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert forecaster.predict([0.4] * 9, 10).mean == pytest.approx(0.4)


# Those that learn weights of the study --------------------------------------------------------------------------------


def test_not_pretrained_it_knows_nothing_before_the_study_and_then_learns_it() -> None:
    """Until there are four finished curves it forecasts the last value; afterwards what they gained."""
    forecaster = LstmNotPretrained(PriorSettings(hidden=16))
    assert forecaster.predict([0.3, 0.5], 6).mean == pytest.approx(0.5)
    rising = [np.array([0.3, 0.5, 0.6, 0.7, 0.75, 0.78, 0.8, 0.8]) + shift for shift in (-0.1, -0.05, 0.0, 0.05, 0.1)]
    forecaster.fit(rising[:3], seed=0)
    assert forecaster.raw(np.array([[0.3, 0.5]]), 8)[0] == pytest.approx(np.array([[0.3, 0.5]]))
    forecaster.fit(rising, seed=0)
    assert forecaster.predict([0.32, 0.52], 6).mean == pytest.approx(0.82, abs=0.06)
    assert len(forecaster._units) == 1, "recalibrated on the one curve that came after the four it learned from"
