"""The plan of who trains on what: a function of (seed, step, global batch), never of the number of workers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from lockstep.engine.data.loader import Batch
from lockstep.engine.data.sampling import global_batch
from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.engine.peers import PEERS
from lockstep.engine.sync import SYNCS, Plan, Share
from steps import replica

PLANS = st.builds(
    Plan,
    samples=st.integers(1, 60),
    global_batch_size=st.integers(1, 20),
    steps=st.integers(1, 12),
    seed=st.integers(0, 5),
    micro_batch_size=st.integers(0, 7),
)


@settings(max_examples=60, deadline=None)
@given(plan=PLANS, workers=st.integers(1, 7))
def test_the_shares_of_a_step_are_its_global_batch(plan: Plan, workers: int) -> None:
    for step in range(plan.steps):
        of_ranks = [plan.shares(step, rank, workers) for rank in range(workers)]
        shares = [share for own in of_ranks for share in own]
        epoch, place = divmod(step, plan.steps_per_epoch)
        whole = global_batch(plan.seed, epoch, place, plan.samples, plan.global_batch_size)
        assert np.concatenate([share.sample_ids for share in shares]).tolist() == whole.tolist()
        assert np.concatenate([share.weights for share in shares]).sum() == pytest.approx(1, rel=1e-5)
        for own in of_ranks:
            assert [share.last for share in own] == [False] * (len(own) - 1) + [True]
            assert {(share.step, share.epoch) for share in own} == {(step, epoch)}
        for share in shares:
            assert share.sample_ids.dtype == np.int64
            assert share.weights.dtype == np.float32
            assert share.weights.shape == share.sample_ids.shape
            assert not plan.micro_batch_size or len(share.sample_ids) <= plan.micro_batch_size


@given(samples=st.integers(1, 60), batch=st.integers(1, 20), epochs=st.integers(1, 3), workers=st.integers(1, 5))
def test_every_epoch_holds_every_sample_once(samples: int, batch: int, epochs: int, workers: int) -> None:
    steps = -(-samples // batch) * epochs
    plan, seen = Plan(samples, batch, steps), {}
    for step in range(steps):
        for rank in range(workers):
            for share in plan.shares(step, rank, workers):
                seen.setdefault(share.epoch, []).extend(share.sample_ids.tolist())
    assert sorted(seen) == list(range(epochs))
    assert all(sorted(ids) == list(range(samples)) for ids in seen.values())
    assert plan.steps_per_epoch * epochs == steps
    assert plan.epoch_of(steps - 1) == epochs - 1


def test_micro_batches_split_a_share() -> None:
    plan = Plan(samples=20, global_batch_size=16, steps=2, micro_batch_size=3)
    assert [len(share.sample_ids) for share in plan.shares(0, 0, 2)] == [3, 3, 2]
    assert [len(share.sample_ids) for share in plan.shares(1, 1, 2)] == [2], "the uneven last batch"


def test_a_worker_without_samples_still_takes_part() -> None:
    (share,) = Plan(samples=37, global_batch_size=9, steps=5, micro_batch_size=2).shares(4, 2, 3)
    assert (len(share.sample_ids), len(share.weights), share.last) == (0, 0, True)


def test_weights_are_of_the_batch_that_there_is() -> None:
    """37 samples in batches of 8: the fifth holds 5."""
    plan = Plan(samples=37, global_batch_size=8, steps=5)
    assert plan.shares(0, 0, 2)[0].weights.tolist() == [0.125] * 4
    assert plan.shares(4, 0, 2)[0].weights.tolist() == pytest.approx([0.2] * 3)


# --- a sync hands the plan out ---


def attached(name: str, plan: Plan, group: Group) -> object:
    sync = SYNCS[name](plan, tiny.SGD)
    sync.attach(replica(), group)
    return sync


def names(share: Share | None) -> tuple[int, list[int]] | None:
    return None if share is None else (share.step, share.sample_ids.tolist())


@pytest.mark.parametrize("name", SYNCS)
def test_preview_tells_what_next_gives(name: str) -> None:
    plan = Plan(samples=11, global_batch_size=4, steps=5, micro_batch_size=3)
    sync = attached(name, plan, ThreadGroup.of(1)[0])
    given_out, previewed = [], []
    while (hint := names(sync.preview())) is not None:
        assert names(sync.preview()) == hint, "looking changes nothing"
        previewed.append(hint)
        given_out.append(names(sync.next()))
    assert given_out == previewed == [names(s) for step in range(5) for s in plan.shares(step, 0, 1)]
    assert sync.next() is None


@pytest.mark.parametrize("name", SYNCS)
@pytest.mark.parametrize("look", [False, True], ids=["", "the next share was looked at"])
def test_the_position_is_the_number_of_steps_done(name: str, look: bool) -> None:
    """The loop looks ahead for the loader; a checkpoint must not skip that step."""
    plan = Plan(samples=11, global_batch_size=4, steps=3, micro_batch_size=3)
    sync = attached(name, plan, ThreadGroup.of(1)[0])
    for done in range(1, 4):
        while not sync.next().last:
            pass
        if look:
            sync.preview()
        state = sync.state_dict()
        assert state["step"] == done
    other = attached(name, plan, ThreadGroup.of(1)[0])
    other.preview()
    other.load_state_dict({**state, "step": 1})
    assert names(other.next()) == names(plan.shares(1, 0, 1)[0])


def test_optimiser_state_in_slices_needs_as_many_workers() -> None:
    plan = Plan(samples=8, global_batch_size=8, steps=2)
    sync = attached("shared_memory", plan, ThreadGroup.of(1)[0])
    state = sync.state_dict()
    state["optimiser"] = state["optimiser"] * 3
    with pytest.raises(ValueError, match=r"state in 3 slices, one per worker; resume it with workers=3, not 1"):
        sync.load_state_dict(state)


@pytest.mark.parametrize("name", SYNCS)
def test_a_step_of_one_worker_is_plain_sgd(name: str) -> None:
    data = tiny.arrays()
    sync, expected = SYNCS[name](Plan(8, 8, 1), tiny.SGD), replica()
    made = replica()
    sync.attach(made, ThreadGroup.of(1)[0])
    ids = np.arange(8)
    batch, weights = Batch(data.images[:8], data.labels[:8], ids, 0), np.full(8, 0.125, np.float32)
    for one in (made, expected):
        one.backward(batch, weights)
    cost = sync.step()
    optimiser = torch.optim.SGD(expected.leaves, lr=0.05, momentum=0.9)
    optimiser.step()
    assert torch.allclose(made.parameters, expected.parameters, atol=1e-7)
    assert cost.bytes_sent == 0
    assert min(cost.wait_seconds, cost.exchange_seconds, cost.update_seconds) >= 0
    sync.close()


def test_every_sync_of_the_table_exists() -> None:
    assert {line.fields["sync"] for line in STRATEGIES.values()} - {*PEERS} == set(SYNCS)
