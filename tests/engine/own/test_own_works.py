"""Every form in which a reader may bring a model, data, a loss and an optimiser to `lockstep.train`."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, Subset

import lockstep
from here import Here
from lockstep.api import Trained
from lockstep.engine.launch import LAUNCHERS
from own_forms import (
    CLASSES,
    IMAGES,
    PAIR,
    REACHED,
    ROWS,
    SEVERAL,
    SPOILT,
    TOKENS,
    Output,
    Pairs,
    Wrapped,
    linear,
    tensors,
)

functional = nn.functional
MODEL = nn.Linear(4, 2)


@pytest.fixture(scope="module", autouse=True)
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(LAUNCHERS, "here", Here)
        yield


def train(model: Any = MODEL, data: Any = PAIR, **options: Any) -> Trained:
    settings: dict[str, Any] = {"launcher": "here", "workers": 1, "epochs": 2, "batch_size": 8, "lr": 0.1}
    with warnings.catch_warnings(action="ignore"):
        return lockstep.train(model, data, **(settings | options))


@pytest.fixture(scope="module")
def plain() -> Trained:
    """`MODEL` on `PAIR`: what other forms of the same must be equal to."""
    return train()


def alone(loader_of: Any, **options: Any) -> DataLoader:
    return DataLoader(loader_of, **({"batch_size": 8, "shuffle": True} | options))


@pytest.mark.parametrize(
    ("model", "data", "options"),
    [
        (lambda: copy.deepcopy(MODEL), PAIR, {}),
        (MODEL, [ROWS, CLASSES], {}),
        (MODEL, (ROWS.tolist(), CLASSES.tolist()), {}),
        (MODEL, (torch.from_numpy(ROWS).double(), torch.from_numpy(CLASSES).int()), {}),
        (MODEL, {"inputs": ROWS, "labels": CLASSES}, {}),
        (MODEL, tensors(), {}),
        (MODEL, Pairs(), {}),
        (MODEL, Subset(Pairs(), range(24)), {}),
        (MODEL, Pairs(make=lambda x, y: {"x": x, "y": y}), {}),
        (MODEL, [(ROWS[place], CLASSES[place]) for place in range(24)], {}),
        (MODEL, alone(Pairs(), num_workers=2), {"batch_size": None}),
        (MODEL, alone(tensors(), shuffle=False, drop_last=True), {"batch_size": None}),
        (MODEL, PAIR, {"batch_size": None, "global_batch_size": 8}),
        (MODEL, PAIR, {"device": torch.device("cpu")}),
        (MODEL, PAIR, {"workers": 8}),
        (MODEL, PAIR, {"loss": nn.CrossEntropyLoss()}),
        (MODEL, PAIR, {"loss": functional.cross_entropy}),
        (MODEL, PAIR, {"loss": functools.partial(functional.cross_entropy, reduction="none")}),
        (MODEL, PAIR, {"optimizer": functools.partial(SGD, momentum=0.9)}),
        (MODEL, PAIR, {"optimizer": SGD(MODEL.parameters(), lr=0.1, momentum=0.9), "lr": None}),
    ],
)
def test_other_forms_of_the_same(plain: Trained, model: Any, data: Any, options: dict[str, Any]) -> None:
    assert train(model, data, **options).losses == pytest.approx(plain.losses, rel=1e-5)


def test_a_model_that_is_given_is_the_start_and_stays_as_it_is(plain: Trained) -> None:
    """Its first loss is the one that it has now, and the trained one is another."""
    whole = train(batch_size=24, epochs=1)
    with torch.no_grad():
        now = functional.cross_entropy(MODEL(torch.from_numpy(ROWS)), torch.from_numpy(CLASSES))
    assert whole.losses == pytest.approx([float(now)], rel=1e-5)
    assert plain.model is not MODEL and not torch.equal(plain.model.weight, MODEL.weight)


@pytest.mark.parametrize(
    "wrap", [lambda x: {"loss": None, "logits": x}, Output, lambda x: (x, x.detach()), lambda x: [x]]
)
def test_logits_are_found_in_what_a_model_returns(wrap: Any) -> None:
    model = Wrapped(wrap)
    got, same = train(model, test=PAIR), train(model.inner, test=PAIR)
    assert got.losses == same.losses and got.scores == same.scores != {}


CLASS_SCORES = {"test_accuracy", "test_balanced_accuracy"}
NUMBER_SCORES = {"test_loss", "test_mean_squared_error", "test_mean_absolute_error", "test_r2"}
LABEL_SCORES = {"test_loss", "test_auc", "test_average_precision"}
OF_TOKENS = functools.partial(
    lambda outputs: nn.Sequential(nn.Embedding(9, 5), nn.Flatten(), nn.Linear(15, outputs)), 2
)
PER_TOKEN = functools.partial(
    lambda: nn.Sequential(nn.Embedding(9, 9), nn.Flatten(), nn.Linear(27, 27), nn.Unflatten(1, (9, 3)))
)
OF_IMAGES = functools.partial(lambda: nn.Sequential(nn.Flatten(), nn.Linear(75, 2)))
OF_NUMBERS = functools.partial(lambda: nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 2)))


@pytest.mark.parametrize(
    ("model", "data", "loss", "scores"),
    [
        (OF_NUMBERS, (ROWS[:, 0], CLASSES), "cross_entropy", CLASS_SCORES),
        (OF_IMAGES, (IMAGES, CLASSES), "cross_entropy", CLASS_SCORES),
        (OF_IMAGES, ((IMAGES > 0).astype(np.uint8), CLASSES), "cross_entropy", CLASS_SCORES),
        (OF_IMAGES, (IMAGES > 0, CLASSES), "cross_entropy", CLASS_SCORES),
        (OF_TOKENS, (TOKENS, CLASSES), "cross_entropy", CLASS_SCORES),
        (OF_TOKENS, (TOKENS.astype(np.int32), CLASSES), "cross_entropy", CLASS_SCORES),
        (PER_TOKEN, (TOKENS, TOKENS), nn.CrossEntropyLoss(), {"test_loss"}),
        (linear(1), PAIR, "binary_cross_entropy", CLASS_SCORES),
        (functools.partial(nn.Sequential, nn.Linear(4, 1), nn.Flatten(0)), PAIR, "binary_cross_entropy", CLASS_SCORES),
        (linear(1), (ROWS, REACHED[:, 0]), "mse", NUMBER_SCORES),
        (linear(1), (ROWS, REACHED[:, :1]), nn.SmoothL1Loss(), NUMBER_SCORES),
        (linear(2), (ROWS, REACHED.astype(float)), functional.l1_loss, NUMBER_SCORES),
        (linear(2), (ROWS, SEVERAL), nn.BCEWithLogitsLoss(), LABEL_SCORES),
        (linear(2), (ROWS, SEVERAL.astype(float)), "binary_cross_entropy", LABEL_SCORES),
    ],
)
def test_inputs_and_labels_of_every_kind(model: Any, data: Any, loss: Any, scores: set[str]) -> None:
    got = train(model, data, loss=loss, test=data)
    assert np.isfinite(got.losses).all() and got.losses[-1] != got.losses[0]
    assert set(got.scores) == scores and all(np.isfinite(list(got.scores.values())))


def test_the_scores_of_numbers_are_those_of_the_model_that_comes_back() -> None:
    got = train(linear(2), (ROWS, REACHED), loss="mse", test=(ROWS, REACHED), workers=2)
    with torch.no_grad():
        found = got.model(torch.from_numpy(ROWS)).numpy()
    assert got.scores["test_mean_squared_error"] == pytest.approx(float(((found - REACHED) ** 2).mean()), rel=1e-5)
    assert got.scores["test_loss"] == pytest.approx(got.scores["test_mean_squared_error"], rel=1e-5)


def test_augmentation_at_random_belongs_to_the_sample(plain: Trained) -> None:
    """One worker and two draw the same for a sample."""
    drawn = Pairs(lambda: torch.randn(4))
    one, two = (train(data=drawn, workers=count, sync="allreduce") for count in (1, 2))
    assert two.losses == pytest.approx(one.losses, rel=1e-5)
    assert one.losses != pytest.approx(plain.losses, rel=1e-3)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((ROWS.astype(float), CLASSES), {}, "the images are float64, and are trained as float32"),
        (alone(tensors(), shuffle=False), {}, "the DataLoader does not shuffle, and Lockstep does"),
        (alone(tensors(), batch_size=7, drop_last=True), {}, "drops the last, smaller batch of an epoch"),
        ((SPOILT, CLASSES), {"on_nan": "warn"}, r"training images: sample 17 is nan at \[3\]"),
        ((SPOILT, CLASSES), {"on_nan": "warn"}, r"the loss is nan in step \d on rank 0 .*sample 17 is nan at \[3\]"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # what else is said
def test_what_is_said_and_goes_on(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        got = lockstep.train(MODEL, data, launcher="here", workers=1, **options)
    assert len(got.losses) > 0, "it went on"


def test_two_processes_are_given_a_model_and_a_data_set(plain: Trained) -> None:
    """What travels: a module, a data set and a loss that this file alone knows."""
    got = train(data=Pairs(), workers=2, launcher="processes", loss=nn.CrossEntropyLoss(), test=PAIR)
    assert got.losses == pytest.approx(plain.losses, rel=1e-5)
    assert set(got.scores) == CLASS_SCORES
