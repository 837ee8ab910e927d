"""Training until something has been learnt: the same course and the same scores, whoever trains."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.data.sources import Arrays
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.training import checkpoint
from lockstep.engine.training.checkpoint import CheckpointError
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.usecases import UseCase
from together import TOLERANCE, Teams, small_job

PIPELINE: dict[str, Any] = {
    "launcher": "processes", "model_parallel": "pipeline", "stages": 2, "partition": "equal_layers"
}  # fmt: skip
SERVED: dict[str, Any] = {"sync": "parameter_server", "policy": "wait_for_all"}
WAYS: dict[str, dict[str, Any]] = {
    "threads-allreduce": {"launcher": "threads", "sync": "allreduce"},
    "threads-shared_memory": {"launcher": "threads", "sync": "shared_memory"},
    "threads-parameter_server": {"launcher": "threads"} | SERVED | {"servers": 1},
    "threads-weights_server": {"launcher": "threads"} | SERVED | {"servers": 1, "opt_weight": "mean"},
    "threads-sharded_server": {"launcher": "threads"} | SERVED | {"shards": 2},
    "threads-local_sgd": {"launcher": "threads", "sync": "local_sgd"},
    "processes-allreduce-overlapped": {
        "launcher": "processes", "sync": "allreduce", "bucket": "layer", "overlap": True
    },
    "processes-shared_memory": {"launcher": "processes", "sync": "shared_memory"},
    "processes-parameter_server": {"launcher": "processes"} | SERVED | {"servers": 1},
    "processes-ddp": {"launcher": "processes", "sync": "ddp"},
    "mpiexec-allreduce": {"launcher": "mpiexec", "sync": "allreduce"},
    "naive_pipeline": PIPELINE | {"schedule": "naive"},
    "gpipe": PIPELINE | {"schedule": "gpipe", "micro_batches": 4},
}  # fmt: skip
SCORES = (
    "train_accuracy", "train_loss", "validation_accuracy", "validation_balanced_accuracy", "validation_loss",
    "test_accuracy", "test_balanced_accuracy", "test_auc", "test_loss", "epochs_trained", "updates_done",
    "training_seconds",
)  # fmt: skip


def easy(samples: int, seed: int, rare: int = 3, classes: tuple[str, ...] | None = None) -> Arrays:
    """Three classes that differ in their mean; of class 2 one in `rare` samples, of the others as many of each."""
    dice = np.random.default_rng(seed)
    labels = np.where(np.arange(samples) % rare == rare - 1, 2, np.arange(samples) % 2)
    images = dice.normal(size=(samples, 3, 7, 6)) + 0.4 * (labels[:, None, None, None] - 1)
    return Arrays(images.astype(np.float32), labels, classes)


def case(**changes: object) -> UseCase:
    return tiny.case(**({"model": tiny.deep_net, "train": easy(50, 1), "test": easy(23, 2)} | changes))


def job(**changes: Any) -> Job:
    """Three epochs of five steps, of the 38 images that are not held out."""
    return small_job(**({"epochs": 3, "scored_on": "validation", "steps": 1, "warmup_steps": 1} | changes))


def one(this: Job, of: UseCase, **site: Any) -> Trace:
    return run_job(this, ThreadGroup.of(1)[0], Site(use_case=of, **site))


COURSE: dict[str, Any] = {
    "learning_rate_rule": "linear", "learning_rate": 0.4, "learning_rate_decay": "cosine", "rate_warmup_epochs": 1,
    "class_weights": "balanced",
}  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> Trace:
    return one(job(**COURSE), case())


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_course_and_scores_are_those_of_one_worker(teams: Teams, alone: Trace, way: str) -> None:
    """Rates that rise and fall, weights of classes, uneven last batches, dropout: every epoch's losses are the same."""
    this = job(workers=2, **COURSE, **WAYS[way])
    traces = teams.run(this, case())
    assert [row["epoch"] for row in alone.tables["epochs"]] == [1, 2, 3]
    for trace in traces[: this.workers]:
        assert set(trace.scores) == set(SCORES) == set(alone.scores)
        for name in SCORES[:-1]:
            assert trace.scores[name] == pytest.approx(alone.scores[name], abs=1e-5), name
        assert trace.tables["confusion"] == alone.tables["confusion"]
        for got, expected in zip(trace.tables["epochs"], alone.tables["epochs"], strict=True):
            assert set(got) == set(expected)
            assert {**got, "seconds": 0.0} == pytest.approx({**expected, "seconds": 0.0}, abs=1e-5)
    assert {trace.summed for trace in traces} == {15}, "of servers too"
    assert sum(row["seconds"] for row in traces[0].tables["epochs"]) == pytest.approx(  # type: ignore[misc]
        traces[0].scores["training_seconds"]
    )


