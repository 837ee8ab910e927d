"""Local SGD and gossip against loops written by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.replica import TorchReplica
from lockstep.engine.sync import make_sync
from lockstep.engine.sync.gossip import GossipSync, ring_weights
from lockstep.engine.sync.local_sgd import LocalSgdSync
from lockstep.engine.sync.private import PrivateSync
from steps import PLAN, SGD, batch, on_ranks, replica, trained


def by_hand(workers: int, due: Any, state_too: bool = False, steps: int = 12) -> Tensor:
    """Plain replicas and torch's own optimiser, averaged after the steps that `due` names."""
    replicas = [replica() for _ in range(workers)]
    for made in replicas:
        made.rebind(gradients=torch.zeros(made.length))
    leaves = [torch.nn.Parameter(made.parameters) for made in replicas]
    optimisers = [SGD([leaf]) for leaf in leaves]
    for step in range(steps):
        for rank, (made, leaf, optimiser) in enumerate(zip(replicas, leaves, optimisers, strict=True)):
            (share,) = PLAN.shares(step, rank, workers)
            made.clear_gradients()
            made.backward(batch(share.sample_ids, share.epoch), share.weights * np.float32(workers))
            leaf.grad = made.gradients
            optimiser.step()
        if due(step + 1):
            average([made.parameters for made in replicas])
            if state_too:
                average([o.state[leaf]["momentum_buffer"] for o, leaf in zip(optimisers, leaves, strict=True)])
    return torch.stack([made.parameters for made in replicas])


def average(tensors: list[Tensor]) -> None:
    mean = torch.stack(tensors).mean(dim=0)
    for tensor in tensors:
        tensor.copy_(mean)


EVERY = {1: lambda done: True, 5: lambda done: done % 5 == 0, 4: lambda done: done % 4 == 0}


@pytest.mark.parametrize("state_too", [False, True], ids=["", "momentum too"])
@pytest.mark.parametrize(("every", "due"), [(1, 1), (4, 4), (0, 5)], ids=["every step", "every 4", "epoch"])
def test_local_sgd_is_what_it_says(every: int, due: int, state_too: bool) -> None:
    found = on_ranks(3, trained, lambda: LocalSgdSync(PLAN, SGD, every, state_too))
    expected = by_hand(3, EVERY[due], state_too)
    for rank, (parameters, model, *_) in enumerate(found):
        assert (parameters - expected[rank]).abs().max() < 3e-7
        assert (model - expected.mean(dim=0)).abs().max() < 3e-7
        assert torch.equal(model, found[0][1])


def test_averaging_momentum_makes_a_difference() -> None:
    """Otherwise the test above could not tell the two apart."""
    assert (by_hand(3, EVERY[5], True) - by_hand(3, EVERY[5], False)).abs().max() > 1e-5


def test_every_step_with_sgd_is_synchronous_sgd() -> None:
    """SparkNet's tau = 1, uneven shares included (8 and 5 samples for 3 workers)."""
    sequential = by_hand(1, EVERY[1])[0]
    for parameters, *_ in on_ranks(3, trained, lambda: LocalSgdSync(PLAN, SGD)):
        assert (parameters - sequential).abs().max() < 3e-7


def test_losses_are_those_of_the_global_batch() -> None:
    """Weights are scaled for the local step; the loss that is recorded is not."""
    one = trained(ThreadGroup.of(1)[0], lambda: LocalSgdSync(PLAN, SGD))[3]
    three = [losses for *_, losses in on_ranks(3, trained, lambda: LocalSgdSync(PLAN, SGD))]
    assert np.sum(three, axis=0) == pytest.approx(one, abs=1e-5)


def test_bytes_are_sent_when_parameters_are_exchanged() -> None:
    length = replica().length
    sent = on_ranks(2, trained, lambda: LocalSgdSync(PLAN, SGD, 5))[0][2]
    assert sent == [4.0 * length if step in (5, 10) else 0.0 for step in range(1, 13)]
    sent = on_ranks(2, trained, lambda: LocalSgdSync(PLAN, SGD, 5, True))[0][2]
    assert max(sent) == 8.0 * length


