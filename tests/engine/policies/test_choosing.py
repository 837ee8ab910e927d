"""The policy that replays the last rounds under several rules."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.engine.delays import make_delays
from lockstep.engine.policies import Setting, WaitForAll
from lockstep.engine.policies.choosing import Choosing, candidates, replayed_costs
from lockstep.engine.policies.k_sync import KSync, KSyncOptions
from lockstep.engine.policies.rounds import Closed, RoundPolicy
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, SimulatedRun, Until, simulate

SETTING = Setting(workers=16, samples=51_200, global_batch=512)


def ran(policy: RoundPolicy, delays: str, updates: int = 600) -> SimulatedRun:
    cluster = Cluster(16, Costs(0.0, 0.1 / 32, 0.0), AlphaBeta(0.0, 0.0))
    return simulate(policy, cluster, make_delays(delays, 16, 0), Until(samples=512 * updates))


def test_the_cost_of_a_round_by_hand() -> None:
    """Of three workers that come after 1, 2 and 6 s, all cost 6 s for 3, two cost 2 s for 2."""
    rounds = [np.array([2.0, 6.0, 1.0])]
    setting = Setting(3, 30, 3)
    rules = [WaitForAll(setting), *(KSync(setting, KSyncOptions(k=k)) for k in (2, 1))]
    assert replayed_costs(rules, rounds) == [2.0, 1.0, 1.0]


def test_what_recalled_workers_would_have_taken_by_hand() -> None:
    """Worker 1 once took 5 s, longer than this round; worker 2 never did, and takes one of all those that were longer:
    5 s or 4 s, the second in its turn. With no round in which all came it is taken to be half as long again."""
    policy = Choosing(Setting(4, 40, 4))
    missed = np.array([2.0, np.nan, np.nan, 1.0])
    assert policy._completed(missed).tolist() == [2.0, 1.5 * 0.999 * 2.0, 1.5 * 0.999 * 2.0, 1.0]
    policy._complete.extend([np.array([1.0, 5.0, 1.0, 4.0]), np.array([1.0, 1.0, 1.0, 1.0])])
    policy.round = 1
    assert policy._completed(missed).tolist() == [2.0, 5.0, 4.0, 1.0]
    policy.round = 2
    assert policy._completed(missed).tolist() == [2.0, 5.0, 5.0, 1.0]


def test_candidates_lie_between_half_of_the_workers_and_all() -> None:
    assert [rule.k for rule in candidates(SETTING)[1:] if isinstance(rule, KSync)] == [15, 14, 13, 12, 11, 10, 9, 8]
    assert len(candidates(Setting(1, 8, 4))) == 1
    assert len(candidates(Setting(1000, 8000, 4000))) == 10


def test_without_delays_it_waits_for_all_and_loses_nothing() -> None:
    run = ran(Choosing(SETTING), "none")
    assert run.sums["recalled"] == 0
    assert run.step_seconds == pytest.approx(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delays", "most"), [("exponential", 1.03), ("pareto", 1.1), ("bimodal", 1.17), ("markov", 1.25)]
)
def test_it_comes_near_the_best_rule_that_is_fixed(delays: str, most: float) -> None:
    """Its first 25 rounds wait for all, and every 50th; the best fixed rule is known only afterwards."""
    fixed = min(ran(KSync(SETTING, KSyncOptions(k=k)), delays).total_seconds for k in range(8, 17))
    chosen = ran(Choosing(SETTING), delays).total_seconds
    waiting = ran(WaitForAll(SETTING), delays).total_seconds
    assert chosen < waiting
    assert chosen < most * fixed


def test_a_worker_that_never_comes_does_not_stop_it() -> None:
    assert ran(Choosing(SETTING), "gone:worker=2,at=20").samples == pytest.approx(512 * 600, rel=0.01)


def test_it_goes_on_from_its_state() -> None:
    """A run that is cut in two chooses as the whole one does."""
    whole, cut = Choosing(SETTING), Choosing(SETTING)
    random = np.random.default_rng(0)
    rounds = 0.1 * (1 + random.pareto(2.0, (120, 16)))
    for number, seconds in enumerate(rounds):
        for policy in (whole, cut):
            policy.round = number
            arrivals, samples = np.where(seconds <= np.sort(seconds)[12], seconds, np.nan), np.full(16, 32)
            policy.closed(Closed(arrivals, arrivals, samples, samples, np.full(16, number), np.nanmax(arrivals)))
        if number == 60:
            state, cut = cut.state(), Choosing(SETTING)
            cut.load(state)
    assert whole.chosen == cut.chosen
    assert whole.state() == cut.state()


def test_what_it_has_chosen_is_a_fact_of_the_run() -> None:
    """Bug: no table said which rule it had come to."""
    assert ran(Choosing(SETTING), "none").facts == {"chosen_contributions": 16}
    assert ran(Choosing(SETTING), "bad_node:worker=3,slow=50").facts == {"chosen_contributions": 15}
