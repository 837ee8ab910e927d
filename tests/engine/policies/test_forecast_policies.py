"""Policies that follow forecasts: shares, rest, standby nodes, and DPro-SM in all its readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lockstep.engine.delays import make_delays
from lockstep.engine.policies import GradientStandIn
from lockstep.engine.policies.forecasting import predicted_stragglers, shares_by_speed
from lockstep.simulate import Until, simulate
from policy_runs import Hand, Watched, cluster_of, learner_of, made, ran

SMALL = {"workers": 4, "samples": 400, "global_batch": 40, "micro_batch": 0}


def slow(hand: Hand, factors: list[float], **more: float) -> list[int]:
    """A round in which worker i takes factors[i] x 0.01 s per sample; who contributed."""
    return [use.worker for use in hand.round(lambda worker, work: 0.01 * factors[worker] * work.samples, **more).apply]


def shares(hand: Hand) -> dict[int, int]:
    return {worker: work.samples for worker, work in hand.work.items()}


def test_shares_in_proportion_to_speed() -> None:
    assert shares_by_speed(60, np.array([1.0, 1.0, 2.0, 4.0])).tolist() == [22, 22, 11, 5]
    assert shares_by_speed(10, np.array([1.0, 1.0, 1.0])).tolist() == [4, 3, 3]
    assert shares_by_speed(10, np.array([1.0, 1e-9, 1.0])).tolist() == [1, 8, 1], "at least one each"
    assert shares_by_speed(2, np.array([1.0, 9.0, 1.0])).tolist() == [1, 1, 0]
    assert shares_by_speed(9, np.array([np.nan] * 3)).tolist() == [3, 3, 3]


@pytest.mark.parametrize("seed", range(20))
def test_shares_sum_up_and_end_together(seed: int) -> None:
    random = np.random.default_rng(seed)
    seconds = random.pareto(1.0, 12) + 0.1
    sizes = shares_by_speed(1000, seconds)
    assert sizes.sum() == 1000 and sizes.min() >= 1
    ends, whole = sizes * seconds, sizes > 1
    assert (np.abs(ends[whole] - np.median(ends[whole])) <= 1.01 * seconds[whole] + np.ptp(seconds) / 1000).all()


def test_who_is_a_straggler() -> None:
    assert predicted_stragglers(np.array([1.0, 1.0, 2.0, 1.4, 9.0]), 1.5).tolist() == [4]
    assert predicted_stragglers(np.array([1.0, 1.1, 2.0, 1.2, 9.0]), 1.5).tolist() == [4, 2]
    assert predicted_stragglers(np.full(3, np.nan), 1.5).tolist() == []


def test_shares_follow_the_last_value() -> None:
    hand = Hand(made("reassign", **SMALL))
    assert shares(hand) == {0: 10, 1: 10, 2: 10, 3: 10}
    slow(hand, [1, 1, 1, 3])
    assert shares(hand) == {0: 12, 1: 12, 2: 12, 3: 4}
    slow(hand, [1, 1, 1, 3])
    assert shares(hand) == {0: 12, 1: 12, 2: 12, 3: 4}
    slow(hand, [1, 1, 1, 1])
    assert shares(hand) == {0: 10, 1: 10, 2: 10, 3: 10}


BOTH = ("wait_for_all", "reassign")


def test_reassignment_gains_what_a_bad_node_costs() -> None:
    """Work on 8 workers of which one is three times as slow: 7 1/3 workers do what 8 did, instead of a third."""
    total = {name: ran(made(name, global_batch=880), "bad_node", updates=60).total_seconds for name in BOTH}
    assert total["reassign"] / total["wait_for_all"] == pytest.approx(8 / (7 + 1 / 3) / 3, abs=0.03)


def test_a_predicted_straggler_gets_no_work_for_some_rounds() -> None:
    hand = Hand(made("wrangler", "forecast=last,rounds=2,confidence=0.5", **SMALL))
    seen = [shares(hand)]
    for _ in range(4):
        slow(hand, [1, 2, 1, 1])
        seen.append(shares(hand))
    even, three = {0: 10, 1: 10, 2: 10, 3: 10}, {0: 14, 2: 13, 3: 13}
    assert seen == [even, three, three, even, three]


def test_wrangler_must_be_confident() -> None:
    """A worker whose every other task was slow is forecast to be above the limit, but not with 90 % confidence."""
    deferred = {}
    for confidence in (0.5, 0.9):
        hand = Hand(made("wrangler", f"forecast=smoothing,rounds=1,confidence={confidence}", **SMALL))
        rested = 0
        for _ in range(40):
            slow(hand, [1, 3 if hand.tasks[1] % 2 else 1, 1, 1])
            rested += 1 not in hand.work
        deferred[confidence] = rested
    assert deferred[0.5] > 10 > 3 > deferred[0.9]


def test_no_more_than_half_rest() -> None:
    hand = Hand(made("wrangler", "forecast=last,confidence=0.5", **(SMALL | {"workers": 5})))
    slow(hand, [1, 1, 1, 5, 9])
    assert sorted(hand.work) == [0, 1, 2]
    two = Hand(made("wrangler", "forecast=last,confidence=0.5,factor=1.1", **(SMALL | {"workers": 2})))
    slow(two, [1, 9])
    assert sorted(two.work) == [0]


def test_only_who_straggles_again_and_again_is_blacklisted() -> None:
    hand = Hand(made("blacklisting", "window=4,share=0.5,rounds=3", **SMALL))
    worked = []
    for factor in (3, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1):
        slow(hand, [1, 1, factor, 1])
        worked.append(2 in hand.work)
    # Windows of four: 1 of 4 after the fourth round, 2 of 4 after the sixth; then three rounds off, and a new window.
    assert worked == [True] * 5 + [False] * 3 + [True] * 4


def test_a_standby_node_takes_over() -> None:
    hand = Hand(made("standby", "forecast=last,rounds=2", **(SMALL | {"workers": 5, "standby": 1})))
    assert shares(hand) == {0: 10, 1: 10, 2: 10, 3: 10}
    slow(hand, [1, 1, 4, 1, 1])
    assert shares(hand) == {0: 10, 1: 10, 3: 10, 4: 10}
    slow(hand, [1, 4, 1, 1, 1])
    assert shares(hand) == {0: 10, 1: 10, 3: 10, 4: 10}, "there is one standby node, and it is taken"
    slow(hand, [1, 1, 1, 1, 1])
    assert shares(hand) == {0: 10, 1: 10, 2: 10, 3: 10}, "it is tried again"


def test_a_straggler_that_nobody_waited_for_is_not_taken_for_a_fast_worker() -> None:
    """Forecast late, it is not waited for; it stays forecast late until it comes in time."""
    hand = Hand(made("dpro_sm", "forecast=last,stand_in=nothing", **SMALL))
    assert slow(hand, [1, 1, 5, 1]) == [0, 1, 2, 3]
    for _ in range(3):
        assert slow(hand, [1, 1, 5, 1]) == [0, 1, 3]
    assert slow(hand, [1, 1, 0.9, 1]) == [0, 1, 2, 3], "it is in time again"
    assert slow(hand, [1, 1, 5, 1]) == [0, 1, 2, 3], "so it is waited for"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("", "lstm"),
        ("stand_in=average", "average"),
        ("stand_in=last", "last"),
        ("reading=weights", "lstm_weights"),
    ],
)
def test_what_stands_in_for_a_predicted_straggler(options: str, kind: str) -> None:
    hand = Hand(made("dpro_sm", f"forecast=last,{options}".rstrip(","), **SMALL))
    slow(hand, [1, 1, 5, 1])
    decision = hand.round(lambda worker, work: 0.01 * [1, 1, 5, 1][worker] * work.samples)
    assert decision.stand_in == (GradientStandIn(2, kind, 0.25),)
    assert [use.weight for use in decision.apply] == [0.25] * 3
    assert decision.recall == (2,) and hand.work[0].ranges == ((60, 10),), "the straggler's samples come first"


def test_without_a_stand_in_the_others_weigh_more() -> None:
    hand = Hand(made("dpro_sm", "forecast=last,stand_in=nothing", **SMALL))
    slow(hand, [1, 1, 5, 1])
    decision = hand.round(lambda worker, work: 0.01 * [1, 1, 5, 1][worker] * work.samples)
    assert not decision.stand_in and [use.weight for use in decision.apply] == [1 / 3] * 3


def test_detected_instead_of_forecast() -> None:
    hand = Hand(made("dpro_sm", "when=detected,forecast=last,stand_in=last", **SMALL))
    decision = hand.round(lambda worker, work: 0.01 * [1, 1, 5, 1][worker] * work.samples)
    assert decision.recall == (2,) and decision.stand_in == (GradientStandIn(2, "last", 0.25),)
    assert hand.now == pytest.approx(0.15), "1.5 times the median"


def test_shares_follow_the_forecast_always_or_after_a_delay() -> None:
    always = Hand(made("dpro_sm", "reading=shares,forecast=last", **SMALL))
    after = Hand(made("dpro_sm", "reading=shares,when=detected,forecast=last", **SMALL))
    seen = []
    for factors in ([1, 1, 1, 1.4], [1, 1, 1, 3], [1, 1, 1, 3], [1, 1, 1, 1]):
        for hand in (always, after):
            slow(hand, factors)
            assert hand.version == len(seen) // 2 + 1
            seen.append(shares(hand)[3])
    # Always: by 1.4, 3, 3, 1. After a delay: 1.4 is none; shares of 3 come to the same time, and are no delay either.
    assert seen == [7, 10, 4, 4, 4, 10, 10, 10]


def test_recalled_workers_keep_their_samples_in_play() -> None:
    watched = Watched(made("dpro_sm", "forecast=smoothing,stand_in=last"))
    ran(watched, "markov:enter=2,leave=2", updates=60, learner=learner_of(watched.policy))
    assert any(decision.stand_in for decision in watched.decisions)
    watched.check_fates()


def test_forecasts_may_have_options_of_their_own() -> None:
    policy = made("reassign", "forecast=smoothing:alpha=0.5")
    assert policy.forecast.options.alpha == 0.5  # type: ignore[attr-defined]
    best = made("deadline", "forecast=best:of=last+mean;discount=0.5,bound=1")
    assert best.forecast.options.discount == 0.5 and best.options.bound == 1  # type: ignore[attr-defined]


def test_the_state_of_a_worker_reaches_its_forecaster() -> None:
    policy = made("wrangler", "forecast=linear", **SMALL)
    hand = Hand(policy)
    hand.round(lambda worker, work: 0.1 + worker / 100, system={"load": 0.5})
    policy.forecast.predict((0.5,))  # type: ignore[attr-defined]
    assert policy.forecast.state()["_readings"]["names"] == ["load"]  # type: ignore[attr-defined]


def test_the_oracle_is_told_the_truth() -> None:
    def truth(worker: int, task: int) -> float:
        return 3.0 if worker == task % 4 else 1.0

    hand = Hand(made("reassign", "forecast=oracle", truth=truth, **SMALL))
    seen = []
    for _ in range(4):
        seen.append(shares(hand))
        hand.round(lambda worker, work: truth(worker, hand.tasks[worker] - 1) * work.samples)
    assert seen == [{worker: 4 if worker == task else 12 for worker in range(4)} for task in range(4)]


@pytest.mark.parametrize("path", ["rounds", "events"])
def test_nothing_is_forecast_across_a_gap_in_a_trace(path: str, tmp_path: Path) -> None:
    """Bug: policies learned from one segment of a trace to the next, and from its end to its start."""
    rows = [(worker, step, 1.0 + step + worker) for worker in range(2) for step in (0, 1, 7)]
    file = tmp_path / "trace.csv"
    pd.DataFrame(rows, columns=["worker", "step", "seconds"]).to_csv(file, index=False)
    delays = make_delays(f"trace:file={file}", 2, 0)
    policy: Any = made("reassign", "forecast=ar", workers=2)
    learn, follows = policy.forecast.learn, []
    policy.forecast.learn = lambda seen: (follows.append(seen.follows.all()), learn(seen))
    simulate(policy, cluster_of(policy), delays, Until(updates=7), path=path)
    policy.forecast.predict()
    assert follows[:7] == [False, True, False, False, True, False, False][: len(follows)] and len(follows) > 4
    ours: Any = made("deadline", workers=2)
    simulate(ours, cluster_of(ours), delays, Until(updates=1))
    assert ours.forecast.begins_anew(2) and not ours.forecast.begins_anew(1)
