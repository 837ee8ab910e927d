"""What a study is, and which one it may not go on with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import tiny
from lockstep.engine.options import JobError
from lockstep.tuning.needed import StudyError, the_optuna
from lockstep.tuning.opening import close_study, folder_of, found_study, open_study
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.sampling import make_sampler, training_seed
from lockstep.tuning.space import Space
from studies import RATE, WIDE, plan_of, rates, site_of

CHOICE = {"kind": "choice", "choices": ["none", "cosine"]}


@pytest.mark.parametrize("changes", [{}, {"settings": rates(0.01, 0.02)}, {"hours": 1.5, "objective": "auc"}])
def test_a_plan_travels_as_json(changes: dict[str, Any]) -> None:
    plan = plan_of(**changes)
    again = StudyPlan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json()
    assert again.base == plan.base and again.settings == plan.settings
    assert again.space.fingerprint == plan.space.fingerprint


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 0}, "trials=0 is not possible; give a whole number of at least 1"),
        ({"epochs": 0}, "epochs=0 is not possible"),
        ({"engines": 0}, "engines=0 is not possible"),
        ({"workers_per_trial": 0}, "workers_per_trial=0 is not possible"),
        ({"seed": -1}, "seed=-1 is not possible"),
        ({"sampler": "grid"}, "sampler='grid' does not exist; there are: tpe, random, cmaes"),
        ({"launcher": "spark"}, "launcher='spark' does not exist; there are: engines, processes, mpiexec"),
        ({"objective": "loss"}, "objective='loss' does not exist; there are: likelihood, accuracy"),
        ({"name": " "}, "name=' ' can't be a study's"),
        ({"hours": 0.0}, "hours=0.0 is not possible"),
        ({"settings": ({"learning_rat": 0.1},)}, r"settings\[0\] lacks 'learning_rate'"),
        ({"settings": ({"learning_rate": 0.0},)}, r"learning_rate=0.0, which is not in the space; it has"),
        ({"settings": ({"learning_rate": 0.1, "x": 1},)}, "has no 'x'"),
        ({"sampler": "cmaes", "space": Space.of({**RATE, "learning_rate_decay": CHOICE})}, "give sampler='tpe'"),
    ],
)
def test_what_can_not_be_planned(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        plan_of(**changes)


def test_an_unknown_pruner_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"pruner='clairvoyant'.* does not exist; there are: "):
        open_study(plan_of(pruner="clairvoyant"), tmp_path / "study.db", site_of())
    assert not (tmp_path / "study.db").exists()


def test_cmaes_needs_its_package() -> None:
    with pytest.raises(JobError, match="needs the package cmaes, which is not installed: pip install cmaes"):
        make_sampler("cmaes", 0, 0)


def test_a_list_says_how_many_trials_there_are() -> None:
    assert plan_of(settings=rates(0.01, 0.02), trials=9).trials == 2


def test_a_trial_trains_the_base_with_its_setting() -> None:
    job = plan_of(workers_per_trial=2, base=plan_of().base.with_(global_batch_size=7)).job({"learning_rate": 0.03}, 5)
    assert (job.learning_rate, job.epochs, job.scored_on, job.seed) == (0.03, 3, "held_out", 5)
    assert (job.workers, job.sync, job.per_worker_batch_size) == (2, "shared_memory", 4)


def test_seeds_follow_from_both_numbers() -> None:
    seeds = [training_seed(study, number) for study in (0, 1) for number in (0, 1)]
    assert len(set(seeds)) == 4 and all(0 <= seed < 2**31 for seed in seeds)
    assert seeds[1] == training_seed(0, 1)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a study without trials."""
    file = tmp_path_factory.mktemp("begun") / "study.db"
    close_study(open_study(plan_of(), file, site_of()))
    return file


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"space": Space.of(WIDE, None)}, "space: learning_rate: "),
        ({"objective": "accuracy"}, "objective: 'likelihood' there, 'accuracy' here"),
        ({"epochs": 4}, "epochs: 3 there, 4 here"),
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"pruner": "median"}, "pruner: 'none' there, 'median' here"),
        ({"base": plan_of().base.with_(global_batch_size=4)}, "base: global_batch_size: 8 there, 4 here"),
    ],
)
def test_a_study_of_that_name_that_differs_is_refused(begun: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=rf"study\.db holds a study 'rates' that differs: {said}.*another name"):
        open_study(plan_of(**changes), begun, site_of())


def test_other_images_and_another_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close_study(open_study(plan_of(), tmp_path / "study.db", site_of()))
    with pytest.raises(StudyError, match=r"data: images: 37 there, 31 here; data: hash"):
        open_study(plan_of(), tmp_path / "study.db", site_of(tiny.arrays(31)))
    study, _ = found_study(tmp_path / "study.db")
    study.set_user_attr("version", "0.0.1")
    close_study(study)
    with pytest.raises(StudyError, match=r"differs: version: '0\.0\.1' there"):
        open_study(plan_of(), tmp_path / "study.db", site_of())


def test_more_trials_on_fewer_engines_go_on(tmp_path: Path) -> None:
    close_study(open_study(plan_of(), tmp_path / "study.db", site_of()))
    close_study(open_study(plan_of(trials=9, engines=2, hours=1.0), tmp_path / "study.db", site_of()))
    study, plan = found_study(tmp_path / "study.db")
    close_study(study)
    assert (plan.trials, plan.engines, plan.hours) == (9, 2, 1.0)


def test_a_study_that_somebody_else_made_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    the_optuna().create_study(storage=url, study_name="rates").optimize(lambda trial: 0.0, n_trials=1)
    with pytest.raises(StudyError, match="'rates' that is not Lockstep's; give another name"):
        open_study(plan_of(), url, site_of())


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="does not exist; name the one that `lockstep tune` has written"):
        found_study(tmp_path / "study.db")
    close_study(open_study(plan_of(), tmp_path / "study.db", site_of()))
    with pytest.raises(StudyError, match="no study 'other'; it holds: 'rates'"):
        found_study(tmp_path / "study.db", "other")


def test_checkpoints_stand_beside_the_file_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    beside = folder_of(f"sqlite:///{tmp_path}/study.db", "a/b")
    assert beside.parent == tmp_path / "study.db.trials"
    assert folder_of("postgresql://host/x", "a").parent == tmp_path / "cache" / "trials"


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(StudyError, match=r"pip install 'lockstep\[tune\]'"):
        the_optuna()