def test_a_job_gives_the_options() -> None:
    sync = make_sync(Job(sync="local_sgd", exchange_every=7, state_averaged=True), PLAN, SGD)
    assert isinstance(sync, LocalSgdSync)
    assert (sync.every, sync.state_averaged) == (7, True)
    sync = make_sync(Job(sync="gossip", exchange_every=0), PLAN, SGD)
    assert isinstance(sync, GossipSync)
    assert sync.every == PLAN.steps_per_epoch == 5


def test_a_checkpoint_of_another_number_of_workers_is_refused() -> None:
    sync = LocalSgdSync(PLAN, SGD)
    sync.attach(replica(), ThreadGroup.of(1)[0])
    state = sync.state_dict()
    with pytest.raises(ValueError, match="holds the optimiser's state of 2 workers; resume it with workers=2, not 1"):
        sync.load_state_dict(state | {"optimiser": state["optimiser"] * 2})


# --- gossip ---


@given(size=st.integers(1, 40))
def test_metropolis_weights_are_symmetric_and_sum_to_one(size: int) -> None:
    matrix = np.zeros((size, size))
    for rank in range(size):
        for other, weight in ring_weights(rank, size).items():
            matrix[rank, other] = weight
    assert np.array_equal(matrix, matrix.T)
    assert matrix.sum(axis=0) == pytest.approx(np.ones(size))
    assert (matrix >= 0).all()
    assert all(len(ring_weights(rank, size)) <= 3 for rank in range(size)), "nobody else is heard"


def mixed(group: Group, start: Tensor, times: int) -> list[Tensor]:
    """Parameters after each exchange, from rows of `start`, without any training."""
    sync = GossipSync(PLAN, SGD)
    sync.attach(replica(), group)
    sync.replica.parameters[: start.shape[1]] = start[group.rank]
    found = []
    for _ in range(times):
        sync.mix()
        found.append(sync.replica.parameters[: start.shape[1]].clone())
    return found


@settings(max_examples=15, deadline=None)
@given(size=st.integers(2, 7), seed=st.integers(0, 1000))
def test_gossip_keeps_the_mean_and_draws_workers_together(size: int, seed: int) -> None:
    start = torch.from_numpy(np.random.default_rng(seed).normal(size=(size, 5))).float()
    after = torch.stack([torch.stack(own) for own in on_ranks(size, mixed, start, 4)], dim=1)  # [exchange, worker, 5]
    mean = start.mean(dim=0)
    assert (after.mean(dim=1) - mean).abs().max() < 1e-6
    matrix = np.array([[ring_weights(i, size).get(j, 0.0) for j in range(size)] for i in range(size)])
    shrinks = sorted(np.abs(np.linalg.eigvalsh(matrix)))[-2]
    distances = [float((now - mean).norm()) for now in (start, *after)]
    for before, now in itertools.pairwise(distances):
        assert now <= shrinks * before + 1e-5
    assert shrinks < 1


def test_four_workers_do_not_agree_and_the_model_is_their_mean() -> None:
    found = on_ranks(4, trained, lambda: GossipSync(PLAN, SGD))
    own = torch.stack([parameters for parameters, *_ in found])
    assert (own - own.mean(dim=0)).abs().max() > 1e-6
    for _, model, sent, _ in found:
        assert (model - own.mean(dim=0)).abs().max() < 1e-6
        assert sent == [2 * 4.0 * own.shape[1]] * 12, "two neighbours"


def test_local_weights_sum_to_the_number_of_workers() -> None:
    def shares(group: Group) -> tuple[float, float]:
        sync: PrivateSync = LocalSgdSync(PLAN, SGD)
        sync.attach(TorchReplica(tiny.net()), group)
        share = sync.next()
        assert share is not None
        return share.scale, float(share.weights.sum())

    found = on_ranks(3, shares)
    assert [scale for scale, _ in found] == [3.0] * 3
    assert [weight for _, weight in found] == pytest.approx([9 / 8, 9 / 8, 6 / 8])
