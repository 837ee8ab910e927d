from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from optuna.pruners import BasePruner, NopPruner
from optuna.trial import FrozenTrial, TrialState

from curve_pools import MeanGain, PlainStudy, saturating
from lockstep.engine.options import JobError
from lockstep.tuning.asking import decisions_of
from lockstep.tuning.forecasting import make_forecaster
from lockstep.tuning.lean import LeanStudy
from lockstep.tuning.pool import CurvePool
from lockstep.tuning.pool_forecasts import PoolForecasts, for_pool
from lockstep.tuning.pruners import make_pruner
from lockstep.tuning.replay import COLUMNS, replay, replays, trains_in_each_study

TEXTS = (
    "none",
    "median",
    "percentile:percentile=25,warmup=2",
    "halving:factor=2",
    "halving:factor=4",
    "hyperband:factor=2",
    "hyperband",
    "patient",
    "lstm:p=0.3",
    "lstm:p=0.3,never_pruned=0.3",
    "gain",
    "forecast_halving:factor=2",
    "forecast_halving",
)


class StopsAfter(BasePruner):
    """Stops each trial after so many epochs of it, and notes in which order it was asked."""

    def __init__(self, epochs: dict[int, int]) -> None:
        self.epochs = epochs
        self.asked: list[tuple[int, int]] = []

    def prune(self, study: Any, trial: FrozenTrial) -> bool:
        assert trial.last_step is not None
        self.asked.append((trial.number, trial.last_step))
        return trial.last_step >= self.epochs.get(trial.number, 99)


def failing_too(settings: int, epochs: int) -> CurvePool:
    """A pool of which some settings fail, one from its first epoch on."""
    pool = saturating(settings, epochs)
    values = pool.values.copy()
    values[2], values[5, 4:] = math.nan, math.nan
    return CurvePool(values, pool.epoch_seconds, pool.images)


@pytest.mark.parametrize("text", TEXTS)
def test_the_lean_study_decides_as_a_plain_optuna_study(text: str) -> None:
    pool, stopped = failing_too(26, 9), 0
    for workers in (1, 3):
        studies: list[Any] = []

        def kept(kind: Any, studies: list[Any] = studies) -> Any:
            return lambda pruner, name: studies.append(kind(pruner, name)) or studies[-1]

        lean, plain = (
            replay(pool, make_pruner(text, 9, 4, MeanGain()), workers, 26, seed=4, study=kept(kind))
            for kind in (LeanStudy, PlainStudy)
        )
        np.testing.assert_array_equal(lean.stopped, plain.stopped)
        assert (lean.seconds, lean.regret, lean.kept_best) == (plain.seconds, plain.regret, plain.kept_best)
        for ours, theirs in zip(*(study.study.get_trials(deepcopy=False) for study in studies), strict=True):
            assert ours.state == theirs.state
            assert ours.values == theirs.values
            assert ours.intermediate_values == theirs.intermediate_values
            assert ours.system_attrs == theirs.system_attrs
        stopped += int((lean.stopped < 9).sum())
    assert stopped > 4 if text != "none" else stopped == 4  # two fail in each


def order(pool: CurvePool, values: list[list[float]], seconds: list[float], seed: int = 0) -> CurvePool:
    """The pool whose trials 0, 1, ... of the study of `seed` have these values and epoch seconds."""
    drawn = pool.drawn(len(pool), seed)
    back = np.argsort(drawn)
    return CurvePool(np.array(values)[back], np.array(seconds)[back], pool.images)


def three() -> CurvePool:
    values = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.2, 0.3, 0.595]]
    return order(CurvePool(np.array(values), np.ones(3), 100), values, [1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("workers", "seconds", "asked"),
    [
        # trial 0 is stopped after 2 of its 1 s epochs; trials 1 and 2 take 3 epochs of 2 s and of 4 s
        (1, 2 + 6 + 12, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]),
        # worker 0: trial 0 until 2 s, then trial 2 until 14 s; worker 1: trial 1 until 6 s
        (2, 14, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]),
        # all begin at 0 s; at 2 s and at 4 s the earlier trial is told first
        (8, 12, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]),
    ],
)
def test_virtual_time_by_hand(workers: int, seconds: float, asked: list[tuple[int, int]]) -> None:
    pruner = StopsAfter({0: 2})
    found = replay(three(), pruner, workers, 3, seed=0)
    assert found.seconds == seconds
    assert pruner.asked == asked
    assert found.stopped.tolist() == [2, 3, 3]
    assert found.finished.tolist() == [False, True, True]
    assert found.share_of_epochs == pytest.approx(8 / 9)


def test_several_workers_report_as_their_epochs_end() -> None:
    values = [[0.1] * 4, [0.2] * 4]
    pool = order(CurvePool(np.array(values), np.ones(2), 100), values, [3.0, 2.0])
    pruner = StopsAfter({})
    assert replay(pool, pruner, 2, 2, seed=0).seconds == 12
    assert pruner.asked == [(1, 1), (0, 1), (1, 2), (0, 2), (1, 3), (0, 3)]  # 2, 3, 4, 6, 6 (and 8), 9 s


@pytest.mark.parametrize(
    ("stops", "tolerance", "kept", "regret"),
    [
        ({}, None, True, 0.0),
        ({1: 2}, None, True, 0.005),  # half an image of 100 below
        ({1: 2}, 0.004, False, 0.005),
        ({1: 2, 2: 2}, None, False, 0.3),
        ({0: 1, 1: 1, 2: 1}, None, False, 0.6),  # nothing finished
    ],
)
def test_whether_the_best_was_kept(stops: dict[int, int], tolerance: float | None, kept: bool, regret: float) -> None:
    found = replay(three(), StopsAfter(stops), 1, 3, seed=0, tolerance=tolerance)
    assert found.kept_best is kept
    assert found.regret == pytest.approx(regret)


