"""What a reviewer of `lockstep.train` saw come out wrong without a word: optimizers and models. Each test is named
after what was seen."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from lockstep.engine.job import JobError
from lockstep.engine.own.optimisers import check_elementwise, read_optimiser
from own_forms import CLASSES, PAIR, ROWS, Pairs, linear
from own_forms import train_here as train

functional = nn.functional

# --- optimizers ---


class Passing(SGD):
    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings)


class Cutting(SGD):
    """Gradients are cut where they are longer than 5, all together."""

    def __init__(self, params: Any, lr: float = 0.1, longest: float = 5.0) -> None:
        super().__init__(params, lr)
        self.longest = longest

    def step(self, closure: Any = None) -> None:
        nn.utils.clip_grad_norm_([leaf for group in self.param_groups for leaf in group["params"]], self.longest)
        super().step()


def test_settings_that_a_class_hands_on_were_lost() -> None:
    model = nn.Linear(4, 2)
    made = read_optimiser(Passing(model.parameters(), lr=0.5, momentum=0.25), model, None)([torch.zeros(1)])
    assert made.param_groups[0]["lr"] == 0.5 and made.param_groups[0]["momentum"] == 0.25
    with pytest.raises(JobError, match="has longest=7"):
        read_optimiser(Cutting(model.parameters(), longest=7.0), model, None)
    hooked = SGD(model.parameters(), lr=0.1)
    hooked.register_step_pre_hook(lambda *given: None)
    with pytest.raises(JobError, match=r"optimiser=SGD\(...\) has hooks"):
        read_optimiser(hooked, model, None)


def test_gradients_that_are_cut_only_where_they_are_large_passed() -> None:
    with pytest.raises(JobError, match="Cutting steps on a part of a parameter otherwise than on the whole"):
        check_elementwise(Cutting)


@pytest.mark.parametrize("lr", [float("inf"), float("nan"), True])
def test_numbers_of_numpy_are_numbers_and_infinity_is_no_learning_rate(lr: Any) -> None:
    assert len(train(linear(), lr=np.float32(0.1), epochs=np.int64(2)).losses) == 6
    with pytest.raises(JobError, match="is not possible; give a finite number of at least 0"):
        read_optimiser(SGD, None, lr)


# --- models ---


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def test_a_layer_left_in_evaluation_mode_was_trained() -> None:
    model = normalised()
    model[1].eval()  # type: ignore[index]
    assert train(model, test=PAIR).model[1].running_mean.tolist() == [0] * 8  # type: ignore[index]
    assert train(normalised).model[1].running_mean.abs().min() > 0  # type: ignore[index]
    told = train(normalised().eval()).cautions
    assert any("the model is in evaluation mode, and all of it is trained" in each for each in told)


@pytest.mark.parametrize(
    ("samples", "workers", "message"),
    [(21, 1, "in step 2, .*21 samples in batches of 10 among 1 worker.s.: give another batch_size$"),
     (24, 8, "in step 0, .*give another batch_size, fewer workers or sync_batch_norm=True")],
)  # fmt: skip
def test_a_share_of_one_sample_can_not_be_normalised(samples: int, workers: int, message: str) -> None:
    with pytest.raises(JobError, match=message):
        train(normalised, (ROWS[:samples], CLASSES[:samples]), workers=workers)


class Unused(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 2)
        self.other = nn.Linear(4, 2)


def test_parameters_without_a_gradient_are_told_of() -> None:
    assert any("parameter 'other.weight' (and 1 more) gets no gradient" in told for told in train(Unused).cautions)
    with pytest.raises(JobError, match="sync='ddp' would wait for it: freeze it"):
        train(Unused, workers=2, sync="ddp", launcher="processes")


def test_a_hook_of_a_parameter_was_lost() -> None:
    model = nn.Linear(4, 2)
    model.weight.register_hook(lambda gradient: 0 * gradient)
    for given in (model, lambda: model):
        with pytest.raises(JobError, match="parameter 'weight' has a hook, which copies of the model lack"):
            train(given)


def test_a_model_without_shapes_yet_is_refused() -> None:
    with pytest.raises(JobError, match="parameter 'weight' has no shape before a first batch"):
        train(lambda: nn.LazyLinear(2))


class Dropping(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(functional.dropout(rows, 0.5, self.training))


def test_a_model_and_data_that_both_draw_repeat() -> None:
    """They draw from one generator, and did so at the same time."""
    data = Pairs(lambda: torch.randn(4))
    one, two = (train(functools.partial(Dropping, 4, 2), data, epochs=6, lr=0.1).losses for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("model", "labels", "message"),
    [(linear(1), CLASSES, "or loss='binary_cross_entropy' for one logit"),
     (linear(2), CLASSES + 1, "no label is 0: labels - 1 would number them from 0")],
)  # fmt: skip
def test_too_few_outputs_are_told_with_the_likely_reason(model: Any, labels: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        train(model, (ROWS, labels))


def test_a_checkpoint_that_is_further_than_the_training_was_taken_as_it_is(tmp_path: Any) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "one", "optimizer": SGD}
    train(linear(), **kept)
    with pytest.raises(JobError, match="has made 6 steps, and epochs=1 are 3; give more epochs"):
        train(linear(), epochs=1, resume=True, **kept)
