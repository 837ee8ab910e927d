"""What a reader is told: the status of a study, the estimate of the time left, the command, and `lockstep.tune`."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn
from typer.testing import CliRunner

import lockstep
import studies
import tiny
from lockstep.commands.application import app
from lockstep.engine.job import JobError
from lockstep.tuning import own_model
from lockstep.tuning.attempts import this_owner
from lockstep.tuning.opening import close_study, found_study, open_study
from lockstep.tuning.results import OF_DECISION, OF_EPOCH, OF_TRIAL, Finished, read_study
from lockstep.tuning.status_lines import seconds_left, status_text, time_left_text
from lockstep.tuning.study import run_study
from studies import plan_of, site_of

SPACE = """
network: {kind: choice, choices: [cnn]}
learning_rate: {kind: float, range: [0.0001, 0.01], log: true}
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    studies.work_here(monkeypatch)


def found(rows: list[dict[str, Any]], **changes: Any) -> Finished:
    """A study of 10 trials whose trials are these."""
    blank = dict.fromkeys((*OF_TRIAL, "learning_rate"))
    made = [blank | {"number": number, "reason": "", "epochs": 3, "engine": 0} | row for number, row in enumerate(rows)]
    empty = (pd.DataFrame(columns=list(names)) for names in (OF_EPOCH, OF_DECISION))
    return Finished(plan_of(trials=10, engines=2, **changes), pd.DataFrame(made, columns=list(blank)), *empty)


ENDED = [
    {"state": "complete", "value": 0.5, "seconds": 100.0, "learning_rate": 0.01},
    {"state": "complete", "value": 0.75, "seconds": 120.0, "learning_rate": 0.02},
    {"state": "pruned", "value": 0.2, "seconds": 50.0, "learning_rate": 0.03},
    {"state": "failed", "reason": "NotFiniteError: the loss is nan", "learning_rate": 0.09},
]


def test_a_status_says_how_far_a_study_is() -> None:
    running = {"state": "running", "epochs": 1, "engine": 1}
    lines = status_text(found([*ENDED, running])).splitlines()
    assert lines[0] == "study 'rates': 1 running, 2 finished, 1 pruned, 1 failed, 5 not begun, of 10 trials"
    assert lines[1] == "  trial 4: 1 of 3 epochs on engine 1"
    assert lines[2] == "best so far: trial 1, likelihood 0.7500 (learning_rate 0.02)"
    assert lines[3] == "failed 1 times: NotFiniteError: the loss is nan"
    assert lines[4].startswith("time left: ") and lines[4].endswith(
        ", if 2 engines go on and trials last as those that have ended"
    )


def test_a_trial_of_a_dead_controller_does_not_count_as_running(here: None, tmp_path: Path) -> None:
    """Seen: after kill -9 of the controller its trial was "running" for ever."""
    plan, file = plan_of(trials=3), tmp_path / "study.db"
    study = open_study(plan, file, site_of())
    for owner in ([socket.gethostname(), os.getpid(), "0", 0], [*this_owner(), 1]):
        study.ask().set_user_attr("owner", owner)  # the first of a process of this number that has ended
    close_study(study)
    read = read_study(file)
    assert read.trials["state"].tolist() == ["left", "running"]
    lines = status_text(read).splitlines()
    assert lines[0] == "study 'rates': 1 running, 0 finished, 0 pruned, 0 failed, 1 not begun, of 3 trials"
    assert lines[2] == "  trial 0: 0 of 3 epochs; its controller has ended, and the same command goes on with it"


def test_the_time_left_is_a_prediction_interval() -> None:
    """Six trials left, of mean 90 s and standard deviation 36.06 s by three; on two engines."""
    low, high = seconds_left(found(ENDED)) or (0, 0)
    wide = 2.919986 * np.std([100, 120, 50], ddof=1) * math.sqrt(6 + 36 / 3)
    assert low == pytest.approx(max(0.0, 6 * 90 - wide) / 2, rel=1e-5)
    assert high == pytest.approx((6 * 90 + wide) / 2, rel=1e-5)


def test_the_time_left_is_not_made_up() -> None:
    assert time_left_text(found(ENDED[:1])) == "time left: unknown until two trials have ended"
    assert time_left_text(found(ENDED[:1] * 10)) == "time left: none, the study has ended"
    assert "best so far: none, for no trial has finished" in status_text(found(ENDED[2:]))


def test_frames_hold_what_the_storage_holds(here: None, tmp_path: Path) -> None:
    result = run_study(plan_of(trials=2), tmp_path / "study.db", site_of())
    assert tuple(result.trials) == (*OF_TRIAL, "learning_rate")
    assert tuple(result.curves) == OF_EPOCH and tuple(result.decisions) == OF_DECISION
    scores = np.exp(-result.curves["validation_loss"].astype(float))
    assert result.curves["score"].tolist() == pytest.approx(scores.tolist())
    assert (result.trials["seconds"].astype(float) > result.trials["storage_seconds"].astype(float)).all()
    assert result.best is not None and result.best["value"] == result.trials["value"].max()


@pytest.mark.slow
def test_decisions_are_those_of_the_pruner(here: None, tmp_path: Path) -> None:
    plan = plan_of(trials=5, epochs=3, sampler="random", pruner="gain:startup=2,never_pruned=0")
    result = run_study(plan, tmp_path / "study.db", site_of())
    assert len(result.decisions)
    assert result.decisions["trial"].min() >= 2 and set(result.decisions["epoch"]) == {2}
    stopped = set(result.decisions.loc[result.decisions["pruned"], "trial"])
    assert set(result.trials.loc[result.trials["state"] == "pruned", "number"]) == stopped


