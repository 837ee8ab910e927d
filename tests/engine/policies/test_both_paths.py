"""Whoever decides round by round decides the same for all workers at once: every step ends at the same nanosecond."""

from __future__ import annotations

import pytest

from lockstep.engine.delays import make_delays
from lockstep.engine.policies import POLICIES, Policy
from lockstep.simulate import Until, simulate
from lockstep.simulate.rounds import refusal
from policy_runs import cluster_of, made

VARIANTS = [
    ("k_sync", ""),
    ("drop_after_detection", ""),
    ("drop_after_detection", "factor=1"),
    ("anytime", "seconds=0.02"),
    ("anytime", "seconds=0.007,most=1.5"),
    ("drop_compute", "warm_up=3"),
    ("reassign", ""),
    ("reassign", "forecast=best"),
    ("wrangler", "forecast=linear,confidence=0.5"),
    ("blacklisting", "window=3,share=0.3,rounds=4"),
    ("standby", "forecast=last,rounds=1"),
    ("dpro_sm", "forecast=last"),
    ("dpro_sm", "forecast=ar,factor=1.2"),
    ("dpro_sm", "forecast=smoothing,when=detected"),
    ("dpro_sm", "forecast=median,reading=shares"),
    ("dpro_sm", "forecast=last,reading=shares,when=detected"),
    ("choosing", "every=3,window=6"),
    ("wait_for_all", ""),
]


def policy_for(name: str, options: str, workers: int) -> Policy:
    setting = {"micro_batch": 2} | ({"standby": 1} if name == "standby" else {})
    return made(name, options, workers=workers, samples=500, global_batch=max(40, 4 * workers), **setting)


@pytest.mark.parametrize("workers", [2, 3, 7, 64])
@pytest.mark.parametrize("delays", ["none", "exponential", "markov", "bimodal", "link", "credits:balance=3,seconds=5"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_every_step_ends_at_the_same_nanosecond(name: str, options: str, delays: str, workers: int) -> None:
    runs = []
    for path in ("rounds", "events"):
        policy = policy_for(name, options, workers)
        made_delays = make_delays(delays, workers, seed=2)
        runs.append(simulate(policy, cluster_of(policy), made_delays, Until(updates=15), path=path))
    one, other = (run.updates.drop(columns="loss") for run in runs)
    assert one.equals(other) and len(one) == 15
    assert runs[0].sums["applied"] == runs[1].sums["applied"]


def test_what_nodes_show_of_their_state_reaches_the_forecasters_of_both_paths() -> None:
    """The credits that are left, which tell a forecaster when they will have gone."""
    said = []
    for path in ("rounds", "events"):
        policy = policy_for("reassign", "forecast=linear", 3)
        delays = make_delays("credits:balance=3,seconds=5", 3, seed=2)
        simulate(policy, cluster_of(policy), delays, Until(updates=30), path=path)
        said.append(policy.forecast.predict((0.5, 0.9)).tolist())  # type: ignore[attr-defined]
        assert policy.forecast.state()["_readings"]["names"] == ["credits"]  # type: ignore[attr-defined]
    assert said[0] == said[1]


def test_all_that_can_be_are_tried() -> None:
    possible = {name for name in POLICIES if not refusal(made(name))}
    assert possible == {name for name, _ in VARIANTS}


def test_a_forecaster_that_learns_while_the_server_waits() -> None:
    """The LSTM learns in the first wait of each round; both paths give it as much time, and it is used."""
    runs, updates = [], []
    for path in ("rounds", "events"):
        policy = policy_for("reassign", "forecast=lstm:every=2", 3)
        delays = make_delays("markov", 3, seed=2)
        runs.append(simulate(policy, cluster_of(policy), delays, Until(updates=40), path=path))
        updates.append(policy.forecast._updates)  # type: ignore[attr-defined]
    one, other = (run.updates.drop(columns="loss") for run in runs)
    assert one.equals(other)
    assert updates[0] == updates[1] > 0
