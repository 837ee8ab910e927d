"""Decisions of a parameter server, without a server, a worker or a clock."""

from __future__ import annotations

import itertools

import pytest

from lockstep.engine.job import CHOICES
from lockstep.engine.policies import POLICIES, Decision, WaitForAll


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_wait_for_all_applies_in_rank_order_whoever_came_first(order: tuple[int, ...]) -> None:
    policy = WaitForAll(3)
    for version in range(2):  # a second update like the first
        decisions = [policy.arrived(worker, version, now=float(place)) for place, worker in enumerate(order)]
        assert decisions == [Decision(), Decision(), Decision(apply=(0, 1, 2), release=(0, 1, 2))]
    assert policy.wake_at() is None
    assert policy.woke(9.0) == Decision()


def test_one_worker_waits_for_nobody() -> None:
    assert WaitForAll(1).arrived(0, 0, 0.0) == Decision(apply=(0,), release=(0,))


@pytest.mark.parametrize("worker", [0, 2, -1])
def test_who_can_not_arrive(worker: int) -> None:
    policy = WaitForAll(2)
    policy.arrived(0, 0, 0.0)
    with pytest.raises(ValueError, match=rf"worker {worker} of 2 can't arrive: \[0\] wait already"):
        policy.arrived(worker, 0, 0.0)


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_impossible_workers(workers: int) -> None:
    with pytest.raises(ValueError, match="is not possible; give a whole number of at least 1"):
        WaitForAll(workers)


def test_jobs_and_the_table_name_the_same_policies() -> None:
    assert CHOICES["policy"] == ("none", *POLICIES)