# --- the command ---


@pytest.mark.slow
def test_the_command_tunes_goes_on_and_says_how_far_it_is(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)
    (tmp_path / "space.yaml").write_text(SPACE)
    storage = ["--storage", str(tmp_path / "study.db")]
    words = ["tune", "--space", str(tmp_path / "space.yaml"), "--images", "40", "--epochs", "1", "--engines", "1"]
    words += ["--launcher", "processes", "--pruner", "none", *storage, "--trials"]
    ran = CliRunner().invoke(app, [*words, "1"])
    assert ran.exit_code == 0, ran.output
    assert "trial 0: epoch 1 of 1, likelihood 0." in ran.output
    assert "study 'Pneumonia space': 0 running, 1 finished, 0 pruned, 0 failed, 0 not begun, of 1 trials" in ran.output
    more = CliRunner().invoke(app, [*words, "2"])
    assert "trial 0" not in more.output.split("best so far")[0] and "trial 1: complete" in more.output
    status = CliRunner().invoke(app, ["tune", "--status", *storage])
    assert "2 finished" in status.output and status.exit_code == 0
    other = CliRunner().invoke(app, [*words, "2", "--seed", "1"])
    assert other.exit_code == 2 and "seed: 0 there, 1 here" in other.output
    study, plan = found_study(tmp_path / "study.db")
    close_study(study)
    assert plan.base.memory_format == "channels_last"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--space is missing"),
        (["--space", "nowhere.yaml"], "nowhere.yaml can't be read"),
        (["--status", "--storage", "nowhere.db"], "nowhere.db does not exist"),
        (["--use-case", "Cats", "--space", "nowhere.yaml"], "use_case='Cats' does not exist"),
    ],
)
def test_refusals_of_the_command(words: list[str], said: str) -> None:
    ran = CliRunner().invoke(app, ["tune", *words])
    assert ran.exit_code == 2
    assert said in ran.output


# --- lockstep.tune ---


def build(setting: Mapping[str, Any]) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 7 * 6, setting["units"]), nn.ReLU(), nn.Dropout(0.1), nn.Linear(setting["units"], 3)
    )


OWN = {"units": {"kind": "int", "range": [4, 32], "log": True}} | studies.RATE


def test_a_readers_own_model_is_tuned(here: None) -> None:
    data = tiny.arrays()
    result = lockstep.tune(
        build, data, OWN, trials=2, epochs=1, engines=1, pruner="none", launcher="processes", global_batch_size=8
    )
    best = result.trials["value"].astype(float).idxmax()
    assert result.setting == {name: result.trials[name][best] for name in ("units", "learning_rate")}
    assert result.model[1].out_features == result.setting["units"] and not result.model.training
    assert result.score == result.trials["value"][best]
    assert _score(result.model, data) == pytest.approx(result.score, rel=1e-5)


def _score(model: nn.Module, data: Any) -> float:
    """exp(-cross-entropy) on the images that were held out."""
    import torch

    from lockstep.engine.data.held_out import part_of_training

    held = part_of_training(data, "held_out")
    images = torch.from_numpy(held.load(np.arange(len(held)), 0, 0))
    with torch.no_grad():
        losses = nn.functional.cross_entropy(model(images), torch.from_numpy(held.labels))
    return math.exp(-float(losses))


def test_a_model_that_can_not_be_built_is_told(here: None) -> None:
    def broken(setting: Mapping[str, Any]) -> nn.Module:
        raise RuntimeError("no such layer")

    with pytest.raises(JobError, match=r"build\(\{'units': .*\) fails with RuntimeError: no such layer"):
        lockstep.tune(broken, tiny.arrays(), OWN, trials=2, epochs=1)


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts a study fails."""
    monkeypatch.setattr(own_model, "run_study", None)


@pytest.mark.usefixtures("here", "no_engine")
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            (nn.Linear(126, 3), nn.Flatten(0)),
            r"the model of \{'units': .*\}: in evaluation mode the model returns a tensor",
        ),
        ((nn.Linear(126, 2),), "the model has 2 outputs for 3 classes"),
        ((nn.Linear(100, 3),), r"a first pass of 2 images in evaluation mode fails with RuntimeError: mat1 and mat2"),
    ],
)
def test_what_can_not_be_trained_is_told_before_engines_start(layers: tuple[nn.Module, ...], message: str) -> None:
    """Seen: it was found by the first trial, and as many failed as were asked for."""
    with pytest.raises(JobError, match=message):
        lockstep.tune(lambda setting: nn.Sequential(nn.Flatten(), *layers), tiny.arrays(), OWN)


@pytest.mark.usefixtures("here", "no_engine")
def test_what_the_workers_decide_is_cautioned_of_before_engines_start() -> None:
    """Seen: no word of dropout that can't be keyed, nor of batch normalization over shares of a batch."""

    asked = []

    def build(setting: Mapping[str, Any]) -> nn.Module:
        asked.append(setting)
        if len(asked) == 1:
            raise RuntimeError("some settings may fail: their trials do")
        return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(126, 3), tiny.Dropping())

    with pytest.warns(UserWarning) as told, pytest.raises(TypeError, match="NoneType"):
        lockstep.tune(build, tiny.arrays(), OWN, workers_per_trial=2, engines=1)
    said = [str(each.message) for each in told]
    assert any(words.startswith("3 draws random numbers in training") for words in said), said
    assert any(words.startswith("0: batch normalisation over each worker's own share") for words in said), said