def test_the_best_is_the_best_of_the_drawn_settings_in_the_drawn_order() -> None:
    pool = saturating(12, 5)
    found = replay(pool, NopPruner(), 2, 5, seed=3)
    np.testing.assert_array_equal(found.settings, pool.drawn(5, 3))
    assert len(set(found.settings.tolist())) == 5
    assert (found.regret, found.kept_best, found.share_of_epochs) == (0.0, True, 1.0)
    everything = pool.epoch_seconds[found.settings].sum() * 5
    assert everything / 2 <= found.seconds < everything


def test_a_setting_that_fails_ends_there_and_its_epochs_count_in_both() -> None:
    values = [[0.5, math.nan, math.nan], [0.3, 0.4, 0.5]]
    pool = order(CurvePool(np.array(values), np.ones(2), 100), values, [1.0, 1.0])
    pruner = StopsAfter({})
    found = replay(pool, pruner, 1, 2, seed=0)
    assert (found.stopped.tolist(), found.finished.tolist()) == ([2, 3], [False, True])
    assert (found.share_of_epochs, found.kept_best, found.seconds) == (1.0, True, 5.0)
    assert pruner.asked == [(0, 1), (1, 1), (1, 2)]


def test_replays_have_a_row_per_seed_and_depend_on_nothing_else() -> None:
    pool = saturating(20, 8)
    table = replays(pool, "halving:factor=2", 2, 12, range(4))
    assert tuple(table.columns) == COLUMNS
    assert table["seed"].tolist() == [0, 1, 2, 3]
    alone = replays(pool, "halving:factor=2", 2, 12, [2])
    assert table.iloc[2].tolist() == alone.iloc[0].tolist()
    assert (replays(pool, "none", 2, 12, range(4))["share_of_epochs"] == 1).all()
    assert (table["share_of_epochs"] < 0.8).all()


@pytest.mark.parametrize("text", ["gain:p=0.3", "forecast_halving:forecaster=gain"])
def test_forecasts_that_are_kept_for_a_pool_decide_as_the_forecaster_itself(text: str) -> None:
    pool = failing_too(26, 9)
    asked = for_pool(make_forecaster("gain"), pool)
    assert isinstance(asked, PoolForecasts)
    studies: list[Any] = []
    for forecaster in (asked, make_forecaster("gain")):
        replay(
            pool, make_pruner(text, 9, 4, forecaster), 2, 26, seed=4,
            study=lambda pruner, name: studies.append(LeanStudy(pruner, name)) or studies[-1],
        )  # fmt: skip
    decisions = 0
    for ours, theirs in zip(*(study.trials for study in studies), strict=True):
        assert (ours.state, ours.intermediate_values) == (theirs.state, theirs.intermediate_values)
        for one, other in zip(decisions_of(ours), decisions_of(theirs), strict=True):
            decisions += 1
            assert (one.mean, one.low, one.high, one.chance) == pytest.approx(
                (other.mean, other.low, other.high, other.chance), abs=1e-9
            )
    assert decisions > 20
    assert any(trial.state == TrialState.PRUNED for trial in studies[0].trials)


def test_forecasts_kept_for_a_pool_refuse_what_is_not_the_pools() -> None:
    pool = saturating(6, 5)
    asked = PoolForecasts(make_forecaster("gain"), pool)
    with pytest.raises(LookupError):
        asked.predict(np.array([0.123]), 4)
    with pytest.raises(LookupError, match="of epoch 9: those of the pool are of epoch 5"):
        asked.predict(pool.values[0, :2], 7)
    learning = MeanGain()
    assert for_pool(learning, pool) is learning


@pytest.mark.parametrize(
    ("values", "seconds", "images", "message"),
    [
        ([[0.1, 95.0]], [1.0], 10, "value 95 is no score in 0..1"),
        ([[0.1, math.inf]], [1.0], 10, "value inf is no score"),
        ([[0.1, 0.2]], [1.0, 1.0], 10, r"\[1, 2\] and \[2\]"),
        ([[0.1, 0.2]], [0.0], 10, "give finite seconds above 0"),
        ([[0.1, 0.2]], [1.0], 0, "images=0"),
        ([[0.1, math.nan]], [1.0], 10, "no setting of the pool ends with a score"),
        ([0.1], [1.0], 10, "a pool needs values"),
    ],
)
def test_bad_pools_are_refused(values: list[Any], seconds: list[float], images: int, message: str) -> None:
    with pytest.raises(JobError, match=message):
        CurvePool(np.array(values), np.array(seconds), images)


def test_which_forecasters_train_in_each_study() -> None:
    for text in ("none", "median", "lstm", "gain", "lstm:forecaster=lstm_not_recalibrated", "forecast_halving"):
        assert not trains_in_each_study(text)
    for text in ("lstm:forecaster=lstm_not_pretrained", "forecast_halving:forecaster=lstm_refitted"):
        assert trains_in_each_study(text)


def test_bad_replays_are_refused() -> None:
    pool = saturating(6, 5)
    with pytest.raises(JobError, match="trials_per_study=7 is not possible with a pool of 6"):
        replay(pool, NopPruner(), 1, 7, seed=0)
    with pytest.raises(JobError, match="workers=0"):
        replay(pool, NopPruner(), 0, 3, seed=0)
