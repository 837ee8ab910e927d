from __future__ import annotations

import warnings

import optuna
import pytest

from curve_pools import LastPlus
from lockstep.engine.options import JobError
from lockstep.tuning.choosing import CANDIDATES
from lockstep.tuning.halving import ForecastHalving
from lockstep.tuning.pruner import LSTMPruner
from lockstep.tuning.pruners import PRUNERS, REFUSED, make_pruner, parse_pruner, pruner_text

OPTUNAS_OWN = {
    "none": optuna.pruners.NopPruner,
    "median:startup=3,warmup=2": optuna.pruners.MedianPruner,
    "percentile:percentile=10": optuna.pruners.PercentilePruner,
    "halving:factor=2": optuna.pruners.SuccessiveHalvingPruner,
    "hyperband:factor=3": optuna.pruners.HyperbandPruner,
    "patient": optuna.pruners.PatientPruner,
}


@pytest.mark.parametrize("text", OPTUNAS_OWN)
def test_built_in_pruners_are_optunas_own_objects(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(make_pruner(text, epochs=20, seed=0)) is OPTUNAS_OWN[text]


def test_options_reach_optunas_pruners() -> None:
    median = make_pruner("median:startup=3,warmup=2", epochs=20, seed=0)
    assert (median._n_startup_trials, median._n_warmup_steps) == (3, 2)  # type: ignore[attr-defined]
    percentile = make_pruner("percentile:percentile=10", epochs=20, seed=0)
    assert percentile._percentile == 10  # type: ignore[attr-defined]
    halving = make_pruner("halving:factor=2,least_epochs=3", epochs=20, seed=0)
    assert (halving._reduction_factor, halving._min_resource) == (2, 3)  # type: ignore[attr-defined]
    hyperband = make_pruner("hyperband:factor=2,least_epochs=2", epochs=20, seed=0)
    assert isinstance(hyperband, optuna.pruners.HyperbandPruner)
    assert (hyperband._reduction_factor, hyperband._min_resource, hyperband._max_resource) == (2, 2, 20)
    patient = make_pruner("patient:patience=4,delta=0.01,startup=7", epochs=20, seed=0)
    assert (patient._patience, patient._min_delta) == (4, 0.01)  # type: ignore[attr-defined]
    assert patient._wrapped_pruner._n_startup_trials == 7  # type: ignore[attr-defined]


def test_options_reach_the_pruners_that_forecast() -> None:
    text = "lstm:p=0.05,least_epochs=3,startup=6,never_pruned=0.2"
    ours = make_pruner(text, epochs=20, seed=9, forecaster=LastPlus())
    assert isinstance(ours, LSTMPruner)
    found = ours.options
    assert (found.p, found.least_epochs, found.startup, found.never_pruned) == (0.05, 3, 6, 0.2)
    assert (ours.epochs, ours.seed) == (20, 9)
    on_forecasts = make_pruner("forecast_halving:factor=2,least_epochs=3", epochs=20, seed=9, forecaster=LastPlus())
    assert isinstance(on_forecasts, ForecastHalving)
    assert (on_forecasts.options.factor, on_forecasts.options.least_epochs, on_forecasts.seed) == (2, 3, 9)


def test_which_forecaster_a_text_asks() -> None:
    wanted = {
        "lstm": "lstm",
        "lstm:forecaster=lstm_not_pretrained": "lstm_not_pretrained",
        "forecast_halving": "lstm",
        "forecast_halving:forecaster=gain": "gain",
        "gain:p=0.2": "gain",
        "median": "",
    }
    for text, forecaster in wanted.items():
        name, options = parse_pruner(text)
        assert PRUNERS[name].forecaster_of(options) == forecaster


def test_a_text_has_one_canonical_form() -> None:
    assert pruner_text(" lstm : startup=4, p=0.2") == "lstm:p=0.2"
    assert pruner_text("halving:factor=4") == "halving"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mediam", "'mediam' does not exist; there are: .*median"),
        ("", "'' does not exist"),
        ("none:p=1", "option 'p' does not exist; it has no options"),
        ("lstm:p=0", "pruner='lstm:p=0': p=0.0 is not possible; give a number above 0"),
        ("lstm:p=much", "p='much' is not possible"),
        ("lstm:p=nan", "p=nan is not possible"),
        ("halving:factor=1", "factor=1 is not possible; give a whole number of at least 2"),
        ("percentile:percentile=101", "percentile=101"),
        ("hyperband:least_epochs=21", "least_epochs=21 is more than the study's epochs=20"),
        ("lstm:forecaster=crystal", "'crystal' does not exist; there are: .*lstm_not_pretrained"),
        ("wilcoxon", "not applicable, because its steps are not epochs"),
        ("wilcoxon:p=1", "not applicable, because its steps are not epochs"),
        ("lcpfn", "skipped, because it can't be installed beside torch 2.13"),
    ],
)
def test_bad_texts_are_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        make_pruner(text, epochs=20, seed=0)


def test_every_candidate_is_a_text_of_a_pruner_that_exists_and_stands_once() -> None:
    texts = [text for some in CANDIDATES.values() for text in some]
    assert [pruner_text(text) for text in texts] == texts
    assert all(len(set(some)) == len(some) for some in CANDIDATES.values())
    assert {parse_pruner(text)[0] for text in texts} == set(PRUNERS)
    assert not set(PRUNERS) & set(REFUSED)