def test_the_rates_of_a_course(alone: Trace) -> None:
    """Of the last step of each epoch: 0.4 x 8/32, times the cosine of steps 4, 9 and 14 of 15."""
    expected = [0.1 * (1 + math.cos(math.pi * step / 15)) / 2 for step in (4, 9, 14)]
    assert [row["learning_rate"] for row in alone.tables["epochs"]] == pytest.approx(expected)


def test_the_confusion_is_of_both_splits_and_fits_the_accuracy(alone: Trace) -> None:
    for split, images in (("validation", 12), ("test", 23)):
        rows = [row for row in alone.tables["confusion"] if row["split"] == split]
        right = sum(int(row["count"]) for row in rows if row["actual"] == row["predicted"])
        assert sum(int(row["count"]) for row in rows) == images
        assert right / images == pytest.approx(alone.scores[f"{split}_accuracy"])


def test_updates_end_within_an_epoch() -> None:
    trace = one(job(epochs=0, updates=7, scored_on="test"), case(train=tiny.arrays()))
    assert [row["epoch"] for row in trace.tables["epochs"]] == [1, 2]
    assert (trace.scores["epochs_trained"], trace.scores["updates_done"], trace.summed) == (1, 7, 7)
    assert not any(name.startswith("validation") for name in trace.scores)
    assert all(math.isnan(float(row["validation_loss"])) for row in trace.tables["epochs"])


def test_what_is_scored_on_the_test_is_trained_on_all() -> None:
    """50 images in batches of 8 are seven steps; 38, without those held out, are five."""
    steps = {on: one(job(epochs=1, scored_on=on), case()).scores["updates_done"] for on in ("test", "validation")}
    assert steps == {"test": 7, "validation": 5}


def test_local_sgd_is_scored_as_its_mean_between_two_exchanges(teams: Teams) -> None:
    """An exchange every four steps, epochs of five: after an epoch workers differ, and go on from where they were."""
    fields = {"workers": 2, "launcher": "threads", "sync": "local_sgd", "exchange_every": 4}
    scored, plain = (teams.run(job(scored_on=on, **fields), case(train=easy(39, 1))) for on in ("test", "none"))
    assert scored[0].scores == scored[1].scores | {"training_seconds": scored[0].scores["training_seconds"]}
    for got, expected in zip(scored[0].tables["epochs"], plain[0].tables["epochs"], strict=True):
        assert got["train_loss"] == pytest.approx(expected["train_loss"], abs=1e-6), "looking changed nothing"


# --- resuming ---


