"""Updates of single contributions, and how stale they may be."""

from __future__ import annotations

import pandas as pd
import pytest

from lockstep.engine.policies import Left, Use
from policy_runs import Hand, made, ran

SMALL = {"workers": 3, "samples": 100, "global_batch": 14, "micro_batch": 0}
DELAYS = ["none", "exponential", "pareto", "markov", "bad_node", "link"]


def test_every_contribution_is_an_update() -> None:
    hand = Hand(made("asynchronous", **SMALL))
    assert [work.samples for work in hand.work.values()] == [5, 5, 4], "the shares of a batch of 14"
    decision = hand.arrive(1, 1.0)
    assert decision.apply == (Use(1, 0, 1.0),) and [worker for worker, _ in decision.release] == [1]
    assert hand.work[1].ranges == ((14, 5),)
    assert hand.arrive(0, 2.0).apply == (Use(0, 0, 1.0),)


def test_the_staler_the_less() -> None:
    hand = Hand(made("staleness_aware", **SMALL))
    assert [hand.arrive(1, float(time)).apply[0].weight for time in range(3)] == [1.0, 1.0, 1.0]  # fresh, every time
    assert hand.arrive(0, 4.0).apply == (Use(0, 0, 1 / 4),)
    assert hand.arrive(0, 5.0).apply == (Use(0, 1, 1.0),)
    assert hand.arrive(2, 6.0).apply == (Use(2, 0, 1 / 6),)


def test_staleness_is_what_the_table_says() -> None:
    """Weights, as the policy decided, against the column."""
    policy = made("staleness_aware")
    weights = {}

    def noted(staleness: int) -> float:
        weights[policy.version] = 1 / (staleness + 1)  # type: ignore[attr-defined]
        return 1.0

    policy.weight = noted  # type: ignore[attr-defined, method-assign]
    tasks = ran(policy, "exponential", updates=50).tasks
    assert tasks is not None
    applied = tasks[tasks["update"] >= 0]
    assert len(applied) == 50 and applied["staleness"].max() > 5
    assert [weights[row.update] for row in applied.itertuples()] == [1 / (s + 1) for s in applied["staleness"]]


def ahead(tasks: pd.DataFrame, workers: int) -> int:
    """By how many tasks a worker was ahead of the slowest, at most, as it began one: tasks that it had done, less those
    of anybody that were in an update that its parameters had seen."""
    most = 0
    for row in tasks.itertuples():
        done = tasks[(tasks["update"] >= 0) & (tasks["update"] < row.version)]
        counts = done["worker"].value_counts().reindex(range(workers), fill_value=0)
        most = max(most, row.task - int(counts.min()))
    return most


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("delays", DELAYS)
def test_nobody_is_more_than_the_bound_ahead(bound: int, delays: str) -> None:
    tasks = ran(made("ssp", f"bound={bound}", workers=4, global_batch=16), delays, updates=60).tasks
    assert tasks is not None
    assert ahead(tasks, 4) <= bound
    free = ran(made("asynchronous", workers=4, global_batch=16), delays, updates=60).tasks
    assert free is not None
    if delays == "bad_node":
        assert ahead(tasks, 4) == bound < ahead(free, 4), "the bound is reached, and without it exceeded"


def test_a_worker_that_is_ahead_waits() -> None:
    hand = Hand(made("ssp", "bound=1", **SMALL))
    assert [worker for worker, _ in hand.arrive(0, 1.0).release] == [0]
    assert hand.arrive(0, 2.0).release == () and hand.version == 2, "applied, but it waits"
    assert [worker for worker, _ in hand.arrive(1, 3.0).release] == [1]
    assert [worker for worker, _ in hand.arrive(2, 4.0).release] == [0, 2], "the slowest has done its first task"


def test_nobody_waits_for_a_worker_that_has_left() -> None:
    hand = Hand(made("ssp", "bound=0", **SMALL))
    hand.arrive(0, 1.0)
    hand.arrive(1, 2.0)
    assert not {0, 1} & set(hand.work)
    del hand.work[2]
    decision = hand.act(hand.policy.on(Left(2), 3.0))
    assert [worker for worker, _ in decision.release] == [0, 1]
    assert hand.work[0].ranges == ((10, 5),), "what it had comes back, and a new one"


def test_a_contribution_without_samples_is_dropped() -> None:
    hand = Hand(made("asynchronous", **SMALL))
    decision = hand.arrive(0, 1.0, samples=0)
    assert decision.drop == ((0, 0),) and not decision.apply and hand.work[0].ranges == ((0, 5),)
