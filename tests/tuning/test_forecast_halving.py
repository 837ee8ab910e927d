from __future__ import annotations

import numpy as np
import pytest
from optuna.pruners import SuccessiveHalvingPruner
from optuna.trial import TrialState

from curve_pools import LastPlus, MeanGain, ended, reporting, saturating, stored, study_of
from lockstep.engine.options import JobError
from lockstep.tuning.asking import decisions_of
from lockstep.tuning.halving import RUNG, ForecastHalving
from lockstep.tuning.replay import replay


def halving(factor: int = 2, epochs: int = 8, never_pruned: float = 0.0, **options: object) -> ForecastHalving:
    options.setdefault("forecaster", LastPlus(0.1))
    return ForecastHalving(epochs, factor, never_pruned=never_pruned, **options)  # type: ignore[arg-type]


def test_a_trial_goes_on_where_its_forecast_is_among_the_best_half_of_those_that_reached_the_rung() -> None:
    study = study_of([], halving())
    _, said = reporting(study, [0.5, 0.6, 0.6, 0.7])
    assert said == [False] * 4  # alone at rungs 0, 1 and 2, after epochs 1, 2 and 4
    assert reporting(study, [0.4])[1] == [True]  # second of two
    assert reporting(study, [0.55, 0.5, 0.9])[1] == [False, True, False]  # first of three; second of two; no rung
    assert reporting(study, [0.52])[1] == [False]  # second of four


def test_rungs_and_decisions_are_stored_with_the_trial() -> None:
    study = study_of([], halving())
    reporting(study, [0.5, 0.6])
    trial, _ = reporting(study, [0.3, 0.7, 0.7])
    found = stored(study, trial)
    assert {key: value for key, value in found.system_attrs.items() if key.startswith(RUNG)} == pytest.approx(
        {f"{RUNG}0": 0.4, f"{RUNG}1": 0.8}
    )
    first, second = decisions_of(found)
    assert (first.epoch, first.pruned, second.epoch, second.pruned) == (1, True, 2, False)
    assert (first.mean, first.incumbent, first.chance) == pytest.approx((0.4, 0.6, 0.0))
    assert (second.mean, second.incumbent, second.chance) == pytest.approx((0.8, 0.8, 0.5))


def test_with_the_last_value_as_forecast_it_is_optunas_successive_halving() -> None:
    pool = saturating(40, 17)
    for factor, least_epochs, workers in ((2, 1, 1), (4, 1, 3), (3, 2, 2)):
        ours = halving(factor, 17, least_epochs=least_epochs, forecaster=LastPlus(0.0))
        theirs = SuccessiveHalvingPruner(min_resource=least_epochs, reduction_factor=factor)
        one, other = replay(pool, ours, workers, 30, seed=5), replay(pool, theirs, workers, 30, seed=5)
        np.testing.assert_array_equal(one.stopped, other.stopped)
        assert 1 <= one.finished.sum() < 30


def test_all_forecasts_of_a_rung_come_from_one_calibration() -> None:
    forecaster = MeanGain()
    study = study_of([], halving(forecaster=forecaster))
    early, _ = reporting(study, [0.5])  # forecast 0.5: nothing has finished
    study.add_trial(ended([0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4]))  # from epoch 1 it gained 0.3
    assert reporting(study, [0.45])[1] == [True]  # 0.75 beside 0.8; beside the 0.5 of old it would have gone on
    assert stored(study, early).system_attrs[f"{RUNG}0"] == 0.5
    assert len(forecaster.fits) == 2


def test_a_failed_trial_and_its_second_try_do_not_rank_twice() -> None:
    study = study_of([], halving())
    study.add_trial(ended([0.9], TrialState.FAIL, **{f"{RUNG}0": 1.0}))
    assert reporting(study, [0.4])[1] == [False]


def test_spared_trials_go_on_and_still_compete() -> None:
    study = study_of([], halving(never_pruned=1.0))
    reporting(study, [0.5])
    trial, said = reporting(study, [0.4])
    (decision,) = decisions_of(stored(study, trial))
    assert (said, decision.pruned, decision.spared) == ([False], False, True)
    assert f"{RUNG}0" in stored(study, trial).system_attrs


def test_rungs_start_at_least_epochs_and_the_last_epoch_is_none() -> None:
    study = study_of([], halving(epochs=4, least_epochs=2))
    reporting(study, [0.9, 0.9, 0.9, 0.9])
    trial, said = reporting(study, [0.1, 0.1, 0.1, 0.1])
    assert said == [False, True, False, False]
    assert [decision.epoch for decision in decisions_of(stored(study, trial))] == [2]


def test_a_curve_without_a_finite_score_is_not_ranked() -> None:
    study = study_of([], halving())
    trial, said = reporting(study, [float("nan")])
    assert (said, decisions_of(stored(study, trial))) == ([False], [])
    with pytest.raises(JobError, match="factor=1 is not possible; give a whole number of at least 2"):
        halving(factor=1)
