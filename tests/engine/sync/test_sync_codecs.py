"""Shorter messages: nothing is lost with error feedback, the mean is right with TernGrad."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.sync import Plan, StepCost
from lockstep.engine.sync.allreduce import AllreduceSync
from lockstep.engine.sync.codecs import Codec, TernGrad, TopK, codec_of, largest
from lockstep.engine.sync.parameter_server import ParameterServerSync
from steps import on_ranks, replica

NUMBERS = st.floats(-1e3, 1e3, width=32, allow_subnormal=False)
VECTORS = st.lists(NUMBERS, max_size=70).map(lambda values: torch.tensor(values, dtype=torch.float32))


def decoded(codec: Codec, message: Tensor, count: int) -> Tensor:
    result = torch.zeros(count)
    codec.add(message, result)
    return result


@settings(max_examples=80, deadline=None)
@given(first=VECTORS, density=st.floats(0.001, 1.0), seed=st.integers(0, 99))
def test_topk_what_is_sent_and_what_is_kept_is_all_there_was(first: Tensor, density: float, seed: int) -> None:
    """Bit for bit, entry by entry, over several steps; the largest are sent, as many as asked for."""
    codec, count = TopK(density), first.numel()
    codec.attach(count, 0)
    for step in range(3):
        values = first if step == 0 else torch.from_numpy(np.random.default_rng(seed + step).normal(size=count)).float()
        owed = codec.kept + values
        before = values.clone()
        message = codec.encode(values, 0, step)
        sent = decoded(codec, message, count)
        assert torch.equal(values, before)
        assert torch.equal(sent + codec.kept, owed)
        assert not (sent * codec.kept).any(), "an entry is sent or kept"
        assert message.numel() == 8 * math.ceil(density * count)
        if (sent != 0).any() and (codec.kept != 0).any():
            assert sent[sent != 0].abs().min() >= codec.kept.abs().max()
    if density == 1.0:
        assert not codec.kept.any()


def test_of_equal_entries_the_first_are_sent() -> None:
    nan, inf = float("nan"), float("inf")
    assert largest(torch.tensor([1.0, -2.0, 2.0, 0.5, -1.0, 1.0]), 4).tolist() == [0, 1, 2, 4]
    assert largest(torch.zeros(5), 3).tolist() == [0, 1, 2]
    assert largest(torch.tensor([9.0, nan, -inf]), 2).tolist() == [1, 2]


def test_topk_of_a_part_of_the_gradient_keeps_that_part() -> None:
    codec = TopK(0.5)
    codec.attach(6, 0)
    codec.encode(torch.tensor([1.0, -3.0]), start=4, step=0)
    assert codec.kept.tolist() == [0, 0, 0, 0, 1.0, 0]
    assert decoded(codec, codec.encode(torch.tensor([1.0, 1.0]), 4, 1), 2).tolist() == [2.0, 0.0], "sent late, not lost"


@settings(max_examples=80, deadline=None)
@given(values=VECTORS, step=st.integers(0, 9), start=st.integers(0, 9))
def test_terngrad_sends_minus_s_zero_or_s(values: Tensor, step: int, start: int) -> None:
    codec = TernGrad(seed=3)
    codec.attach(values.numel(), 1)
    message = codec.encode(values, start, step)
    got = decoded(codec, message, values.numel())
    scale = values.abs().max().item() if values.numel() else 0.0
    assert {abs(value) for value in got.tolist()} <= {0.0, scale}
    assert (got * values >= 0).all(), "never the other sign"
    assert (got[values == 0] == 0).all()
    assert message.numel() == 4 + math.ceil(values.numel() / 4)
    if scale:
        assert (got.abs()[values.abs() == scale] == scale).all(), "the largest is always sent"


def test_terngrads_mean_is_the_gradient() -> None:
    """4000 keyed draws of each entry: within 5 standard errors, whose size is known exactly."""
    values, draws = torch.tensor([0.9, -0.5, 0.01, 0.0, -1.0, 0.3]), 4000
    codec = TernGrad(seed=1)
    codec.attach(6, 0)
    total = torch.zeros(6, dtype=torch.float64)
    for step in range(draws):
        total += decoded(codec, codec.encode(values, 0, step), 6)
    exact = values.double()
    error = (exact.abs() * (1.0 - exact.abs()) / draws).sqrt()
    assert ((total / draws - exact).abs() <= 5 * error + 1e-9).all()


def test_terngrads_draws_are_keyed_by_step_worker_and_place() -> None:
    """And by nothing else: another codec, asked in another order, sends the same."""
    values = torch.full((4000,), 0.5)
    values[0] = 1.0

    def sent(worker: int, start: int, step: int, seed: int = 0) -> list[float]:
        codec = TernGrad(seed)
        codec.attach(4000, worker)
        return decoded(codec, codec.encode(values, start, step), 4000).tolist()

    keys = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    first = [sent(*key) for key in keys]
    assert [sent(*key) for key in reversed(keys)] == first[::-1]
    assert len({tuple(one) for one in first}) == len(keys)


def test_a_gradient_that_is_not_finite_does_not_vanish() -> None:
    for bad in (float("nan"), float("inf")):
        for codec in (TernGrad(), TopK(0.5)):
            codec.attach(3, 0)
            assert not decoded(codec, codec.encode(torch.tensor([1.0, bad, 0.5]), 0, 0), 3).isfinite().all()


def test_what_was_kept_can_be_saved() -> None:
    codec, other = TopK(0.25), TopK(0.25)
    for one in (codec, other):
        one.attach(4, 0)
    codec.encode(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0, 0)
    other.load(codec.state())
    assert other.kept.tolist() == [1.0, 2.0, 3.0, 0.0]
    with pytest.raises(ValueError, match="holds nothing that compression='topk' kept back"):
        other.load(None)
    assert TernGrad().state() is None


@pytest.mark.parametrize("density", [0.0, -1.0, 1.5])
def test_an_impossible_density(density: float) -> None:
    with pytest.raises(ValueError, match=f"density={density!r} is no share of a gradient"):
        TopK(density)


def test_a_job_names_its_codec() -> None:
    assert codec_of(Job(sync="allreduce")) is None
    assert isinstance(codec_of(Job(sync="allreduce", compression="terngrad")), TernGrad)
    made = codec_of(Job(sync="allreduce", compression="topk", density=0.25))
    assert isinstance(made, TopK)
    assert made.density == 0.25


# --- in a sync ---

LENGTH = replica().length


def one_step(group: Group, kind: type[AllreduceSync | ParameterServerSync], codec: Codec) -> tuple[Tensor, StepCost]:
    """Parameters' change by plain SGD with rate 1: minus the sum of what was decoded; and the cost."""
    made = replica()
    sync = kind(Plan(8, 8, 1), lambda tensors: torch.optim.SGD(tensors, lr=1.0), codec=codec)
    sync.attach(made, group)
    before = made.parameters.clone()
    made.gradients.copy_(torch.linspace(-1, 1, LENGTH) * (group.rank + 1))
    cost = sync.step()
    sync.close()
    return before - made.parameters, cost


