"""Our own policy: between wait for all and asynchronous, and worth more than both where workers differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lockstep.engine.delays import Delays, make_delays
from lockstep.engine.policies import Left, Updated, Use
from lockstep.engine.policies.deadline import Deadline
from lockstep.engine.policies.deadlines import DeadlineClock, best_deadline
from lockstep.engine.policies.noise_scale import NoiseScale
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from policy_runs import WORKERS, Hand, learner_of, made, ran

SMALL = {"workers": 4, "samples": 400, "global_batch": 32, "micro_batch": 2}


@pytest.mark.parametrize("delays", ["none", "exponential", "markov", "bad_node"])
def test_an_infinite_deadline_is_wait_for_all(delays: str) -> None:
    """Task by task, nanosecond by nanosecond, and the parameters to the bit."""
    reached, tables = [], []
    for name, options in (("deadline", "deadline=infinite"), ("wait_for_all", "")):
        policy = made(name, options, seed=4)
        learner = learner_of(policy)
        run = ran(policy, delays, updates=40, learner=learner)
        reached.append(learner.parameters)
        tables.append(run.tasks.drop(columns="forecast_seconds"))  # type: ignore[union-attr]
    assert tables[0].equals(tables[1]) and len(tables[0]) >= 320
    assert (reached[0] == reached[1]).all()


@pytest.mark.parametrize("delays", ["none", "exponential", "markov", "bad_node"])
def test_without_a_deadline_it_is_asynchronous(delays: str) -> None:
    """With one micro-batch each."""
    reached, tables = [], []
    for name, options in (("deadline", "deadline=none"), ("asynchronous", "samples=2")):
        policy = made(name, options)
        learner = learner_of(policy, rate=0.1)
        run = ran(policy, delays, updates=100, learner=learner)
        reached.append(learner.parameters)
        tables.append(run.tasks.drop(columns="forecast_seconds"))  # type: ignore[union-attr]
    assert tables[0].equals(tables[1]) and len(tables[0]) >= 100
    assert (reached[0] == reached[1]).all()


def test_what_is_late_joins_the_next_update() -> None:
    """Samples weigh the same, whichever update they were made for."""
    hand = Hand(made("deadline", "deadline=1.0,forecast=last,bound=1", **SMALL))
    assert {(work.deadline_seconds, work.micro_batch, work.samples) for work in hand.work.values()} == {(1.0, 2, 32)}
    for worker, samples in ((0, 4), (1, 6)):
        hand.arrive(worker, 1.0, samples)
    hand.arrive(2, 1.0, 6)
    assert not hand.version, "3 is waited for"
    assert hand.policy.wake_at() == pytest.approx(2 * 1.0 + 0.05, abs=0.06)
    hand.now = hand.policy.wake_at()  # type: ignore[assignment]
    decision = hand.act(hand.policy.woke(hand.now))
    assert decision.apply == (Use(0, 0, 0.25), Use(1, 0, 0.375), Use(2, 0, 0.375)) and not decision.recall
    assert 3 in hand.work and hand.held[3] == 0
    for place, (worker, samples) in enumerate(((3, 2), (0, 4), (1, 4), (2, 6))):
        decision = hand.arrive(worker, 2.05 + 0.96 + 0.01 * place, samples)
    assert [use.weight for use in decision.apply] == [4 / 16, 4 / 16, 6 / 16, 2 / 16]


def test_who_would_be_too_stale_is_recalled_and_its_samples_come_back() -> None:
    hand = Hand(made("deadline", "deadline=1.0,forecast=last,bound=0", **SMALL))
    places = hand.work[3].ranges
    for worker in (0, 1, 2):
        hand.arrive(worker, 1.0, 4)
    decision = hand.act(hand.policy.woke(hand.policy.wake_at()))  # type: ignore[arg-type]
    assert decision.recall == (3,)
    waiting = {
        place for first, count in hand.policy.state()["pool"]["returned"] for place in range(first, first + count)
    }  # fmt: skip
    assert {place for first, count in places for place in range(first, first + count)} <= waiting


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("delays", ["exponential", "pareto", "markov", "bad_node:slow=10"])
@pytest.mark.parametrize("deadline", ["auto", "0.02"])
def test_staleness_is_bounded(bound: int, delays: str, deadline: str) -> None:
    """An invariant of the table of tasks; what was recalled was used by nobody."""
    tasks = ran(made("deadline", f"deadline={deadline},bound={bound},forecast=smoothing"), delays, updates=60).tasks
    assert tasks is not None
    applied = tasks[tasks["update"] >= 0]
    assert applied["staleness"].max() <= bound and set(applied["fate"]) <= {"applied", "late"}
    if bound and delays == "bad_node:slow=10" and deadline == "0.02":
        assert applied["staleness"].max() >= 1, "it is used"


def test_there_is_more_work_for_whoever_comes_late_and_has_time_left() -> None:
    hand = Hand(made("deadline", "deadline=1.0,forecast=last,bound=3", **SMALL))
    for worker in (0, 1, 2):
        hand.arrive(worker, 1.0, 8)
    hand.now = 2.05
    hand.act(hand.policy.woke(2.05))
    assert hand.held == {0: 1, 1: 1, 2: 1, 3: 0}
    decision = hand.arrive(3, 2.15, 16)
    [(worker, work)] = decision.release
    assert worker == 3 and work.deadline_seconds == pytest.approx(0.9), "the rest of the round"
    assert work.micro_batch_seconds == pytest.approx(2 * 2.15 / 16, rel=1e-5), "as slow as it has just been"
    assert hand.held[3] == 1 and not decision.apply
    slow = Hand(made("deadline", "deadline=1.0,forecast=last,bound=3", **SMALL))
    for worker in (0, 1, 2):
        slow.arrive(worker, 1.0, 8)
    slow.now = 2.05
    slow.act(slow.policy.woke(2.05))
    assert not slow.arrive(3, 2.15, 2).release, "a micro-batch takes it longer than what is left"


def test_workers_are_told_their_forecast() -> None:
    hand = Hand(made("deadline", "deadline=1.0,forecast=last", **SMALL))
    hand.round(lambda worker, work: [1.0, 0.9, 0.5, 1.0][worker], samples=4)
    assert [work.micro_batch_seconds for work in hand.work.values()] == pytest.approx([0.5, 0.45, 0.25, 0.5], rel=1e-5)
    # One and a half times what fits, so that a worker that is faster than forecast does not run out of work.
    assert [work.samples for work in hand.work.values()] == [2 * (int(1.5 / s) + 1) for s in (0.5, 0.45, 0.25, 0.5)]


def test_the_first_update_waits_for_all_but_not_for_ever() -> None:
    hand = Hand(made("deadline", "forecast=last", **SMALL))
    assert all(work.deadline_seconds is None and work.samples == 8 for work in hand.work.values())
    for worker, time in ((0, 1.0), (1, 1.1)):
        hand.arrive(worker, time)
        assert hand.policy.wake_at() is None
    hand.arrive(2, 1.2)
    assert hand.policy.wake_at() == pytest.approx(2.4)
    hand.now = 2.4
    decision = hand.act(hand.policy.woke(2.4))
    assert [use.worker for use in decision.apply] == [0, 1, 2]
    assert all(work.deadline_seconds for worker, work in hand.work.items() if worker != 3)


def test_who_has_computed_nothing_is_asked_again() -> None:
    hand = Hand(made("deadline", "deadline=1.0,forecast=last", **SMALL))
    decision = hand.arrive(2, 0.5, samples=0)
    assert decision.drop == ((2, 0),) and not decision.apply
    [(worker, work)] = decision.release
    assert worker == 2 and work.samples == 2
    assert len(hand.round(lambda worker, work: 1.0, samples=2).apply) == 4


def test_who_has_left_is_not_waited_for() -> None:
    hand = Hand(made("deadline", "deadline=1.0,forecast=last", **SMALL))
    for worker in (0, 1, 2):
        hand.arrive(worker, 1.0, 4)
    del hand.work[3]
    decision = hand.act(hand.policy.on(Left(3), 1.1))
    assert len(decision.apply) == 3 and sorted(hand.work) == [0, 1, 2]


def test_a_checkpoint_in_the_middle_of_an_update_gives_out_anew_what_waits() -> None:
    """Bug: the forecaster had heard of the contribution that was lost, and refused to hear of the same task again."""
    hand = Hand(made("deadline", "deadline=1.0,forecast=last", **SMALL))
    hand.arrive(0, 1.0, 4)
    again = made("deadline", "deadline=1.0,forecast=last", **SMALL)
    again.load(hand.policy.state())
    other = Hand(again)
    assert other.tasks == {worker: 1 for worker in range(4)} and other.work[0].ranges == ((0, 32),)
    assert len(other.round(lambda worker, work: 1.0 + worker / 100, samples=4).apply) == 4


# --- which deadline ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [16.0, 100.0, 1000.0])
@pytest.mark.parametrize("overhead", [0.02, 0.2])
def test_the_deadline_of_equal_workers(noise: float, overhead: float) -> None:
    """Of b = R D samples, R D / (R D + B) / (D + o) is largest at D = sqrt(o B / R), to a micro-batch or so."""
    micro, count = 0.01, 10
    deadline = best_deadline(np.full(count, micro), 2, noise, overhead, 2, most=1e9)
    smooth = math.sqrt(overhead * noise / (count * 2 / micro))
    assert max(smooth, micro) * 0.7 - micro <= deadline <= max(smooth, micro) * 1.3 + micro


def test_the_deadline_is_the_best_of_all() -> None:
    """Against a fine grid of deadlines, where workers differ."""
    micro = np.array([0.010, 0.011, 0.013, 0.030, 0.200])

    def progress(deadline: float) -> float:
        fits = np.floor(deadline / micro + 1e-9)
        rounds = np.ceil(micro / (deadline + 0.01) - 1e-9)
        samples = 4 * np.where(fits >= 1, fits, np.where(rounds <= 3, 1 / rounds, 0)).sum()
        return float(samples / (samples + 50) / (deadline + 0.01))

    deadline = best_deadline(micro, 4, 50.0, 0.01, 2, most=1e4)
    assert progress(deadline) == pytest.approx(max(map(progress, np.linspace(0.01, 0.5, 5000))), rel=0.02)


def test_the_deadline_has_bounds() -> None:
    micro = np.array([0.5, 1.0])
    assert best_deadline(micro, 2, 0.0, 0.1, 2, 100) == pytest.approx(0.5), "no noise: as many updates as can be"
    most = best_deadline(micro, 2, math.inf, 0.1, 2, most=60)
    assert 60 * 0.8 <= most * (2 / 0.5 + 2 / 1.0) <= 60 * 1.01, "nothing but noise: as large an update as is allowed"
    assert best_deadline(micro, 2, math.inf, 0.1, 2, most=1) == pytest.approx(0.5), "at least one micro-batch"


def test_more_noise_means_later_deadlines() -> None:
    seconds = {}
    for noise in (4, 4000):
        policy = made("deadline", f"noise={noise},forecast=last")
        ran(policy, "none", updates=10)
        seconds[noise] = policy.facts()["deadline_seconds"]
    assert seconds[4] < seconds[4000] / 2


def test_the_noise_scale_of_known_gradients() -> None:
    """Gradients with |G|^2 = 4 and S = 40: B = 10. Contributions of unequal size, 400 updates."""
    random, scale = np.random.default_rng(0), NoiseScale()
    assert scale.samples is None
    true = np.array([2.0, 0.0, 0.0, 0.0])
    found = []
    for _ in range(400):
        sizes = [4, 8, 12, 16]
        gradients = [true + random.standard_normal(4) * math.sqrt(10 / size) for size in sizes]
        total = sum(size / 40 * gradient for size, gradient in zip(sizes, gradients, strict=True))
        scale.contributions(sizes, [float(one @ one) for one in gradients])
        scale.updated(40, float(total @ total))
        found.append(scale.samples)
    assert np.median(found[100:]) == pytest.approx(10, rel=0.1)  # type: ignore[arg-type]


def test_a_noise_scale_needs_several_norms() -> None:
    scale = NoiseScale()
    for samples, norms in (([4], [1.0]), ([4, 4], [1.0, math.nan])):
        scale.contributions(samples, norms)
        scale.updated(sum(samples), 1.0)
        assert scale.samples is None
    scale.contributions([4, 4], [2.0, 2.0])
    scale.updated(8, 1.0)
    assert scale.samples == math.inf, "twice the samples, half the squared norm: all is noise"


def test_it_hears_of_norms_where_gradients_are_computed() -> None:
    policy = made("deadline", "forecast=last")
    ran(policy, updates=10)
    assert "noise_scale_samples" not in policy.facts()
    ran(policy := made("deadline", "forecast=last"), updates=10, learner=learner_of(policy))
    assert policy.facts()["noise_scale_samples"] > 0
    assert isinstance(policy, Deadline) and policy.on(Updated(8, 1.0), 0.0).apply == ()


def test_a_round_is_over_when_messages_have_had_their_time() -> None:
    clock = DeadlineClock()
    clock.opened(10.0, 2.0)
    assert clock.limit == pytest.approx(10 + 2 * 1.05 + 2), "how long messages take is not known yet"
    clock.arrived(0.5)
    clock.opened(20.0, 2.0)
    assert clock.limit == pytest.approx(20 + 2 * 1.05 + 0.5 * 1.05)
    assert not clock.is_over(22.6) and clock.is_over(22.7)
    assert clock.left_seconds(21.0) == pytest.approx(1.0)
    clock.closed(22.8, 2.0)
    assert clock.overhead_seconds == pytest.approx(0.8)


class Jittered:
    """Delays that lengthen each micro-batch by a hair, as a real machine does."""

    def __init__(self, inner: Delays, share: float) -> None:
        self.inner, self.share, self.draws = inner, share, np.random.default_rng(3)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def end(self, worker: int, task: int, start: float, seconds: float, *rest: int) -> float:
        return self.inner.end(worker, task, start, seconds * (1 + abs(self.draws.normal(0, self.share))), *rest)


@pytest.mark.parametrize("delays", ["none", "bimodal", "markov", "bad_node"])
@pytest.mark.parametrize("share", [0.01, 0.02])
def test_a_hair_of_jitter_costs_no_more_than_a_hair(delays: str, share: float) -> None:
    """The deadline is the end of a worker's micro-batch; of equal workers half were forecast to end just after it, and
    were not waited for: one percent of jitter cost a quarter of the speed on real ranks, unseen in virtual time."""
    seconds = []
    quick_link = {"costs": Costs(0.0, 0.15, 0.0, gradient_bytes=1.0), "link": AlphaBeta(0.0, 0.002)}
    for jitter in (0.0, share):
        policy = made("deadline", "forecast=last,noise=32", samples=5000, global_batch=16, micro_batch=1)
        jittered: Any = Jittered(make_delays(delays, WORKERS, seed=1), jitter)
        run = ran(policy, jittered, updates=60, update_seconds=0.0, **quick_link)
        seconds.append(run.total_seconds / run.updates["samples"].sum())
    assert seconds[1] < (1 + 3 * share) * seconds[0]


def progress_per_second(name: str, options: str, delays: str) -> float:
    """Updates of b samples count b / (b + 64)."""
    run = ran(made(name, options), delays, updates=150)
    samples = run.updates["samples"]
    return float((samples / (samples + 64)).sum() / run.total_seconds)


KINDS = ["none", "exponential", "pareto", "bimodal", "markov", "bad_node", "periodic", "drift"]


@pytest.mark.parametrize("delays", KINDS)
def test_it_makes_more_progress_per_second_than_others_that_wait(delays: str) -> None:
    own = progress_per_second("deadline", "noise=64", delays)
    for name, options in (("wait_for_all", ""), ("k_sync", ""), ("reassign", "forecast=best"), ("anytime", "")):
        assert own > 1.1 * progress_per_second(name, options, delays), name
