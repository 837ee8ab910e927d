"""Batch normalization in a model that is cut into stages: its statistics are those of a micro-batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lockstep
from here import Started, refuse_to_start
from lockstep.engine.job import JobError
from lockstep.engine.sync.plan import Plan
from own_forms import CLASSES, ROWS

STAGES: dict[str, Any] = {"workers": 2, "model_parallel": "pipeline"}


def normalised() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def frozen() -> nn.Sequential:
    model = normalised()
    model[1].eval()
    return model


def grouped() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.ReLU(), nn.Linear(8, 2))


def told_of(model: Callable[[], nn.Module], samples: int = 24, **options: Any) -> list[str]:
    """What is warned about before workers would start."""
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patched.setattr("lockstep.engine.launch.team.Team.start", refuse_to_start)
        with pytest.raises(Started):
            lockstep.train(model, (ROWS[:samples], CLASSES[:samples]), **(STAGES | options))
    return [str(each.message) for each in told if "normalisation" in str(each.message)]


def test_statistics_of_micro_batches_are_told_with_the_module() -> None:
    (told,) = told_of(normalised, batch_size=8)
    assert told.startswith("1: batch normalisation over each micro-batch of 2 samples, not the whole batch of 8: ")
    assert "sync_batch_norm is not built for pipelines" in told
    (of_two,) = told_of(normalised, batch_size=8, workers=4, stages=2, micro_batches=2)
    assert "over each micro-batch of 2 samples, not the whole batch of 8" in of_two


@pytest.mark.parametrize(
    ("model", "options"),
    [(grouped, {}), (frozen, {}), (normalised, {"schedule": "naive"})],
    ids=["another layer", "frozen", "one micro-batch"],
)
def test_nothing_is_told_where_the_statistics_are_those_of_one_worker(model: Any, options: dict[str, Any]) -> None:
    assert told_of(model, batch_size=8, **options) == []


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (24, {"batch_size": 4}, "a micro-batch of one sample, which each is here, fails in training with ValueError: "
                                "Expected more than 1 value per channel .*batches of 4 among 1 pipeline.s. of 4"),
        (20, {"batch_size": 8}, "^1: batch normalisation .*last step has 4 samples and is filled up to 8 with zeros.*"
                                "give a batch_size that divides 20"),
        (24, {"batch_size": 8, "activations": "recomputed"}, "would note each micro-batch's statistics twice"),
        (24, {"batch_size": 8, "sync_batch_norm": True}, "statistics of the whole batch are built for model_parallel="),
    ],
)  # fmt: skip
def test_what_is_refused_before_workers_start(samples: int, options: dict[str, Any], message: str) -> None:
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(action="ignore"):
        patched.setattr("lockstep.engine.launch.team.Team.start", refuse_to_start)
        with pytest.raises(JobError, match=message):
            lockstep.train(normalised, (ROWS[:samples], CLASSES[:samples]), **(STAGES | options))


def test_a_frozen_layer_takes_micro_batches_of_one_sample_and_short_steps() -> None:
    assert told_of(frozen, 22, batch_size=4) == []


def test_statistics_are_those_of_each_micro_batch() -> None:
    """What the warning says, by a loop of torch over the same micro-batches."""
    options: dict[str, Any] = {"batch_size": 24, "micro_batches": 2, "lr": 0.1}
    with warnings.catch_warnings(action="ignore"):
        got = lockstep.train(normalised, (ROWS, CLASSES), **(STAGES | options)).model
    torch.manual_seed(0)
    model = normalised()
    order = np.concatenate([share.sample_ids for share in Plan(24, 24, 1, 0).shares(0, 0, 1)])
    for ids in np.split(order, 2):
        losses = nn.functional.cross_entropy(model(torch.from_numpy(ROWS[ids])), torch.from_numpy(CLASSES[ids]))
        (losses / 2).backward()
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).step()
    wanted = model.state_dict()
    assert got.state_dict().keys() == wanted.keys()
    for name, value in got.state_dict().items():
        torch.testing.assert_close(value, wanted[name], rtol=0, atol=1e-6, msg=name)
    assert int(wanted["1.num_batches_tracked"]) == 2
