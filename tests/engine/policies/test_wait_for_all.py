"""Decisions of a parameter server that waits for everybody, without a server, a worker or a clock."""

from __future__ import annotations

import itertools

import pytest

from lockstep.engine.job import CHOICES
from lockstep.engine.options import JobError
from lockstep.engine.policies import (
    NOTHING,
    POLICIES,
    Arrived,
    Contribution,
    Decision,
    Event,
    Setting,
    Use,
    WaitForAll,
    Work,
)


def arrived(worker: int, task: int, version: int, samples: int) -> Event:
    return Arrived(Contribution(worker, task, version, samples, 0.0, 1.0))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_contributions_are_applied_in_rank_order_whoever_came_first(order: tuple[int, ...]) -> None:
    policy = WaitForAll(Setting(workers=3, samples=24, global_batch=12))
    first = policy.begin(0.0)
    assert first.release == tuple((worker, Work(((4 * worker, 4),), 4, 4)) for worker in range(3))
    for version in range(2):  # a second update like the first
        decisions = [policy.on(arrived(worker, version, version, 4), now=float(worker)) for worker in order]
        assert decisions[:2] == [NOTHING, NOTHING]
        assert decisions[2].apply == tuple(Use(worker, version, 1 / 3) for worker in range(3))
        assert [worker for worker, _ in decisions[2].release] == [0, 1, 2]
        assert not decisions[2].drop and not decisions[2].recall and not decisions[2].stop
    assert policy.wake_at() is None


def test_an_uneven_last_batch_is_cut_as_the_plan_cuts_it() -> None:
    """12 samples in batches of 7, three workers: 3 + 2 + 2, then 2 + 2 + 1."""
    policy = WaitForAll(Setting(workers=3, samples=12, global_batch=7))
    assert [work.ranges for _, work in policy.begin(0.0).release] == [((0, 3),), ((3, 2),), ((5, 2),)]
    given = NOTHING
    for worker, samples in enumerate((3, 2, 2)):
        given = policy.on(arrived(worker, 0, 0, samples), 1.0)
    assert [use.weight for use in given.apply] == [3 / 7, 2 / 7, 2 / 7]
    assert [work.ranges for _, work in given.release] == [((7, 2),), ((9, 2),), ((11, 1),)]


def test_one_worker_waits_for_nobody() -> None:
    policy = WaitForAll(Setting(1, 4, 4))
    policy.begin(0.0)
    assert policy.on(arrived(0, 0, 0, 4), 0.0) == Decision(
        apply=(Use(0, 0, 1.0),), release=((0, Work(((4, 4),), 4, 4)),)
    )


def test_whoever_has_no_sample_comes_along() -> None:
    policy = WaitForAll(Setting(workers=3, samples=2, global_batch=2))
    assert [work.samples for _, work in policy.begin(0.0).release] == [1, 1, 0]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (arrived(0, 0, 0, 2), "worker 0 contributes to task 0, which it was never given or which is over"),
        (arrived(2, 0, 0, 2), "worker 2 does not exist; there are 0 to 1"),
        (arrived(-1, 0, 0, 2), "worker -1 does not exist"),
        (arrived(1, 1, 0, 2), "worker 1 contributes to task 1, which it was never given"),
        (arrived(1, 0, 0, 3), "worker 1 contributes 3 samples to task 0, which has 2"),
    ],
)
def test_what_can_not_be_a_contribution(event: Event, said: str) -> None:
    policy = WaitForAll(Setting(workers=2, samples=4, global_batch=4))
    policy.begin(0.0)
    policy.on(arrived(0, 0, 0, 2), 0.0)
    with pytest.raises(ValueError, match=said):
        policy.on(event, 1.0)


@pytest.mark.parametrize("workers", [0, -1, 1.5])
def test_impossible_workers(workers: int) -> None:
    with pytest.raises(JobError, match="is not possible; give a whole number of at least 1"):
        WaitForAll(Setting(workers, 4, 4))


def test_jobs_and_the_table_name_the_same_policies() -> None:
    assert CHOICES["policy"] == ("none", *POLICIES)
