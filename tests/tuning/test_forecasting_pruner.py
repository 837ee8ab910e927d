from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from curve_pools import LastPlus, ended, reporting, stored, study_of
from lockstep.engine.options import JobError
from lockstep.tuning.asking import PruningDecision, decisions_of, is_spared
from lockstep.tuning.pruner import LSTMPruner

FINISHED = [[0.5, 0.7, 0.8, 0.9], [0.4, 0.6, 0.7, 0.8], [0.3, 0.3, 0.4, 0.5], [0.6, 0.7, 0.7, 0.7]]
"""The best of them ends at 0.9."""


def pruner(gain: float = 0.1, **options: Any) -> LSTMPruner:
    options.setdefault("never_pruned", 0.0)
    return LSTMPruner(4, forecaster=LastPlus(gain), **options)


def numbers(decision: PruningDecision) -> tuple[float | None, ...]:
    return decision.mean, decision.low, decision.high, decision.incumbent, decision.chance


@pytest.mark.parametrize(
    ("second", "p", "stops"),
    [
        (0.65, 0.1, True),  # forecast 0.65 to 0.85: no chance to beat 0.9
        (0.75, 0.1, False),  # forecast 0.75 to 0.95: a chance of 0.25
        (0.75, 0.3, True),
        (0.71, 0.05, True),  # forecast 0.71 to 0.91: a chance of 0.05, which rounding puts below p
    ],
)
def test_a_trial_stops_where_its_chance_to_beat_the_best_is_below_p(second: float, p: float, stops: bool) -> None:
    study = study_of(FINISHED, pruner(p=p + 1e-9))
    _, said = reporting(study, [0.6, second])
    assert said == [False, stops]


def test_each_decision_is_stored_with_its_trial_as_json() -> None:
    study = study_of(FINISHED, pruner())
    trial, said = reporting(study, [0.6, 0.75, 0.6])
    found = decisions_of(stored(study, trial))
    assert said == [False, False, True]
    assert [(one.epoch, one.epochs_read, one.pruned, one.spared) for one in found] == [
        (2, 2, False, False),
        (3, 3, True, False),
    ]
    assert numbers(found[0]) == pytest.approx((0.85, 0.75, 0.95, 0.9, 0.25))
    assert numbers(found[1]) == pytest.approx((0.7, 0.6, 0.8, 0.9, 0.0))
    written = stored(study, trial).system_attrs
    assert json.loads(json.dumps(written, allow_nan=False)) == written


def test_nothing_stops_before_least_epochs_or_startup_or_after_the_last_epoch() -> None:
    hopeless = [0.1, 0.1, 0.1, 0.1]
    for options, curves, expected in (
        ({}, FINISHED, [False, True, True, False]),
        ({"least_epochs": 1}, FINISHED, [True, True, True, False]),
        ({"least_epochs": 3}, FINISHED, [False, False, True, False]),
        ({}, FINISHED[:3], [False] * 4),
        ({"startup": 3}, FINISHED[:3], [False, True, True, False]),
    ):
        study = study_of(curves, pruner(**options))
        trial, said = reporting(study, hopeless)
        assert said == expected, options
        assert [decision.epoch for decision in decisions_of(stored(study, trial))] == [
            epoch for epoch, stops in enumerate(said, start=1) if stops
        ]


def test_pruned_and_failed_trials_neither_count_as_finished_nor_calibrate() -> None:
    forecaster = LastPlus()
    study = study_of(FINISHED[:3], LSTMPruner(4, forecaster=forecaster, never_pruned=0.0))
    study.add_trials([ended([0.99, 0.99], TrialState.PRUNED), ended([0.98], TrialState.FAIL)])
    assert reporting(study, [0.1, 0.1, 0.1])[1] == [False] * 3
    assert [curves for curves, _ in forecaster.fits] == [FINISHED[:3]]


def test_the_forecaster_is_calibrated_once_per_growth_of_the_finished_trials() -> None:
    forecaster = LastPlus()
    study = study_of(FINISHED, LSTMPruner(4, forecaster=forecaster, never_pruned=0.0, seed=7))
    for _ in range(3):
        reporting(study, [0.5, 0.6, 0.7])
    assert forecaster.fits == [(FINISHED, 7)]
    study.add_trial(ended([0.2, 0.3, 0.4, 0.5]))
    reporting(study, [0.5, 0.6, 0.7])
    assert forecaster.fits[1:] == [([*FINISHED, [0.2, 0.3, 0.4, 0.5]], 7)]


