"""Policies that decide round by round, driven by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep.engine.options import JobError
from lockstep.engine.policies import Left
from lockstep.engine.policies.detection import median_of_all
from lockstep.engine.policies.fixed_time import best_threshold
from lockstep.engine.policies.rounds import Closed
from lockstep.simulate.problems import Logistic
from policy_runs import Hand, gradients_of, made, mean_and_error, ran

SMALL = {"workers": 4, "samples": 100, "global_batch": 16, "micro_batch": 2}


def test_the_first_k_make_an_update_and_the_others_are_recalled() -> None:
    hand = Hand(made("k_sync", "k=3", **SMALL))
    assert not hand.arrive(3, 1.0).apply and not hand.arrive(0, 2.0).apply
    decision = hand.arrive(2, 3.0)
    assert [(use.worker, use.weight) for use in decision.apply] == [(0, 1 / 3), (2, 1 / 3), (3, 1 / 3)]
    assert decision.recall == (1,)
    assert hand.work[0].ranges == ((4, 4),), "the samples of the one that was recalled come first"


def test_who_has_left_is_not_waited_for() -> None:
    hand = Hand(made("wait_for_all", **SMALL))
    hand.arrive(0, 1.0)
    assert not hand.policy.on(Left(0), 1.5).apply  # its contribution counts
    hand.arrive(1, 2.0)
    hand.arrive(2, 2.5)
    del hand.work[3]
    decision = hand.act(hand.policy.on(Left(3), 3.0))
    assert [use.worker for use in decision.apply] == [0, 1, 2]
    assert sorted(hand.work) == [1, 2] and hand.work[1].ranges == ((12, 8),), "worker 3's places come first"


def test_k_grows_when_the_loss_stops_falling() -> None:
    hand = Hand(made("adaptive_k", "k=1,step=2,threshold=2,burn_in=3", **SMALL))
    ks = []
    for loss in [5.0, 4.0, 3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6, 3.7, 3.8, 3.9, 4.0, 4.1]:
        hand.round(lambda worker, work: 1.0 + worker, loss=loss)
        ks.append(hand.policy.facts()["k"])
    # Two falls, then rises: -2 after the third update, 3 > 2 after the eighth; then from 0, and four updates later.
    assert ks == [1] * 7 + [3] * 4 + [4] * 3


def test_whoever_takes_more_than_one_and_a_half_medians_is_dropped() -> None:
    hand = Hand(made("drop_after_detection", **SMALL))
    for worker, time in ((0, 1.0), (1, 2.0)):
        hand.arrive(worker, time)
        assert hand.policy.wake_at() is None  # the median of four is known with the third
    hand.arrive(2, 4.0)
    assert hand.policy.wake_at() == pytest.approx(1.5 * 3.0)
    decision = hand.act(hand.policy.woke(4.5))
    assert [use.worker for use in decision.apply] == [0, 1, 2] and decision.recall == (3,)
    assert hand.policy.wake_at() is None  # a new round


@pytest.mark.parametrize("workers", [1, 2, 3, 6, 7])
def test_the_median_is_known_when_more_than_half_are_there(workers: int) -> None:
    arrivals = np.sort(np.random.default_rng(workers).random(workers))
    assert median_of_all(arrivals[: workers // 2 + 1], workers) == np.median(arrivals)


def test_what_a_policy_hears_of_a_round() -> None:
    heard = []
    policy = made("k_sync", "k=3", **SMALL)
    policy.closed = heard.append  # type: ignore[attr-defined, method-assign]
    hand = Hand(policy)
    for worker, time in ((3, 1.0), (0, 2.0), (2, 2.5)):
        hand.arrive(worker, time, loss=float(worker), system={"load": 0.5 * worker})
    over: Closed = heard[0]
    np.testing.assert_array_equal(over.arrivals, [2.0, np.nan, 2.5, 1.0])
    np.testing.assert_array_equal(over.seconds, [2.0, np.nan, 2.5, 1.0])
    assert over.samples.tolist() == [4, 0, 4, 4] and over.given.tolist() == [4] * 4 and over.tasks.tolist() == [0] * 4
    assert over.lasted == 2.5
    np.testing.assert_array_equal(over.losses, [0.0, np.nan, 2.0, 3.0])
    assert over.system is not None
    np.testing.assert_array_equal(over.system["load"], [0.0, np.nan, 1.0, 1.5])


def test_anytime_counts_what_has_been_finished() -> None:
    policy = made("anytime", "seconds=1.0,most=2", **SMALL)
    hand = Hand(policy)
    assert {(work.samples, work.deadline_seconds, work.micro_batch) for work in hand.work.values()} == {(8, 1.0, 2)}
    for worker, samples in ((0, 8), (1, 2), (2, 4)):
        assert not hand.arrive(worker, 1.0, samples).apply
    decision = hand.arrive(3, 1.2, 6)
    assert [use.weight for use in decision.apply] == [8 / 20, 2 / 20, 4 / 20, 6 / 20]
    assert hand.work[0].ranges == ((10, 6), (20, 2)), "what was not computed is given out first"


@pytest.mark.parametrize("options", [("anytime", "seconds=0.5,most=2"), ("deadline", "deadline=0.5,forecast=last")])
def test_a_fixed_time_shorter_than_one_micro_batch(options: tuple[str, str]) -> None:
    """A pause may make a micro-batch too long; ten updates in which all were too long are no accident."""
    hand = Hand(made(*options, **SMALL))
    for _ in range(9):
        hand.round(lambda worker, work: 0.8 + worker / 10, samples=2)
    with pytest.raises(JobError, match=r"a deadline of 0.5 s is shorter than one micro-batch: .* 2 images took 0.8 s"):
        hand.round(lambda worker, work: 0.8 + worker / 10, samples=2)
    hand = Hand(made(*options, **SMALL))
    for _ in range(12):
        hand.round(lambda worker, work: 0.8 + worker / 10, samples=4)


def test_drop_compute_chooses_the_threshold_with_the_largest_speedup() -> None:
    """Against all micro-batch ends, tried one by one: 12 workers, two of them slow in every second round."""
    random = np.random.default_rng(0)
    rounds = [4 * (1 + 0.05 * random.random(12)) for _ in range(10)]
    for slow in rounds[::2]:
        slow[:2] *= 3
    chosen = best_threshold(rounds, 4)
    assert chosen is not None

    def speedup(threshold: float) -> float:
        done = lasts = 0.0
        for seconds in rounds:
            counts = [min(max(math.ceil(threshold / (one / 4) - 1e-9), 1), 4) for one in seconds]
            done += np.mean(counts) / 4
            lasts += max(count * one / 4 for count, one in zip(counts, seconds, strict=True))
        return float(sum(one.max() for one in rounds) / lasts * done / len(rounds))

    tried = [speedup(place * one / 4) for seconds in rounds for one in seconds for place in range(1, 5)]
    assert speedup(chosen) == pytest.approx(max(tried), rel=0.01) and max(tried) > 1.3
    assert best_threshold([np.full(12, 4.0)] * 3, 4) is None, "where all are alike nothing is gained"


def test_drop_compute_warms_up_and_then_has_a_threshold() -> None:
    policy = made("drop_compute", "warm_up=3")
    ran(policy, "exponential", updates=10)
    assert policy.facts()["threshold_seconds"] > 0
    fixed = made("drop_compute", "seconds=0.25")
    assert {work.deadline_seconds for work in Hand(fixed).work.values()} == {0.25}


def test_local_steps_are_averaged() -> None:
    """Two workers, two steps each, one of them by hand."""
    policy = made("local_sgd", "steps=2", workers=2, samples=40, global_batch=8)
    hand = Hand(policy)
    assert hand.work[1].ranges == ((8, 8),)
    assert hand.work[0].micro_batch == 4 and hand.work[0].samples == 8 and hand.work[0].local_steps


def test_a_local_step_is_a_step_of_sgd() -> None:
    from lockstep.engine.data.sampling import epoch_order
    from lockstep.simulate.learner import SgdLearner

    policy = made("local_sgd", "steps=2", workers=2, samples=40, global_batch=8)
    problem = Logistic(samples=40, features=3)
    learner = SgdLearner(problem, 0.7, 2)
    ran(policy, updates=1, learner=learner)
    order, ends = epoch_order(0, 0, 40), []
    for worker in range(2):
        own = problem.start.copy()
        for step in range(2):
            start = 8 * worker + 4 * step
            own -= 0.7 * problem.gradient(own, order[start : start + 4])[0]
        ends.append(own)
    np.testing.assert_allclose(learner.parameters, np.mean(ends, axis=0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["anytime", "k_sync", "stochastic_gradient_coding", "deadline"])
def test_updates_are_unbiased_on_shuffled_data(name: str) -> None:
    """The mean of an update's gradient over 2 000 draws of delays and of the order of the samples."""
    problem = Logistic(samples=64, features=3, seed=5)
    truth = problem.gradient(problem.start, np.arange(64))[0]
    options = {"anytime": "seconds=0.006", "deadline": "deadline=0.006,forecast=last"}
    draws = []
    for seed in range(2000):
        policy = made(name, options.get(name, ""), workers=3, samples=64, global_batch=12, seed=seed)
        draws.append(gradients_of(policy, "exponential", 2, seed, problem)[1])
    mean, error = mean_and_error(draws)
    assert np.abs(mean - truth).max() > 0 and (error < 0.02 * np.linalg.norm(truth)).all()
    assert (np.abs(mean - truth) < 4 * error).all()
