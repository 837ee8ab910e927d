"""The networks of *ConvLSTM-D-Accel* train to the same parameters, and predict the same, however they are spread."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lockstep.engine.data.sources import Arrays
from lockstep.engine.models.layers import Network
from lockstep.engine.usecases import UseCase
from together import Teams, alone, small_job

pytestmark = pytest.mark.slow

TWO: dict[str, Any] = {"launcher": "processes", "workers": 2}
STAGED = TWO | {"model_parallel": "pipeline", "stages": 2, "partition": "equal_layers"}
SPREAD: dict[str, dict[str, Any]] = {
    "threads": TWO | {"launcher": "threads", "sync": "allreduce"},
    "allreduce": TWO | {"sync": "allreduce"},
    "shared_memory": TWO | {"sync": "shared_memory"},
    "parameter_server": TWO | {"sync": "parameter_server", "policy": "wait_for_all", "servers": 1},
    "naive": STAGED | {"schedule": "naive"},
    "gpipe": STAGED | {"schedule": "gpipe", "micro_batches": 4},
    "channels_last": TWO | {"sync": "shared_memory", "memory_format": "channels_last"},
    "gpipe-channels_last": STAGED | {"schedule": "gpipe", "micro_batches": 4, "memory_format": "channels_last"},
}
EVERY = pytest.mark.parametrize("how", SPREAD)
# Sums in another order, through a thousand times as many multiplications as the tiny model of `together` has.
TOLERANCE = 2e-5


def images(samples: int, channels: int = 1, classes: int = 2) -> Arrays:
    """Not all alike: stripes in the direction of the class, under noise."""
    dice = np.random.default_rng(5)
    pixels = dice.normal(0.5, 0.2, size=(samples, channels, 50, 50))
    labels = np.arange(samples) % classes
    pixels += 0.3 * np.sin(np.arange(50) * (1 + labels[:, None]))[:, None, None, :]
    return Arrays(pixels.astype(np.float32), labels)


def case(kind: str, classes: int = 2, **changes: Any) -> UseCase:
    """With dropout, and SGD: Adam divides by the size of a gradient, where that is rounding alone, too."""
    network = Network(kind, 1, classes, dropout=0.25)
    made = UseCase.of(network, "own", train=images(37, 1, classes), test=images(11, 1, classes))
    return replace(made, optimiser=functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9), **changes)


@functools.cache
def expected(kind: str, classes: int, folder: Path) -> torch.Tensor:
    return alone(case(kind, classes), folder / f"{kind}-{classes}", steps=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


@pytest.mark.parametrize("kind", ["cnn", "convlstm"])
def test_training_moves_the_parameters_far(kind: str, folder: Path) -> None:
    """Else equal ones would prove nothing."""
    start = alone(case(kind), folder / "start", steps=1)
    assert (expected(kind, 2, folder) - start).abs().max() > 1000 * TOLERANCE


@EVERY
@pytest.mark.parametrize("kind", ["cnn", "convlstm"])
def test_the_parameters_are_those_of_one_worker(
    teams: Teams, kind: str, how: str, folder: Path, tmp_path: Path
) -> None:
    """Two epochs of 37 images in batches of 8, the last of 5."""
    got = teams.together(small_job(steps=8, **SPREAD[how]), case(kind), tmp_path / "together")
    assert (got - expected(kind, 2, folder)).abs().max() < TOLERANCE


@pytest.mark.parametrize("how", ["threads", "gpipe"])
@pytest.mark.parametrize("head", ["dense", "one_step", "shuffled", "frozen"])
def test_other_heads_than_the_lstms(teams: Teams, head: str, how: str, folder: Path, tmp_path: Path) -> None:
    """Also one with weights that nobody trains, and so nobody exchanges."""
    network = Network("convlstm", 1, head=head, dropout=0.25)
    made = replace(UseCase.of(network, "own", train=images(37)), optimiser=case("cnn").optimiser)
    one = alone(made, folder / f"head-{head}", steps=4)
    got = teams.together(small_job(steps=4, **SPREAD[how]), made, tmp_path / "together")
    assert len(got) == len(one) and (got - one).abs().max() < TOLERANCE
    assert not torch.equal(one, alone(made, folder / f"start-{head}", steps=1))


@pytest.mark.parametrize("how", ["shared_memory", "gpipe"])
def test_a_convlstm2d_of_three_classes(teams: Teams, how: str, folder: Path, tmp_path: Path) -> None:
    got = teams.together(small_job(steps=8, **SPREAD[how]), case("convlstm2d", 3), tmp_path / "together")
    assert (got - expected("convlstm2d", 3, folder)).abs().max() < TOLERANCE


@pytest.mark.parametrize("how", ["allreduce", "naive", "gpipe"])
def test_scores_and_losses_are_those_of_one_worker(teams: Teams, how: str) -> None:
    """One logit has two columns of scores, in a stage of a model too, and its loss is a binary one."""
    one = teams.run(small_job(steps=3, launcher="threads"), case("convlstm"), evaluate=True)
    spread = teams.run(small_job(steps=3, **SPREAD[how]), case("convlstm"), evaluate=True)
    assert spread[0].scores == pytest.approx(one[0].scores)
    losses = [sum(trace.steps[step]["train_loss"] for trace in spread) for step in range(3)]
    assert losses == pytest.approx([step["train_loss"] for step in one[0].steps], abs=1e-5)
    assert abs(losses[0] - np.log(2)) < 0.5, "the mean binary cross-entropy of an untrained network"


def test_the_network_follows_the_classes_of_the_images(teams: Teams) -> None:
    """A use case of two classes is given three."""
    this = replace(case("cnn"), train=images(37, 1, 3), test=images(11, 1, 3))
    (trace,) = teams.run(small_job(steps=2, launcher="threads"), this, evaluate=True)
    assert abs(trace.steps[0]["train_loss"] - np.log(3)) < 0.8
    assert 0 <= trace.scores["test_accuracy"] <= 1