def test_a_fixed_share_of_the_trials_is_never_pruned_and_follows_from_seed_and_number() -> None:
    trials = [ended([0.1]) for _ in range(4000)]
    for number, trial in enumerate(trials):
        trial.number = number
    spared = [is_spared(trial, 0.05, seed=1) for trial in trials]
    assert 0.04 < sum(spared) / len(spared) < 0.06
    assert spared == [is_spared(trial, 0.05, seed=1) for trial in trials]
    assert spared != [is_spared(trial, 0.05, seed=2) for trial in trials]
    assert not any(is_spared(trial, 0.0, seed=1) for trial in trials)
    assert all(is_spared(trial, 1.0, seed=1) for trial in trials)


def test_a_trial_that_is_tried_again_is_spared_as_the_first_one() -> None:
    first = next(number for number in range(1000) if is_spared(_numbered(number), 0.05, seed=3))
    again = ended([0.1], failed_trial=first)
    again.number = next(number for number in range(1000) if not is_spared(_numbered(number), 0.05, seed=3))
    assert is_spared(again, 0.05, seed=3)


def _numbered(number: int) -> optuna.trial.FrozenTrial:
    trial = ended([0.1])
    trial.number = number
    return trial


def test_a_spared_trial_goes_on_and_its_decisions_say_so() -> None:
    study = study_of(FINISHED, pruner(never_pruned=1.0))
    trial, said = reporting(study, [0.1, 0.1, 0.1])
    assert said == [False] * 3
    found = [(one.epoch, one.chance, one.pruned, one.spared) for one in decisions_of(stored(study, trial))]
    assert found == [(2, 0, False, True), (3, 0, False, True)]


def test_a_study_that_minimizes_losses_decides_as_one_that_maximizes_the_scores() -> None:
    curves = [[0.6, 0.75, 0.6], [0.6, 0.85, 0.9], [0.2, 0.1, 0.3]]
    up = study_of(FINISHED, pruner())
    down = study_of([[-math.log(score) for score in curve] for curve in FINISHED], pruner(), "minimize")
    for curve in curves:
        trial, said = reporting(up, curve)
        mirrored, answered = reporting(down, [-math.log(score) for score in curve])
        assert answered == said
        for ours, theirs in zip(decisions_of(stored(up, trial)), decisions_of(stored(down, mirrored)), strict=True):
            assert numbers(theirs) == pytest.approx(numbers(ours))


def test_a_curve_is_cut_where_it_is_not_finite() -> None:
    study = study_of(FINISHED, pruner())
    for bad in (math.nan, math.inf):
        trial, said = reporting(study, [0.6, 0.65, bad])
        assert said == [False, True, True]
        assert [(one.epoch, one.epochs_read) for one in decisions_of(stored(study, trial))] == [(2, 2), (3, 2)]
        trial, said = reporting(study, [bad, 0.1, 0.1])
        assert (said, decisions_of(stored(study, trial))) == ([False] * 3, [])


def test_what_is_no_score_or_no_epoch_is_refused_with_the_fix() -> None:
    study = study_of(FINISHED, pruner())
    with pytest.raises(JobError, match=r"trial 4: the value 95 is not a score in 0\.\.1.* share instead of per cent"):
        reporting(study, [0.5, 95.0])
    for step in (0, 5):
        trial = study.ask()
        trial.report(0.5, step)
        with pytest.raises(JobError, match=rf"step={step} was reported.*step=1 to step=4"):
            trial.should_prune()
    down = study_of([[0.3, 0.2]] * 4, pruner(), "minimize")
    with pytest.raises(JobError, match="the value -1 of a study that minimizes is below 0"):
        reporting(down, [0.5, -1.0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"p": 0}, "p=0 is not possible; give a number above 0"),
        ({"p": 1.5}, "p=1.5 is not possible"),
        ({"least_epochs": 0}, "least_epochs=0"),
        ({"startup": 0}, "startup=0"),
        ({"never_pruned": -0.1}, "never_pruned=-0.1"),
    ],
)
def test_options_out_of_their_bounds_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        LSTMPruner(4, forecaster=LastPlus(), **wrong)
    with pytest.raises(JobError, match="epochs=0"):
        LSTMPruner(0, forecaster=LastPlus())


def test_a_pruner_in_another_process_decides_alike_from_the_storage_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = study_of(FINISHED, pruner(), storage=url)
    trial, said = reporting(study, [0.6, 0.75, 0.6])
    other = optuna.load_study(study_name="made up", storage=url, pruner=pruner())
    frozen = stored(other, trial)
    assert other.pruner.prune(other, frozen) is said[-1] is True
    assert decisions_of(stored(other, trial)) == decisions_of(stored(study, trial))
    assert [decision.epoch for decision in decisions_of(frozen)] == [2, 3]
