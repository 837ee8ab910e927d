"""Coded work: exact for every set of stragglers, stable, or right on average."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lockstep.engine.options import JobError
from lockstep.engine.policies.approximate_coding import CouponCollector, StochasticGradientCoding
from lockstep.engine.policies.coded import Coded
from lockstep.engine.policies.gradient_coding import Cyclic, FractionalRepetition
from policy_runs import Hand, made, ran

CASES = [
    (name, workers, s)
    for name in ("gradient_coding_cyclic", "gradient_coding_fractional")
    for workers in range(1, 9)
    for s in range(workers)
    if name == "gradient_coding_cyclic" or workers % (s + 1) == 0
]


def sent(policy: Coded, part_gradients: np.ndarray, hand: Hand) -> np.ndarray:
    """What each worker sends, [workers, parameters], from the mean gradient of each part."""
    return np.stack(
        [
            sum(coefficient * part_gradients[part] for part, coefficient in hand.work[worker].parts)
            for worker in range(policy.workers)
        ]
    )


def full(part_gradients: np.ndarray, batch: int) -> np.ndarray:
    """The mean over the batch, of which the first parts may have a sample more."""
    parts = len(part_gradients)
    sizes = np.array([batch // parts + (part < batch % parts) for part in range(parts)])
    return sizes @ part_gradients / batch


@pytest.mark.parametrize(("name", "workers", "s"), CASES)
def test_the_full_gradient_whoever_is_late(name: str, workers: int, s: int) -> None:
    """Every set of s stragglers, and every order of those who come; parts of unequal size."""
    batch = 3 * workers + (workers > 1)
    policy = made(name, f"s={s}", workers=workers, global_batch=batch, micro_batch=0)
    assert isinstance(policy, Cyclic | FractionalRepetition)
    parts = np.random.default_rng(workers).standard_normal((workers, 5))
    pushed = sent(policy, parts, Hand(policy))
    for here in itertools.combinations(range(workers), workers - s):
        assert policy.closes_at(here, workers) is not None
        weights = policy.weights(here, [1] * len(here))
        np.testing.assert_allclose(weights @ pushed[list(here)], full(parts, batch), rtol=0, atol=1e-10)
        assert policy.closes_at(here[: -1 if name == "gradient_coding_cyclic" else 0], workers) is None
    # Float32 keeps seven digits, so that a sum decoded from it keeps five of them.
    assert 1 - 1e-9 <= policy.facts()["worst_condition_number"] < (20 if (workers - s) % 2 else 200)


def test_a_worker_computes_s_more_parts() -> None:
    for name in ("gradient_coding_cyclic", "gradient_coding_fractional"):
        policy = made(name, "s=3")
        assert all(len(work.parts) == 4 for work in Hand(policy).work.values())
        assert np.count_nonzero(policy.matrix, axis=0).tolist() == [4] * 8  # type: ignore[attr-defined]


def test_a_round_of_gradient_coding() -> None:
    """n - s are enough; the last one is recalled, nothing goes back to the pool, for everything was computed."""
    policy = made("gradient_coding_cyclic", "s=1", workers=3, samples=90, global_batch=9, micro_batch=0)
    hand = Hand(policy)
    assert {work.ranges for work in hand.work.values()} == {((0, 9),)}
    assert not hand.arrive(2, 1.0).apply
    decision = hand.arrive(0, 2.0)
    assert [use.worker for use in decision.apply] == [0, 2] and decision.recall == (1,)
    assert {work.ranges for work in hand.work.values()} == {((9, 9),)}
    assert decision.apply[0].weight != pytest.approx(1 / 2)  # a decoding vector, no mean


def test_the_condition_number_is_recorded() -> None:
    """Of two rows of a code that repeats, none is better than the other; of four that differ, some are."""
    assert ran(made("gradient_coding_fractional", "s=7"), "none", updates=2).facts == {
        "condition_number": 1.0, "worst_condition_number": 1.0,
    }  # fmt: skip
    facts = ran(made("gradient_coding_cyclic", "s=4"), "exponential", updates=10).facts
    assert 1 < facts["condition_number"] <= facts["worst_condition_number"] < 200


def test_fractional_repetition_ends_as_soon_as_every_group_is_there() -> None:
    """Four workers in two groups, s = 1: 0 and 2 are enough, though 0 and 1 are not."""
    hand = Hand(made("gradient_coding_fractional", "s=1", workers=4, global_batch=8))
    assert not hand.arrive(0, 1.0).apply and not hand.arrive(1, 2.0).apply
    decision = hand.arrive(2, 3.0)
    assert [(use.worker, use.weight) for use in decision.apply] == [(0, 0.5), (1, 0.5), (2, 1.0)]


def test_too_many_stragglers_are_waited_for() -> None:
    policy = made("gradient_coding_cyclic", "s=1", workers=4, global_batch=8)
    assert policy.closes_at([0, 1], 4) is None  # type: ignore[attr-defined]
    with pytest.raises(JobError, match=r"can't be decoded from 2 of them: .* is off by .*condition number"):
        policy.weights([0, 1], [1, 1])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("workers", "copies", "k"), [(5, 2, 4), (6, 3, 3), (7, 1, 5), (4, 2, 1)])
def test_stochastic_gradient_coding_is_right_on_average(workers: int, copies: int, k: int) -> None:
    """Over all sets of k workers, which are equally likely, exactly; a single one is off."""
    options = f"copies={copies},k={k}"
    policy = made("stochastic_gradient_coding", options, workers=workers, global_batch=4 * workers + 1)
    assert isinstance(policy, StochasticGradientCoding)
    parts = np.random.default_rng(1).standard_normal((workers, 3))
    pushed = sent(policy, parts, Hand(policy))
    decoded = [policy.weights(here, [1] * k) @ pushed[list(here)] for here in itertools.combinations(range(workers), k)]
    truth = full(parts, 4 * workers + 1)
    np.testing.assert_allclose(np.mean(decoded, axis=0), truth, rtol=0, atol=1e-12)
    assert np.abs(decoded[0] - truth).max() > 1e-3


def test_stochastic_coding_gives_back_what_nobody_sent() -> None:
    """One copy of each part: the part of the worker that is late comes back, and is given out first."""
    policy = made("stochastic_gradient_coding", "copies=1,k=3", workers=4, global_batch=8)
    hand = Hand(policy)
    late = int(np.flatnonzero(policy.matrix[:, 3])[0])  # who has the last part  # type: ignore[attr-defined]
    for worker in range(4):
        if worker != late:
            decision = hand.arrive(worker, float(worker))
    assert decision.recall == (late,)
    assert hand.work[0].ranges == ((6, 8),)  # places 6 and 7 again, then 8 to 13


def test_parts_are_spread_over_pairs() -> None:
    """Two copies of 16 parts: no two workers share more than two parts (pair-wise balance)."""
    policy = made("stochastic_gradient_coding", "copies=2,k=15", workers=16)
    shared = (policy.matrix != 0).astype(int) @ (policy.matrix != 0).T.astype(int)  # type: ignore[attr-defined]
    assert np.diag(shared).tolist() == [2] * 16
    assert (shared - np.diag(np.diag(shared))).max() <= 2


@pytest.mark.parametrize(("workers", "r"), [(8, 2), (12, 4), (7, 3), (5, 5), (6, 1)])
def test_coupons_are_collected(workers: int, r: int) -> None:
    """Closed by the first worker that completes the collection; exact whoever came."""
    policy = made("coupon_collector", f"r={r}", workers=workers, global_batch=3 * workers + 1)
    assert isinstance(policy, CouponCollector) and policy.batches == math.ceil(workers / r)
    parts = np.random.default_rng(0).standard_normal((workers, 4))
    pushed = sent(policy, parts, Hand(policy))
    batch_of = [tuple(np.flatnonzero(row)) for row in policy.matrix]
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(workers)
        count = policy.closes_at(order, workers)
        assert count is not None and policy.closes_at(order[: count - 1], workers) is None
        here = sorted(order[:count].tolist())
        assert {batch_of[worker] for worker in here} == set(batch_of)
        np.testing.assert_allclose(
            policy.weights(here, [1] * count) @ pushed[here], full(parts, 3 * workers + 1), rtol=0, atol=1e-12
        )


def test_codes_are_those_of_the_seed() -> None:
    drawn = {"gradient_coding_cyclic": "s=2", "stochastic_gradient_coding": "", "coupon_collector": ""}
    for name, options in drawn.items():
        one, again, other = (made(name, options, seed=seed).matrix for seed in (1, 1, 2))  # type: ignore[attr-defined]
        assert (one == again).all() and (one != other).any(), name
