"""Parts behind `lockstep.train`: losses per sample, the trial of an optimiser, the look for NaN, the progress bar."""

from __future__ import annotations

import functools
import io
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lockstep
from lockstep.engine.data.errors import DataError
from lockstep.engine.groups.board import Board
from lockstep.engine.job import JobError
from lockstep.engine.own.losses import LOSSES, read_loss
from lockstep.engine.own.models import made, spare
from lockstep.engine.own.optimisers import check_elementwise
from lockstep.engine.own.progress import StepsBar
from lockstep.engine.training import finite
from lockstep.engine.training.target_scores import target_scores
from own_forms import REACHED, ROWS

functional = nn.functional
OUTPUT = torch.tensor([[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]])
INDICES = torch.tensor([2, 0])


# --- losses ---


@pytest.mark.parametrize(
    ("loss", "output", "labels", "wanted"),
    [
        ("cross_entropy", OUTPUT, INDICES, functional.cross_entropy),
        (nn.CrossEntropyLoss(label_smoothing=0.1), OUTPUT, INDICES,
         functools.partial(functional.cross_entropy, label_smoothing=0.1)),
        (nn.NLLLoss(reduction="none"), OUTPUT, INDICES, functional.nll_loss),
        (nn.MultiMarginLoss(), OUTPUT, INDICES, functional.multi_margin_loss),
        ("mse", OUTPUT, OUTPUT - 1.5, functional.mse_loss),
        (nn.HuberLoss(delta=0.5), OUTPUT, OUTPUT - 1.5, functools.partial(functional.huber_loss, delta=0.5)),
        (functools.partial(functional.huber_loss, delta=0.5), OUTPUT, OUTPUT - 1.5,
         functools.partial(functional.huber_loss, delta=0.5)),
        ("binary_cross_entropy", OUTPUT, (OUTPUT > 0).long(), functional.binary_cross_entropy_with_logits),
        (nn.BCELoss(), OUTPUT.sigmoid(), (OUTPUT > 0).long(), functional.binary_cross_entropy),
    ],
)  # fmt: skip
def test_a_loss_of_torch_is_one_value_per_sample(loss: Any, output: Tensor, labels: Tensor, wanted: Any) -> None:
    """The mean over the batch is torch's own."""
    kind = nn.Module if isinstance(loss, nn.Module) else object
    before = loss.reduction if isinstance(loss, nn.Module) else None
    losses = read_loss(loss)({"logits": output}, labels)
    assert losses.shape == (2,) and isinstance(loss, kind)
    labels = labels if wanted is functional.cross_entropy or labels is INDICES else labels.float()
    torch.testing.assert_close(losses.mean(), wanted(output, labels))
    assert before is None or loss.reduction == before, "the caller's own stays as it is"


def test_a_column_of_outputs_is_not_spread_over_the_labels() -> None:
    """Seen in many scripts: mse_loss of [n, 1] and [n] compares each with each."""
    labels = torch.tensor([1.0, 3.0])
    torch.testing.assert_close(read_loss("mse")(torch.tensor([[1.0], [1.0]]), labels), torch.tensor([0.0, 4.0]))
    with pytest.raises(ValueError, match=r"output is \[2, 3\] and the labels are \[2\]"):
        read_loss("mse")(OUTPUT, labels)


def test_every_name_of_a_loss_can_be_read() -> None:
    assert all(read_loss(name) is not None for name in LOSSES)
    own = functools.partial(functional.cosine_similarity, dim=1)
    assert read_loss(own) is own, "not one of torch's losses: it is taken as it is"


def test_a_loss_with_parameters_is_refused() -> None:
    class Weighted(nn.MSELoss):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

    with pytest.raises(JobError, match="has parameters to train; make them part of the model"):
        read_loss(Weighted())


# --- optimisers and models ---

ELEMENTWISE = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop")


class Normed(torch.optim.SGD):
    """SGD whose gradients are scaled to length 1, all together: not element by element."""

    def step(self, closure: Any = None) -> None:
        leaves = [leaf for group in self.param_groups for leaf in group["params"]]
        nn.utils.clip_grad_norm_(leaves, 1e-3)
        super().step()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_optimisers_of_torch_that_work_element_by_element(name: str) -> None:
    check_elementwise(getattr(torch.optim, name))


def test_an_optimiser_that_looks_at_whole_gradients_is_found_out() -> None:
    with pytest.raises(JobError, match="Normed steps on a part of a parameter otherwise than on the whole"):
        check_elementwise(Normed)


def test_a_model_that_somebody_holds_is_copied_and_another_is_not() -> None:
    held = nn.Linear(2, 2)
    assert spare(made(lambda: held, 0)) is not held
    fresh = nn.Linear(2, 2)
    places = [fresh]
    del fresh
    assert spare(places.pop()).weight.shape == (2, 2)


# --- numbers that are none ---


@pytest.mark.parametrize("place", [(0,), (7, 1), (9, 2)])
def test_the_first_number_that_is_not_finite(place: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "_AT_ONCE", 8)  # several pieces, the last one short
    values = np.zeros((10, 3) if len(place) == 2 else 10, np.float32)
    assert finite.not_finite_at(values) is None and finite.not_finite_at(values.astype(int)) is None
    values[place] = np.inf
    assert finite.not_finite_at(values) == place
    assert finite.told_not_finite(values, "images").startswith(f"images: sample {place[0]} is inf")


# --- scores of what is no class ---


def test_scores_of_numbers_and_of_labels() -> None:
    exact = target_scores(REACHED, REACHED)
    assert exact == {"mean_squared_error": 0, "mean_absolute_error": 0, "r2": 1}
    labels = (ROWS[:, :2] > 0).astype(np.float32)
    assert target_scores(ROWS[:, :2], labels) == {"auc": 1, "average_precision": 1}
    assert target_scores(-ROWS[:, :2], labels)["auc"] == 0
    spoilt = np.full_like(REACHED, np.nan)
    assert all(np.isnan(value) for value in target_scores(spoilt, REACHED).values())
    assert np.isnan(target_scores(ROWS[:, :1], np.ones(len(ROWS)))["auc"]), "no sample without this label"
    assert target_scores(ROWS, np.arange(len(ROWS))) == {}


def test_labels_that_are_no_classes_are_not_tuned() -> None:
    with pytest.raises(DataError, match=r"labels are float32 \[24, 2\], and settings are judged by how well classes"):
        lockstep.tune(lambda setting: nn.Linear(4, 2), (ROWS, REACHED), {"lr": {"kind": "choice", "choices": [0.1]}})


# --- progress ---


class Team:
    def __init__(self) -> None:
        self.board = Board.create(2)


def test_the_bar_follows_the_first_worker() -> None:
    team, shown = Team(), io.StringIO()
    with StepsBar(team, 10, 8.0, True, shown):
        for step in (4, 6):  # an earlier run had made four
            team.board.enter(0, "compute")
            team.board.at_step(0, step)
            wait_for(shown, f"{8 * step}/80")
    told = shown.getvalue()
    assert "starting workers" in told and "training" in told and "80/80" in told and "images/s" in told
    team.board.close()


def wait_for(shown: io.StringIO, text: str) -> None:
    end = time.monotonic() + 20
    while text not in shown.getvalue() and time.monotonic() < end:
        time.sleep(0.02)
    assert text in shown.getvalue()


def test_no_bar_where_nobody_looks_or_nothing_is_known() -> None:
    shown = io.StringIO()
    for team, asked in ((Team(), False), (object(), True)):
        with StepsBar(team, 10, 8.0, asked, shown):
            pass
    assert shown.getvalue() == ""
