"""What holds for every policy, whatever it decides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lockstep.engine.delays.base import NoDelays
from lockstep.engine.options import JobError
from lockstep.engine.policies import NOT_APPLICABLE, POLICIES, canonical_options, policy_of
from lockstep.engine.policies.rounds import RoundPolicy
from lockstep.engine.policies.shares import SharesPolicy
from policy_runs import WORKERS, Hand, Watched, learner_of, made, ran

ALL = sorted(POLICIES)
SYNCHRONOUS = [
    "adaptive_k", "anytime", "blacklisting", "choosing", "cloning", "coupon_collector", "deadline", "dpro_sm",
    "drop_after_detection", "drop_compute", "gradient_coding_cyclic", "gradient_coding_fractional", "grass", "k_sync",
    "late", "local_sgd", "pulling", "reassign", "standby", "stochastic_gradient_coding", "wrangler",
]  # fmt: skip
AS_ALL = {
    "adaptive_k": "k=8",
    "anytime": "seconds=100,most=1",
    "coupon_collector": "r=1",
    "deadline": "deadline=infinite",
    "grass": "epsilon=0",
    "k_sync": "k=8",
    "local_sgd": "steps=1",
    "stochastic_gradient_coding": "copies=3,k=8",
}
"""Options with which a policy waits for everything that it could do without."""
DELAYS = ["none", "exponential", "markov", "pareto"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("delays", DELAYS)
def test_every_sample_has_one_fate(name: str, delays: str) -> None:
    """Used by one update, or back in the pool, or in somebody's hands: over two epochs, with recalls and all."""
    watched = Watched(made(name, seed=3))
    run = ran(watched, delays, updates=40, learner=learner_of(watched.policy))
    assert len(run.updates) == 40
    watched.check_fates()


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_without_delays_updates_are_those_of_wait_for_all(name: str) -> None:
    """Up to rounding: sums may be taken in another order. 1000 samples: the last batch of an epoch is short."""
    # A standby node's sums are those of as many workers as train.
    policy = made(name, AS_ALL.get(name, ""), global_batch=60 if name == "cloning" else 64)
    base = made("wait_for_all", global_batch=policy.setting.global_batch)
    reached = []
    for one in (policy, base):
        learner = learner_of(one, rate=2.0)
        updates = 15 if name == "anytime" else 20  # it knows no epochs, so no short batch
        assert len(ran(one, updates=updates, learner=learner).updates) == updates
        reached.append(learner.parameters)
    np.testing.assert_allclose(*reached, rtol=1e-9, atol=1e-12)
    assert np.abs(reached[0]).max() > 0.1


