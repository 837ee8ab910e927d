"""Shares that are pulled, cloned, and computed once more by whoever is free."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.engine.policies import Decision, Event, Left, Progressed
from lockstep.predict.link_model import AlphaBeta
from policy_runs import Hand, Watched, made, ran

SMALL = {"workers": 4, "samples": 200, "global_batch": 32, "micro_batch": 2}


def test_whoever_is_done_pulls_the_next_micro_batch() -> None:
    hand = Hand(made("pulling", **(SMALL | {"global_batch": 11, "workers": 2})))
    assert [work.ranges for work in hand.work.values()] == [((0, 2),), ((2, 2),)]
    for time, first in enumerate((4, 6, 8)):
        decision = hand.arrive(0, 1.0 + time)
        assert not decision.apply and hand.work[0].ranges == ((first, 2),)
    hand.arrive(0, 4.0)
    assert hand.work[0].ranges == ((10, 1),)
    hand.arrive(0, 4.5)
    assert 0 not in hand.work, "nothing is left of this batch"
    decision = hand.arrive(1, 5.0)
    # In the order of the batch; each sample weighs 1 / 11.
    assert [(use.worker, use.task) for use in decision.apply] == [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    assert [use.weight for use in decision.apply] == [2 / 11] * 5 + [1 / 11]
    assert [work.ranges for work in hand.work.values()] == [((11, 2),), ((13, 2),)]


def test_backup_tasks_at_the_end() -> None:
    hand = Hand(made("pulling", "copies=1", **(SMALL | {"global_batch": 8, "workers": 3})))
    hand.arrive(0, 1.0)  # pulls the last one
    hand.arrive(0, 2.0)
    assert hand.work[0].ranges == hand.work[1].ranges == ((2, 2),), "a copy of what is under way the longest"
    decision = hand.arrive(0, 3.0)
    assert decision.recall == (1,), "the other copy is called off"
    assert {worker: work.ranges for worker, work in hand.work.items()} == {0: ((4, 2),), 2: ((4, 2),)}
    decision = hand.arrive(2, 4.0)
    assert decision.recall == (0,)
    assert [(use.worker, use.weight) for use in decision.apply] == [(0, 0.25), (0, 0.25), (2, 0.25), (0, 0.25)]


def test_a_clone_of_every_share_from_the_start() -> None:
    hand = Hand(made("cloning", "clones=2", **SMALL))
    assert [hand.work[worker].ranges for worker in range(4)] == [((0, 16),), ((16, 16),), ((0, 16),), ((16, 16),)]
    decision = hand.arrive(2, 1.0)
    assert decision.recall == (0,) and not decision.release and not decision.apply
    decision = hand.arrive(1, 2.0)
    assert decision.recall == (3,)
    assert [(use.worker, use.weight) for use in decision.apply] == [(2, 0.5), (1, 0.5)]


def test_the_work_of_a_worker_that_left_goes_to_the_first_that_is_free() -> None:
    hand = Hand(made("pulling", **(SMALL | {"global_batch": 8})))
    hand.arrive(0, 1.0)
    del hand.work[2]
    decision = hand.act(hand.policy.on(Left(2), 2.0))
    assert [(worker, work.ranges) for worker, work in decision.release] == [(0, ((4, 2),))]


def test_what_a_worker_had_computed_leaves_with_it() -> None:
    hand = Hand(made("grass", "epsilon=0", **SMALL))
    measured(hand, 3, 6, 0.5)
    for worker in (0, 1, 2):
        hand.arrive(worker, 1.0 + worker)
    [share] = [share for share in hand.policy.shares if share.done is None]  # type: ignore[attr-defined]
    holders = set(share.holders) - {3}
    del hand.work[3]
    hand.act(hand.policy.on(Left(3), 4.0))
    assert set(share.computed) >= holders and 3 not in share.computed


def measured(hand: Hand, worker: int, samples: int, now: float) -> None:
    """A worker has told how far it is."""
    hand.now = now
    hand.act(hand.policy.on(Progressed(worker, hand.tasks[worker] - 1, samples, now), now))


def test_late_copies_the_share_with_the_longest_time_to_end() -> None:
    """Shares of 8 of which one takes 1 s; 3 is on its way, 2 is slow. At most a quarter may still be under way."""
    hand = Hand(made("late", "cap=0.5,percentile=50", **SMALL))
    measured(hand, 2, 2, 0.5)
    measured(hand, 3, 4, 0.5)
    hand.arrive(0, 1.0)
    assert 0 not in hand.work, "more than half are under way: nobody is slow yet"
    hand.arrive(1, 1.2)
    # Not slower than half of all: the slower one of those that are done, 1.2 s. 2 has, with the micro-batch that it
    # computes, half of its share, so it is slow from 0.6 s on; 3 three quarters, from 0.9 s on.
    assert hand.work[0].ranges == hand.work[2].ranges == ((16, 8),)
    assert hand.work[1].ranges == hand.work[3].ranges == ((24, 8),)
    decision = hand.arrive(0, 1.5)
    assert decision.recall == (2,)
    decision = hand.arrive(3, 1.6)
    assert decision.recall == (1,) and [use.worker for use in decision.apply] == [0, 1, 0, 3]


def test_late_wakes_when_a_silent_worker_becomes_slow() -> None:
    hand = Hand(made("late", "cap=0.25", **SMALL))
    for worker, now in ((1, 1.0), (2, 1.1)):
        hand.arrive(worker, now)
    measured(hand, 0, 6, 1.2)
    assert hand.policy.wake_at() is None
    measured(hand, 3, 6, 1.25)
    hand.arrive(3, 1.3)
    # Three quarters are done; the slowest of them took 1.3 s, and 0 has nearly all of its share: slow from 1.3 s on.
    assert hand.work[1].ranges == hand.work[0].ranges
    assert 2 not in hand.work and hand.policy.wake_at() is None, "one copy is enough"


def test_late_gives_no_copy_to_a_slow_worker() -> None:
    hand = Hand(made("late", "cap=0.25", **SMALL))
    seconds = (1.0, 1.0, 1.0, 9.0)
    for worker in (0, 1, 2):
        hand.arrive(worker, seconds[worker] + worker / 100)
    assert 3 in hand.work and len(hand.work) == 2
    copier = next(worker for worker in hand.work if worker != 3)
    hand.arrive(3, 9.0)  # it was faster than its copy in the end; it is known to be slow now
    for worker in (3, 1, 2):
        hand.arrive(worker, hand.now + 1 + worker / 100)
    assert copier == 0 and hand.work[1].ranges == hand.work[0].ranges, "1 computes the copy of 0's share, not 3"
    assert 3 not in hand.work


def test_grass_is_resource_aware_and_then_greedy() -> None:
    """Shares of 8 that take 1 s; worker 3 is half done."""
    for switch, times in ((0.2, 1), (0.9, 2)):
        hand = Hand(made("grass", f"epsilon=0,switch={switch}", **SMALL))
        measured(hand, 3, 4, 0.5)
        measured(hand, 1, 6, 0.9)
        measured(hand, 2, 6, 0.9)
        hand.arrive(0, 1.0)
        # t_rem = (1 - 1/2) elapsed / (3/4) > times x 1 s, from 1.5 s x times on; for the others from 4 s x times on.
        assert hand.policy.wake_at() == pytest.approx(1.5 * times)
        hand.now = 1.5 * times
        hand.act(hand.policy.woke(hand.now))
        assert hand.work[0].ranges == hand.work[3].ranges


def test_grass_does_without_some_shares() -> None:
    hand = Hand(made("grass", "epsilon=0.25", **SMALL))
    for worker in (0, 1):
        assert not hand.arrive(worker, 1.0 + worker).apply
    decision = hand.arrive(3, 3.0)
    assert [use.worker for use in decision.apply] == [0, 1, 3]
    assert set(decision.recall) >= {2} and hand.work[0].ranges == ((16, 8),), "its samples come first"


def test_progress_of_an_old_task_means_nothing() -> None:
    hand = Hand(made("grass", "epsilon=0", **SMALL))
    for worker in range(4):
        hand.arrive(worker, 1.0)
    hand.act(hand.policy.on(Progressed(3, 0, 6, 2.0), 2.0))
    assert all(share.computed == {worker: 0} for worker, share in enumerate(hand.policy.shares))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["late", "grass"])
def test_speculation_saves_time_where_a_worker_is_slow_for_long(name: str) -> None:
    seconds = {policy: ran(made(policy), "bad_node", updates=20).total_seconds for policy in (name, "wait_for_all")}
    assert seconds[name] < 0.9 * seconds["wait_for_all"]


def test_a_standby_node_computes_copies() -> None:
    hand = Hand(made("grass", "epsilon=0,switch=0", **(SMALL | {"workers": 5, "standby": 1})))
    assert sorted(hand.work) == [0, 1, 2, 3]
    for worker in (0, 1, 2):
        hand.arrive(worker, 1.0)
    due = hand.policy.wake_at()
    # t_rem = elapsed x 1 / (1/4), as nothing was reported: more than 1 s from 0.25 s on.
    assert due is None and hand.work[0].ranges == hand.work[3].ranges


def test_the_server_hears_how_far_a_worker_was_as_it_said_so() -> None:
    """Bug: while the server was busy, a simulated worker's message came to tell of micro-batches done since then."""
    heard: dict[tuple[int, int], list[int]] = {}

    class Listening(Watched):
        def on(self, event: Event, now: float) -> Decision:
            if isinstance(event, Progressed):
                heard.setdefault((event.worker, event.task), []).append(event.samples)
            return super().on(event, now)

    ran(Listening(made("grass")), "exponential", updates=10, link=AlphaBeta(1e-4, 2e-8))  # 8 ms for each message
    assert len(heard) > 60
    assert all(own == [2, 4, 6][: len(own)] for own in heard.values())


@pytest.mark.parametrize("began", [0.0, 1e3, 3e7])
def test_a_timer_of_a_late_clock_is_not_set_again_and_again(began: float) -> None:
    """Bug: after some months in virtual time the last bits of the clock are longer than a nanosecond. The timer came a
    little too early, nobody was slow yet, and it was set to the same moment for ever."""
    random = np.random.default_rng(0)
    for _ in range(200):
        hand = Hand(made("grass", "epsilon=0,switch=0", **SMALL))
        for share in hand.policy.shares:  # type: ignore[attr-defined]
            share.holders = dict.fromkeys(share.holders, began)
        hand.arrive(0, began + float(random.uniform(1, 2)))
        due = hand.policy.wake_at()
        if due is not None:
            hand.now = round(due * 1e9) / 1e9
            assert hand.act(hand.policy.woke(hand.now)).release
