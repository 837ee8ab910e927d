"""Studies from end to end: each setting once, repeatable, and going on after whatever was killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import studies
from lockstep.engine.launch.environment import python_path
from lockstep.tuning import slots, worker
from lockstep.tuning.attempts import failures_in_a_row, forgive, stopped_by_failures
from lockstep.tuning.needed import StudyError
from lockstep.tuning.results import read_study
from lockstep.tuning.sampling import training_seed
from lockstep.tuning.study import Controller, best_checkpoint, run_study
from studies import plan_of, rates, site_of, untimed


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    studies.work_here(monkeypatch)


@pytest.mark.slow
def test_a_fixed_list_is_trained_once_each_on_two_engines(tmp_path: Path, no_leftovers: None) -> None:
    """Real worker processes, on a core each."""
    told: list[str] = []
    plan = plan_of(settings=rates(0.01, 0.02, 0.03, 0.04), engines=2, epochs=2)
    found = run_study(plan, tmp_path / "study.db", site_of(), told.append)
    assert found.trials["learning_rate"].tolist() == [0.01, 0.02, 0.03, 0.04]
    assert found.trials["state"].tolist() == ["complete"] * 4
    assert set(found.trials["engine"]) == {0, 1}
    epochs = [[trial, epoch] for trial in range(4) for epoch in (1, 2)]
    assert found.curves[["trial", "epoch"]].values.tolist() == epochs
    last = found.curves[found.curves["epoch"] == 2]
    assert found.trials["value"].tolist() == last["score"].tolist()
    assert found.ended and not found.stopped
    assert sum("epoch" in line and "of 2" in line for line in told) == 8
    assert sum("complete" in line for line in told) == 4
    assert studies.left_behind(tmp_path) == []


@pytest.mark.slow
def test_one_engine_repeats_a_study_to_the_bit(here: None, tmp_path: Path) -> None:
    """Settings that TPE has drawn from what it knows of earlier trials, and what they reach."""
    plan = plan_of(trials=12, epochs=2, pruner="median:startup=1")
    first, second = (run_study(plan, tmp_path / name, site_of()) for name in ("a.db", "b.db"))
    assert untimed(first) == untimed(second)
    assert first.trials["learning_rate"].nunique() == 12
    assert set(first.trials["state"]) == {"complete", "pruned"}


@pytest.mark.slow
def test_a_random_list_is_the_same_on_two_engines(here: None, tmp_path: Path) -> None:
    one, two = (
        run_study(plan_of(sampler="random", engines=engines, epochs=1), tmp_path / f"{engines}.db", site_of())
        for engines in (1, 2)
    )
    columns = ["number", "learning_rate", "value"]
    assert one.trials[columns].equals(two.trials[columns])


# --- what is killed ---


@pytest.mark.slow
def test_a_killed_worker_goes_on_from_its_last_epoch(
    tmp_path: Path, no_leftovers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second trial's process is killed in its third epoch: it reaches what it would have reached."""
    plan = plan_of(settings=rates(0.01, 0.02))
    done = tmp_path / "done"
    killing = site_of(studies.KillsOnce(done, epoch=2, seed=training_seed(0, 1)))
    told: list[str] = []
    killed = run_study(plan, tmp_path / "killed.db", killing, told.append)
    assert done.exists()
    studies.work_here(monkeypatch)
    quiet = run_study(plan, tmp_path / "quiet.db", killing)
    assert killed.trials["retries"].tolist() == [0, 1]
    assert quiet.trials["retries"].tolist() == [0, 0]
    shared = ["number", "state", "value", "epochs", "learning_rate"]
    assert killed.trials[shared].equals(quiet.trials[shared])
    assert untimed(killed)["curves"] == untimed(quiet)["curves"]
    assert any("goes on from epoch" in line for line in told)


_RUN_AND_BE_KILLED = """
import os, pathlib, signal, sys
import pytest
import studies
from lockstep.tuning import worker
from lockstep.tuning.study import run_study
with pytest.MonkeyPatch.context() as patched:
    studies.work_here(patched)
    reports = worker._Attempt.report
    def report(self, row):
        if (self.trial.number, row["epoch"]) == (1, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        reports(self, row)
    patched.setattr(worker._Attempt, "report", report)
    run_study(studies.plan_of(settings=studies.rates(0.01, 0.02)), sys.argv[1], studies.site_of())
"""