@pytest.mark.slow
@pytest.mark.parametrize("way", ["threads-shared_memory", "threads-parameter_server"])
def test_a_resumed_course_goes_on(teams: Teams, way: str, tmp_path: Path) -> None:
    """Within a warm-up of three epochs, so that rates go on too."""
    fields = {"workers": 2, "rate_warmup_epochs": 3, **WAYS[way]}
    whole = teams.run(job(**fields, epochs=4), case(), tmp_path / "whole")
    teams.run(job(**fields, epochs=0, updates=10), case(), tmp_path / "parts")
    rest = teams.run(job(**fields, epochs=4), case(), tmp_path / "parts", resume=True)
    reached = [checkpoint.read(str(tmp_path / name))["parameters"] for name in ("whole", "parts")]
    assert (reached[0] - reached[1]).abs().max() < TOLERANCE
    for got, expected in zip(rest[0].tables["epochs"], whole[0].tables["epochs"][2:], strict=True):
        assert got["train_loss"] == pytest.approx(expected["train_loss"], abs=1e-6)
        assert got["learning_rate"] == expected["learning_rate"]
    assert rest[0].scores["updates_done"] == 20


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({}, {"class_weights": "balanced"}, "class_weights='none'"),
        ({}, {"scored_on": "test"}, "scored_on='validation'"),
        ({"learning_rate_decay": "cosine"}, {"learning_rate_decay": "cosine", "epochs": 5}, "epochs=3"),
    ],
)
def test_another_course_can_not_be_resumed(
    before: dict[str, Any], now: dict[str, Any], named: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "checkpoint")
    one(job(**before), case(), checkpoint=path)
    with pytest.raises(CheckpointError, match=named):
        one(job(**now), case(), checkpoint=path, resume=True)


def test_early_stopping_can_not_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"early_stopping_epochs=2 with checkpoint=.* give no checkpoint"):
        one(job(early_stopping_epochs=2), case(), checkpoint=str(tmp_path / "checkpoint"))


# --- stopping early ---


def senseless() -> UseCase:
    """Labels that have nothing to do with the images: after some epochs of learning by heart validation gets worse."""
    dice = np.random.default_rng(5)
    train = Arrays(easy(50, 1).images, dice.permutation(np.arange(50) % 3))
    rate = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    return case(train=train, model=functools.partial(tiny.deep_net, 0.0), optimiser=rate)


@pytest.mark.parametrize("way", ["threads-shared_memory", "threads-parameter_server", "gpipe"])
def test_workers_stop_together_and_the_best_epoch_is_scored(teams: Teams, way: str) -> None:
    this = job(epochs=40, early_stopping_epochs=3, workers=2, **WAYS[way])
    traces = teams.run(this, senseless())
    rows = traces[0].tables["epochs"]
    losses = [float(row["validation_loss"]) for row in rows]
    assert 4 <= len(rows) < 40
    assert losses.index(min(losses)) == len(rows) - 4, "three epochs were waited for"
    for trace in traces[:2]:
        assert trace.scores["validation_loss"] == pytest.approx(min(losses), abs=1e-6) != losses[-1]
        assert trace.scores["epochs_trained"] == len(rows) == len(trace.tables["epochs"])
    assert {trace.summed for trace in traces} == {5 * len(rows)}


# --- classes ---


def test_a_class_without_an_image_is_no_part_of_the_scores() -> None:
    """It has no recall and no area under the curve, and nothing fails."""
    train = easy(50, 1, classes=("a", "b", "c", "absent"))
    model = functools.partial(nn.Sequential, nn.Flatten(), nn.Linear(3 * 7 * 6, 4))
    trace = one(job(), case(train=train, test=train, model=model))
    assert math.isnan(trace.scores["test_auc"])
    assert 0 <= trace.scores["test_balanced_accuracy"] <= 1
    absent = [row["count"] for row in trace.tables["confusion"] if row["actual"] == "absent"]
    assert absent == [0] * 8


def recall_of_the_rare(class_weights: str) -> float:
    """One of 11 images is of class 2; a linear model, which learns by the mean image."""
    model = functools.partial(_linear, 3)
    trace = one(
        job(epochs=6, class_weights=class_weights, scored_on="test"),
        case(train=easy(220, 1, rare=11), test=easy(220, 2, rare=11), model=model),
    )
    rows = [row for row in trace.tables["confusion"] if row["actual"] == "2"]
    right = sum(int(row["count"]) for row in rows if row["predicted"] == "2")
    return right / sum(int(row["count"]) for row in rows)


def _linear(classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))


def test_balanced_weights_find_more_of_a_rare_class() -> None:
    plain, balanced = recall_of_the_rare("none"), recall_of_the_rare("balanced")
    assert balanced > plain + 0.2
