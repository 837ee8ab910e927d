"""Watching a forward pass: which modules draw random numbers, and which compute over several samples."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lockstep
import tiny
from lockstep.engine.replica.dropout import SampleKeys, key_dropout
from lockstep.engine.training.randomness import WatchedPass, keeping_generators
from small_models import Attending, Recurrent

IMAGES = torch.from_numpy(tiny.arrays(2).images)


class Computing(nn.Module):
    """A layer, and `function` of the images before it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.head = function, nn.Linear(126, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.function(x).flatten(1))
        return output


def watched(model: nn.Module) -> WatchedPass:
    model = key_dropout(model.train(), SampleKeys(0, 0, np.arange(len(IMAGES))))
    with keeping_generators(), WatchedPass(model) as seen:
        model(IMAGES)
    return seen


def attention(p: float) -> Callable[[Tensor], Tensor]:
    return lambda x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)


@pytest.mark.parametrize(
    ("model", "modules"),
    [
        (Computing(nn.functional.dropout), ["the model"]),
        (Computing(lambda x: nn.functional.alpha_dropout(x, training=True)), ["the model"]),
        (Computing(attention(0.3)), ["the model"]),
        (Computing(lambda x: x + torch.rand(3, 7, 6, generator=torch.Generator())), ["the model"]),
        (nn.Sequential(nn.RReLU(), nn.Dropout(0.3), nn.RReLU()), ["0", "2"]),
        (Attending(0.3), ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]),
        (Recurrent(0.3), ["lstm"]),
    ],
)  # fmt: skip
def test_whatever_draws_is_named_by_its_module(model: nn.Module, modules: list[str]) -> None:
    """Seen: only the class nn.Dropout2d was looked for; all others trained other parameters without a word."""
    seen = watched(model)
    assert list(seen.draws) == modules
    assert all(any(name in told for told in seen.cautions(False)) for name in modules)


@pytest.mark.parametrize(
    "model",
    [
        Computing(attention(0.0)), Computing(lambda x: nn.functional.dropout(x, training=False)),
        Attending(0.0), Recurrent(0.0), nn.Sequential(nn.InstanceNorm2d(3), nn.GroupNorm(1, 3)),
        nn.BatchNorm2d(3).requires_grad_(False),
    ],
)  # fmt: skip
def test_what_draws_nothing_is_not_blamed(model: nn.Module) -> None:
    assert list(watched(model).cautions(shared=False)) == []


def test_other_generators_are_seen_and_put_back() -> None:
    model = Computing(lambda x: x * float(np.random.rand()) * random.random() * torch.rand(()))
    before = states()
    seen = watched(model)
    assert states() == before
    assert seen.elsewhere == ["numpy's", "Python's"]
    told = list(seen.cautions(False))
    assert len(told) == 3 and "numpy's generator" in told[1]


def states() -> tuple[str, str, list[int]]:
    return repr(np.random.get_state()), repr(random.getstate()), torch.random.get_rng_state().tolist()


def test_batch_normalisation_is_told_where_a_batch_is_shared() -> None:
    seen = watched(nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm2d(3))))
    assert list(seen.cautions(shared=False)) == []
    assert [told.partition(":")[0] for told in seen.cautions(shared=True)] == ["0 and 1 more"]
    assert watched(nn.InstanceNorm2d(3)).normalises == {}
    assert watched(nn.BatchNorm2d(3)).normalises == {"the model": "native_batch_norm"}


def test_hooks_are_gone_afterwards() -> None:
    seen = watched(Recurrent(0.3))
    Recurrent(0.3)(IMAGES)
    assert seen._inside == [] and not nn.modules.module._global_forward_pre_hooks


# --- in training ---


def trained(model: Callable[[], nn.Module], **options: Any) -> tuple[lockstep.api.Trained, list[str]]:
    whole = tiny.arrays()
    settings: dict[str, Any] = {"workers": 1, "sync": "local", "global_batch_size": 8, "optimiser": tiny.SGD}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = lockstep.train(model, (whole.images, whole.labels), **(settings | options))
    return found, [str(one.message) for one in told]


def flat(found: lockstep.api.Trained) -> Tensor:
    return torch.cat([p.detach().flatten() for p in found.model.parameters()])


def functional() -> nn.Module:
    return Computing(nn.functional.dropout)


def test_dropout_that_is_no_module_is_the_same_in_a_run_that_is_repeated() -> None:
    """Seen: one worker, the same seed, twice: parameters that differ by up to 2.98, and no warning."""
    (first, told), (second, _) = (trained(functional) for _ in range(2))
    assert torch.equal(flat(first), flat(second))
    assert not torch.equal(flat(first), flat(trained(functional, seed=1)[0]))
    assert [text for text in told if text.startswith("the model draws random numbers in training (")] == first.cautions


def test_batch_normalisation_is_told_when_workers_share_a_batch() -> None:
    """Seen: one and two workers differed by 0.033, with a line in the README and no warning."""
    found, told = trained(tiny.normalised_net, workers=2, sync="shared_memory", launcher="threads")
    assert any("1: batch normalisation over each worker's own share" in text for text in told)
    assert set(found.cautions) <= set(told)
    assert not any("normalisation" in text for text in trained(tiny.normalised_net)[1])