@pytest.mark.slow
def test_everything_is_killed_and_the_same_call_goes_on(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the checkpoint of an epoch and its report: the epoch is reported and not trained again."""
    path, plan = tmp_path / "study.db", plan_of(settings=rates(0.01, 0.02))
    ran = subprocess.run(
        [sys.executable, "-c", _RUN_AND_BE_KILLED, str(path)], capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == -9, ran.stderr
    before = read_study(path)
    assert before.trials[["state", "epochs"]].values.tolist() == [["complete", 3], ["left", 1]]
    trained: list[tuple[int, int]] = []
    tells = worker._Attempt.after_epoch
    monkeypatch.setattr(
        worker._Attempt, "after_epoch",
        lambda self, row: trained.append((self.trial.user_attrs["place"], row["epoch"])) or tells(self, row),
    )  # fmt: skip
    after = run_study(plan, path, site_of())
    assert trained == [(1, 3)]
    quiet = run_study(plan, tmp_path / "quiet.db", site_of())
    assert untimed(after)["curves"] == untimed(quiet)["curves"]
    assert after.trials["retries"].tolist() == [0, 1]
    assert studies.left_behind(tmp_path) == []


def _dies(monkeypatch: pytest.MonkeyPatch, times: int, where: str) -> None:
    """The engine of trial 1 dies so often, `before` or `after` the report of its second epoch."""
    reports, left = worker._Attempt.report, [times]

    def report(self: Any, row: Any) -> None:
        strikes = self.trial.user_attrs["place"] == 1 and row["epoch"] == 2 and left[0] > 0
        if strikes and where == "before":
            left[0] -= 1
            raise studies.EngineDied
        reports(self, row)
        if strikes:
            left[0] -= 1
            raise studies.EngineDied

    monkeypatch.setattr(worker._Attempt, "report", report)


@pytest.mark.slow
def test_an_engine_that_dies_in_a_report(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(settings=rates(0.01, 0.02))
    quiet = run_study(plan, tmp_path / "quiet.db", site_of())
    for where in ("before", "after"):
        with monkeypatch.context() as patched:
            _dies(patched, 1, where)
            found = run_study(plan, tmp_path / f"{where}.db", site_of())
        assert untimed(found)["curves"] == untimed(quiet)["curves"]
        assert found.trials["retries"].tolist() == [0, 1]


def test_a_trial_with_which_three_engines_die_fails(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _dies(monkeypatch, 99, "before")
    found = run_study(plan_of(settings=rates(0.01, 0.02), epochs=2), tmp_path / "study.db", site_of())
    assert found.trials["state"].tolist() == ["complete", "failed"]
    assert found.trials["retries"].tolist() == [0, 2]
    assert found.trials["reason"][1] == "was killed by SIGKILL (step 3, compute)"
    assert found.ended


@pytest.mark.slow
def test_ctrl_c_ends_cleanly_and_the_same_call_goes_on(here: None, tmp_path: Path) -> None:
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if "trial 1: epoch 1" in line:
            raise KeyboardInterrupt

    plan = plan_of(epochs=2, sampler="random", trials=3)
    with pytest.raises(KeyboardInterrupt):
        run_study(plan, tmp_path / "study.db", site_of(), stop)
    assert told[-1] == f"stopped; the same call goes on with study 'rates' in {tmp_path / 'study.db'}"
    assert not any(thread.name.startswith("lockstep-slot") for thread in threading.enumerate())
    after = run_study(plan, tmp_path / "study.db", site_of())
    quiet = run_study(plan, tmp_path / "quiet.db", site_of())
    assert untimed(after)["curves"] == untimed(quiet)["curves"]


def test_a_time_limit_stops_a_call_and_not_the_study(here: None, tmp_path: Path) -> None:
    plan = plan_of(epochs=1, trials=2)
    first = run_study(plan.lasting(hours=1e-9), tmp_path / "study.db", site_of())
    assert first.stopped == "the time limit of 1e-09 hours" and not first.ended
    assert run_study(plan, tmp_path / "study.db", site_of()).ended


@pytest.mark.slow
def test_two_calls_on_one_study_share_its_trials(here: None, tmp_path: Path) -> None:
    plan = plan_of(sampler="random", trials=4, epochs=1)
    found: list[Any] = []

    def call() -> None:
        found.append(run_study(plan, tmp_path / "study.db", site_of()))

    other = threading.Thread(target=call)
    other.start()
    call()
    other.join()
    assert [each.trials["state"].tolist() for each in found] == [["complete"] * 4] * 2
    assert found[0].trials["retries"].sum() == 0, "nobody took a trial from the other"
    alone = run_study(plan, tmp_path / "alone.db", site_of())
    assert untimed(found[0])["curves"] == untimed(alone)["curves"]


# --- trials that fail or are pruned ---


def test_a_trial_that_diverges_fails_with_its_reason(here: None, tmp_path: Path) -> None:
    found = run_study(plan_of(settings=rates(0.01, studies.DIVERGES, 0.02), epochs=1), tmp_path / "study.db", site_of())
    assert found.trials["state"].tolist() == ["complete", "failed", "complete"]
    assert found.trials["reason"][1].startswith("NotFiniteError: the loss is nan in step")
    assert found.trials["value"].isna().tolist() == [False, True, False]


def test_five_failures_in_a_row_of_one_kind_stop_the_study(here: None, tmp_path: Path) -> None:
    plan = plan_of(settings=rates(0.01, *[studies.DIVERGES] * 6, 0.02), epochs=1)
    with pytest.raises(StudyError, match=r"5 trials in a row failed alike, the last one, trial 5, because: NotFinite"):
        run_study(plan, tmp_path / "study.db", site_of())
    left = read_study(tmp_path / "study.db").trials["state"].tolist()
    assert left == ["complete", *["failed"] * 5, *["waiting"] * 2]
    after = run_study(plan, tmp_path / "study.db", site_of())
    assert after.trials["state"].tolist() == ["complete", *["failed"] * 6, "complete"]


def test_failures_in_a_row_count_over_restarts(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: each call began to count at 0, so that a study that was restarted often never stopped."""
    plan = plan_of(settings=rates(0.01, *[studies.DIVERGES] * 6, 0.02), epochs=1)
    ended, told = Controller.ended, []

    def until_the_fourth(self: Controller, *how: Any) -> None:
        ended(self, *how)
        told.append(how)
        if len(told) == 4:
            self.stop("interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(Controller, "ended", until_the_fourth)
        first = run_study(plan, tmp_path / "study.db", site_of())
    assert first.trials["state"].tolist() == ["complete", *["failed"] * 3, *["waiting"] * 4]
    with pytest.raises(StudyError, match=r"5 trials in a row failed alike, the last one, trial 5, because: NotFinite"):
        run_study(plan, tmp_path / "study.db", site_of())
    left = read_study(tmp_path / "study.db").trials["state"].tolist()
    assert left == ["complete", *["failed"] * 5, *["waiting"] * 2], "two more than the three of the first call"


def test_failures_after_a_stop_do_not_count_in_the_next_call() -> None:
    """Seen: with several engines six or seven fail before all have stopped, and the next call began at one or two."""
    optuna = pytest.importorskip("optuna")
    study, fail = optuna.create_study(), optuna.trial.TrialState.FAIL
    for _ in range(7):
        study.add_trial(optuna.trial.create_trial(state=fail, user_attrs={"failure": "alike"}))
    forgive(study)
    assert len(failures_in_a_row(study)) == 7, "nothing has stopped this study"
    stopped_by_failures(study)
    forgive(study)
    study.add_trial(optuna.trial.create_trial(state=fail, user_attrs={"failure": "alike"}))
    forgive(study)
    assert failures_in_a_row(study) == ["alike"]


def test_all_trials_failed(here: None, tmp_path: Path) -> None:
    found = run_study(plan_of(settings=rates(1e30, 2e30)), tmp_path / "study.db", site_of())
    assert found.ended and found.best is None
    assert studies.left_behind(tmp_path) == []


def test_all_trials_are_pruned(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna.pruners import NopPruner

    monkeypatch.setattr(NopPruner, "prune", lambda self, study, trial: trial.last_step >= 2)
    found = run_study(plan_of(sampler="random", trials=2), tmp_path / "study.db", site_of())
    assert found.trials["state"].tolist() == ["pruned"] * 2
    assert found.trials["epochs"].tolist() == [2, 2]
    assert found.ended and found.best is None


def test_one_point_runs_once(here: None, tmp_path: Path) -> None:
    from lockstep.tuning.space import Space

    point = Space.of({"learning_rate": {"kind": "choice", "choices": [0.01]}}, None)
    found = run_study(plan_of(space=point, trials=5, epochs=1), tmp_path / "study.db", site_of())
    assert found.trials["state"].tolist() == ["complete"]


def test_an_engine_that_dies_after_its_trial_has_ended_costs_nothing(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trial was counted as failed, and the checkpoint of the best model was removed."""
    whole = slots.run_trial

    def dies(*given: Any) -> None:
        whole(*given)
        raise studies.EngineDied

    monkeypatch.setattr(slots, "run_trial", dies)
    plan = plan_of(trials=2, epochs=1)
    found = run_study(plan, tmp_path / "study.db", site_of(), keep_best=True)
    assert found.trials["state"].tolist() == ["complete"] * 2 and found.trials["retries"].tolist() == [0, 0]
    assert found.best is not None
    assert best_checkpoint(plan, tmp_path / "study.db", int(found.best["number"])).is_file()