def same(one: Any, other: Any) -> bool:
    """Equal, arrays and NaN included."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(own, its) for own, its in zip(one, other, strict=True))
    return bool(np.array_equal(one, other, equal_nan=isinstance(one, float | np.ndarray)))


@pytest.mark.parametrize("name", ALL)
def test_a_checkpoint_goes_on_as_if_nothing_had_happened(name: str) -> None:
    watched, policy, again = Watched(made(name)), made(name), made(name)
    ran(watched, "markov", updates=9, learner=learner_of(watched.policy))
    state = watched.state()
    policy.load(state)
    again.load(state)
    assert same(again.state(), state)
    if not isinstance(policy, RoundPolicy | SharesPolicy):
        return
    # The round under way is given out anew, and from there on both decide alike.
    hand, other = Hand(policy), Hand(again)
    assert hand.work == dict(watched.decisions[-1].release)
    for round_ in range(4):
        decided = hand.round(lambda worker, work, r=round_: 0.01 * work.samples * (1 + (worker * 5 + r) % 7))
        assert decided.apply
        assert decided == other.round(lambda worker, work, r=round_: 0.01 * work.samples * (1 + (worker * 5 + r) % 7))


@pytest.mark.parametrize("name", ALL)
def test_who_survives_that_a_worker_never_comes_again(name: str) -> None:
    policy = made(name)
    run = ran(policy, "gone:worker=2,at=0.1", updates=60, learner=learner_of(policy))
    if name == "coupon_collector":
        assert policy.survives_loss == 0 and (policy.matrix == policy.matrix[2]).all(axis=1).sum() > 1  # a lucky draw
    else:
        assert (len(run.updates) == 60) == (policy.survives_loss > 0)


def test_who_says_so() -> None:
    surviving = {name for name in ALL if made(name).survives_loss}
    assert surviving == {
        "adaptive_k", "asynchronous", "choosing", "cloning", "deadline", "deadline_by_replay", "drop_after_detection",
        "gradient_coding_cyclic", "gradient_coding_fractional", "grass", "k_sync", "late", "staleness_aware",
        "stochastic_gradient_coding",
    }  # fmt: skip
    assert made("pulling", "copies=1").survives_loss == 1
    assert made("deadline", workers=2).survives_loss == 0, "bug: of two workers the first update needs both"
    assert made("dpro_sm", "when=detected,forecast=last").survives_loss == 3


class Lost(NoDelays):
    """Some workers never come, from the start."""

    def __init__(self, workers: int, lost: set[int]) -> None:
        super().__init__(NoDelays.options_kind(), workers, 0)
        self.lost = lost

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        return math.inf if worker in self.lost else start + work_seconds


SURVIVORS = {
    "adaptive_k": "k=5", "asynchronous": "", "choosing": "every=3", "cloning": "clones=3", "deadline": "",
    "deadline_by_replay": "every=3",
    "dpro_sm": "when=detected,forecast=last,stand_in=last", "drop_after_detection": "",
    "gradient_coding_cyclic": "s=3", "gradient_coding_fractional": "s=3", "grass": "epsilon=0.25", "k_sync": "k=5",
    "late": "", "pulling": "copies=2", "staleness_aware": "", "stochastic_gradient_coding": "k=5",
}  # fmt: skip
SHORT = {"k_sync": "k=7", "adaptive_k": "k=7"}


@pytest.mark.parametrize("name", sorted(SURVIVORS))
@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("first", [True, False])
def test_as_many_may_be_lost_as_it_says(name: str, short: bool, first: bool) -> None:
    """Bugs: LATE, GRASS and pulling said all but one, but two that are lost may hold a share and its copy; and in a
    short batch, of fewer samples than workers, k-sync and others waited for one that was lost."""
    if short:  # what the first round gives back and the rest of the epoch are four samples together
        policy = made(name, SHORT.get(name, SURVIVORS[name]), samples=18, global_batch=16, micro_batch=1)
    else:
        policy = made(name, SURVIVORS[name])
    count = 1 if short else policy.survives_loss
    assert 0 < count <= policy.survives_loss < WORKERS
    lost = set(range(count)) if first else set(range(WORKERS - count, WORKERS))
    assert len(ran(policy, Lost(WORKERS, lost), updates=15, learner=learner_of(policy)).updates) == 15


@pytest.mark.parametrize("name", ["pulling", "dpro_sm"])
def test_options_that_survive(name: str) -> None:
    policy = made(name, {"pulling": "copies=1", "dpro_sm": "when=detected,forecast=last,stand_in=last"}[name])
    assert len(ran(policy, "gone:worker=2,at=0.1", updates=40, learner=learner_of(policy)).updates) == 40


def test_every_policy_says_what_it_is() -> None:
    for name, kind in POLICIES.items():
        assert kind.does and kind.label and len(kind.does) < 120, name
    labels = [kind.label for kind in POLICIES.values()]
    assert len(set(labels)) == len(labels)


def test_what_is_not_built_has_a_reason() -> None:
    numbers = {"23", "27", "30", "31", "32", "33", "34", "35", "36", "38"}
    assert {reference.rsplit(" ", 1)[1] for reference, _ in NOT_APPLICABLE.values()} == numbers
    assert all(len(because) > 60 for _, because in NOT_APPLICABLE.values())


@pytest.mark.parametrize(
    ("name", "options", "setting", "said"),
    [
        ("k_sync", "k=9", {}, "k=9 of 8 workers is not possible"),
        ("k_sync", "k=-1", {}, "k=-1 is not possible; give a whole number of at least 0"),
        ("k_sync", "k=1.5", {}, "k='1.5' is not possible"),
        ("adaptive_k", "k=9", {}, "k=9 of 8 workers"),
        ("stochastic_gradient_coding", "k=9", {}, "k=9 of 8 workers"),
        ("stochastic_gradient_coding", "copies=9", {}, "copies=9 of 8 workers"),
        ("gradient_coding_cyclic", "s=8", {}, "s=8 stragglers of 8 workers leave nobody"),
        ("gradient_coding_fractional", "s=9", {}, "s=9 stragglers of 8 workers"),
        ("gradient_coding_fractional", "s=2", {}, "s=2 needs groups of 3 workers, which 8 workers do not make"),
        ("gradient_coding_cyclic", "s=-1", {}, "s=-1 is not possible"),
        ("gradient_coding_cyclic", "", {"global_batch": 7}, "a global batch of 7 images has no 8 parts"),
        ("coupon_collector", "", {"standby": 1}, "standby=1 does nothing with coded work"),
        ("coupon_collector", "r=9", {}, "r=9 of 8 parts"),
        ("coupon_collector", "r=2", {"workers": 500, "global_batch": 500}, "250 batches at random leave some out"),
        ("ssp", "bound=-1", {}, "bound=-1 is not possible"),
        ("deadline", "bound=-1", {}, "bound=-1 is not possible"),
        ("deadline", "deadline=-1", {}, "deadline='-1' is not possible; give auto, infinite, none, or seconds above 0"),
        ("deadline", "deadline=nan", {}, "deadline='nan' is not possible"),
        ("deadline", "forecast=crystal", {}, "'crystal' does not exist"),
        ("deadline", "forecast=oracle", {}, "oracle"),
        ("deadline_by_replay", "deadline=0.1", {}, "deadline=0.1 is not possible where a replay chooses the deadline"),
        ("deadline_by_replay", "every=0", {}, "every=0 is not possible"),
        ("anytime", "seconds=-1", {}, "seconds=-1.0 is not possible"),
        ("anytime", "", {"micro_batch": 0}, "micro_batch=0 is a whole share"),
        ("anytime", "most=0.1", {}, "are 0 images, less than one micro-batch of 2"),
        ("drop_compute", "", {"micro_batch": 8}, "a share of 8 images, and micro_batch=8 leaves one of them"),
        ("late", "", {"micro_batch": 0}, "a share of 8 images, and micro_batch=0 leaves one of them"),
        ("grass", "", {"micro_batch": 9}, "micro_batch=9 leaves one"),
        ("grass", "epsilon=1", {}, "epsilon=1.0 is not possible"),
        ("cloning", "clones=9", {}, "clones=9 need as many workers, and there are 8"),
        ("standby", "forecast=last", {"standby": 0}, "standby=0 of 8 workers"),
        ("local_sgd", "", {"global_batch": 7}, "a global batch of 7 images has no share for each of 8"),
        ("local_sgd", "", {"micro_batch": 3}, "micro_batch=3: a local step takes a share of 8"),
        ("asynchronous", "samples=1001", {}, "samples=1001 of a task are more than the 1000 images"),
        ("wait_for_all", "", {"micro_batch": 65}, "micro_batch=65 is more than the global batch of 64"),
        ("wait_for_all", "", {"micro_batch": -1}, "micro_batch=-1 is not possible"),
        ("wait_for_all", "k=1", {}, "option 'k' does not exist"),
        ("drop_after_detection", "factor=0.5", {}, "factor=0.5 is not possible"),
    ],
)
def test_bad_input_is_refused_with_the_numbers(name: str, options: str, setting: dict[str, int], said: str) -> None:
    with pytest.raises(JobError) as caught:
        made(name, options, **setting)
    assert said in str(caught.value)
    assert str(caught.value).count("forecast=") <= 1, "bug: it said where twice"


def test_canonical_options() -> None:
    assert canonical_options("deadline", "bound=3, forecast=last") == "forecast=last,bound=3"
    assert canonical_options("k_sync", "k=0") == ""
    with pytest.raises(JobError, match="policy='nobody' does not exist; there are: wait_for_all, k_sync"):
        policy_of("nobody", "", made("k_sync").setting)
    with pytest.raises(JobError, match="policy='nobody' does not exist"):
        canonical_options("nobody", "")