@pytest.mark.parametrize("kind", [AllreduceSync, ParameterServerSync])
def test_every_rank_steps_with_the_sum_of_the_messages(kind: type[AllreduceSync | ParameterServerSync]) -> None:
    found = on_ranks(3, lambda group: one_step(group, kind, TopK(0.1)))
    assert all(torch.equal(change, found[0][0]) for change, _ in found)
    expected = torch.zeros(LENGTH)
    for rank in range(3):
        codec = TopK(0.1)
        codec.attach(LENGTH, rank)
        codec.add(codec.encode(torch.linspace(-1, 1, LENGTH) * (rank + 1), 0, 0), expected)
    assert (found[0][0] - expected).abs().max() < 1e-6
    assert (expected != 0).sum() < 0.2 * LENGTH


@pytest.mark.parametrize(
    ("make", "size"),
    [(lambda: TopK(0.1), 8 * math.ceil(0.1 * LENGTH)), (TernGrad, 4 + -(-LENGTH // 4))],
    ids=["topk", "terngrad"],
)
def test_bytes_are_those_of_the_messages(make: Callable[[], Codec], size: int) -> None:
    costs = [cost for _, cost in on_ranks(3, lambda group: one_step(group, AllreduceSync, make()))]
    assert [cost.bytes_sent for cost in costs] == [2 * size] * 3
    head = 3 * 8
    costs = [cost for _, cost in on_ranks(3, lambda group: one_step(group, ParameterServerSync, make()))]
    assert [cost.bytes_sent for cost in costs] == [2 * 4 * LENGTH, size + head, size + head]


def test_one_worker_compresses_too() -> None:
    change, cost = one_step(ThreadGroup.of(1)[0], AllreduceSync, TopK(0.1))
    assert int((change != 0).sum()) == math.ceil(0.1 * LENGTH)
    assert cost.bytes_sent == 0
