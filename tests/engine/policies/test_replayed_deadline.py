"""The deadline that a replay of the last rounds chooses, between waiting for all and never waiting."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from lockstep.engine.delays import make_delays
from lockstep.engine.policies import Policy
from lockstep.engine.policies.deadline_replay import (
    LastRounds,
    World,
    best_setting,
    fixed_deadlines,
    replayed_progress,
)
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import SimulatedRun, Until, simulate
from policy_runs import Hand, Watched, cluster_of, learner_of, made, ran

WORLD = World(
    global_batch=32, share=8, micro_batch=2, noise=16.0, transit=0.0, overhead=0.0, bound=2, most=128
)  # fmt: skip
EQUAL = np.full((5, 4), 0.5)
"""Four workers, half a second per sample: a micro-batch takes 1 s, a share 4 s."""


def test_the_ends_by_hand() -> None:
    """Updates of b samples make b / (b + 16). Waiting for all: one of 32 in 4 s, or in 8 s if one is half as fast. Who
    never waits misses as many samples as an update of a micro-batch each has."""
    assert replayed_progress(math.inf, EQUAL, WORLD) == pytest.approx(32 / 48 / 4)
    slow = np.array([[0.5, 0.5, 0.5, 1.0]])
    assert replayed_progress(math.inf, slow, WORLD) == pytest.approx(32 / 48 / 8)
    assert replayed_progress(0.0, EQUAL, WORLD) == pytest.approx(8 / 24 / 1)
    late = WORLD._replace(transit=1.0)
    assert replayed_progress(math.inf, EQUAL, late) == pytest.approx(32 / 48 / 5)
    assert replayed_progress(0.0, EQUAL, late) == pytest.approx(8 / 24 / 2), "every micro-batch waits for its messages"


def test_a_deadline_by_hand() -> None:
    """Of 2 s: two micro-batches each, 16 samples; one worker that needs 3 s for one brings 2 to every second update, at
    the price of the 13 samples between, and 6 s are too late for staleness 1."""
    assert replayed_progress(2.0, EQUAL, WORLD) == pytest.approx(16 / 32 / 2)
    slow = np.array([[0.5, 0.5, 0.5, 1.5]])
    assert replayed_progress(2.0, slow, WORLD) == pytest.approx((12 / 29 + 1 / (2 * 13 + 16)) / 2)
    slower = np.array([[0.5, 0.5, 0.5, 3.0]])
    assert replayed_progress(2.0, slower, WORLD._replace(bound=1)) == pytest.approx(12 / 28 / 2)
    assert replayed_progress(2.05, EQUAL / 2 * 2.1, WORLD) == pytest.approx(8 / 24 / 2.05), "one that hardly ends late"
    assert replayed_progress(2.0, EQUAL, WORLD._replace(overhead=1.0)) == pytest.approx(16 / 32 / 3)
    assert replayed_progress(2.0, EQUAL, WORLD._replace(most=8)) == pytest.approx(16 / 32 / 2 / 2), "no more than 8"


def test_auto_goes_by_the_round_before() -> None:
    """Equal rounds: the best deadline of all. Where they alternate it is for the wrong one."""
    best = max(replayed_progress(one, EQUAL, WORLD) for one in np.linspace(1.0, 8.0, 500))
    assert replayed_progress(None, EQUAL, WORLD) == pytest.approx(best, rel=1e-6)
    flat = EQUAL * np.where(np.arange(4) < 2, 1.0, 3.0)
    turns = np.array([flat[0], flat[0][::-1]] * 3)
    assert replayed_progress(None, turns, WORLD) <= replayed_progress(None, flat, WORLD) * 1.001


def test_settings_lie_between_a_micro_batch_and_the_largest_update() -> None:
    found = fixed_deadlines(EQUAL, WORLD)
    assert len(found) == 7 and found == sorted(found)
    assert found[0] == pytest.approx(1.0) and found[-1] == pytest.approx(4 * 4.0)


@pytest.mark.parametrize(
    ("rows", "world", "best"),
    [
        # Nothing but noise, no more than a batch: nobody waits for anybody, and a message costs time.
        (EQUAL, WORLD._replace(noise=1e9, most=32, transit=0.5, overhead=0.5), "waits for all"),
        # Every worker is slow in its turn, messages cost nothing: never waiting loses nothing.
        (0.5 * (1 + 9 * np.eye(4)), WORLD._replace(noise=1e9), "never waits"),
        # A server that takes time for every message, and workers that differ.
        (EQUAL * [1, 1, 1, 6], WORLD._replace(noise=1e9, transit=2.0, overhead=2.0), "a deadline"),
    ],
)
def test_each_end_and_what_is_between_is_the_best_somewhere(rows: np.ndarray, world: World, best: str) -> None:
    chosen = best_setting(rows, world)
    assert {math.inf: "waits for all", 0.0: "never waits"}.get(chosen, "a deadline") == best  # type: ignore[arg-type]


def test_the_last_rounds_say_what_a_worker_did_meanwhile() -> None:
    """Worker 0 came three times, and worker 1 once, in the second round: that task spans the first one. Since then it
    has taken at least 5."""
    rounds = LastRounds(2, window=10)
    for worker, seconds in ((0, 1.0), (0, 2.0), (1, 4.0), (0, 3.0)):
        rounds.heard(worker, seconds)
    assert rounds.table(np.array([np.nan, 5.0])).tolist() == [[1, 4], [2, 4], [3, 5]]
    assert rounds.table(np.array([np.nan, 0.1])).tolist() == [[1, 4], [2, 4], [3, 4]], "it may be as slow as it was"
    unknown = LastRounds(2, window=1)
    unknown.heard(0, 1.0)
    assert np.isnan(unknown.table(np.full(2, np.nan))[:, 1]).all()
    for seconds in (2.0, 3.0):
        unknown.heard(0, seconds)
    assert unknown.table(np.array([np.nan, 7.0])).tolist() == [[2, 7], [3, 7]], (
        "no more than its window and the present"
    )


# --- what it gains and loses -----------------------------------------------------------------------------------------

KINDS = ("none", "exponential", "markov", "bad_node")
SETTINGS = ("infinite", "auto", "0.05", "0.2", "none")
SAMPLES = "forecast=last,noise=1e9,most=2"
"""A step goes as far as its samples: progress is samples, of two global batches at the most."""


@functools.cache
def taken(deadline: str, delays: str, message_seconds: float) -> float:
    """Seconds of 200 global batches. A micro-batch takes 12.5 ms, a share 0.1 s."""
    name = "deadline" if deadline else "deadline_by_replay"
    options = f"deadline={deadline}," if deadline else ""
    policy = made(name, options + SAMPLES, samples=12_800, global_batch=128)
    return spent(policy, delays, message_seconds).total_seconds


def spent(policy: Policy, delays: str, message_seconds: float) -> SimulatedRun:
    costs, link = Costs(0.0, 0.1 / 16, 0.0, gradient_bytes=1.0), AlphaBeta(0.0, message_seconds)
    cluster = cluster_of(policy, costs=costs, link=link, update_seconds=message_seconds)
    until = Until(samples=200 * policy.setting.global_batch)
    return simulate(policy, cluster, make_delays(delays, policy.workers, seed=0), until)


@pytest.mark.slow
@pytest.mark.parametrize("message_seconds", [1e-4, 3e-3])
@pytest.mark.parametrize("delays", KINDS)
def test_it_comes_within_five_percent_of_the_best_fixed_setting(delays: str, message_seconds: float) -> None:
    """Which is known only afterwards, and another one in each world. The target that the issue's prototype reached."""
    best = min(taken(one, delays, message_seconds) for one in SETTINGS)
    assert taken("", delays, message_seconds) < 1.05 * best


@pytest.mark.slow
def test_no_fixed_setting_does() -> None:
    """Each of them loses more than a tenth somewhere; waiting for all, and never waiting, more than twice the best."""
    worst = {}
    for setting in ("", *SETTINGS):
        lost = [
            taken(setting, delays, message) / min(taken(one, delays, message) for one in SETTINGS)
            for delays in KINDS for message in (1e-4, 3e-3)
        ]  # fmt: skip
        worst[setting] = max(lost)
    assert worst.pop("") < 1.05
    assert min(worst.values()) > 1.1, worst
    assert worst["infinite"] > 2 and worst["none"] > 2


def test_what_it_has_chosen_is_a_fact_of_the_run() -> None:
    policy = made("deadline_by_replay", SAMPLES, samples=12_800, global_batch=128)
    facts = spent(policy, "exponential", 1e-4).facts
    assert facts["chose_none"] == sum(count for name, count in facts.items() if name.startswith("chose_")) > 6
    assert facts["deadline_seconds"] == 0
    assert "chose_none" not in spent(made("deadline_by_replay", SAMPLES), "none", 3e-3).facts


# --- what stays true while it changes its mind -----------------------------------------------------------------------


class Turning:
    """In place of the replay: one setting after the other."""

    def __init__(self, *settings: float | None) -> None:
        self.settings, self.asked = settings, 0

    def __call__(self, rows: object, world: object) -> float | None:
        self.asked += 1
        return self.settings[(self.asked - 1) % len(self.settings)]


@pytest.mark.parametrize("delays", ["none", "pareto", "markov", "gone:worker=2,at=0.3"])
def test_every_change_keeps_samples_and_staleness(delays: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it goes over to, each sample has one fate, and with a deadline nothing is staler than the bound."""
    turning = Turning(math.inf, 0.0, 0.02, math.inf, None, 0.0, None, 0.02, 0.0, math.inf)
    monkeypatch.setattr("lockstep.engine.policies.replayed_deadline.best_setting", turning)
    policy = made("deadline_by_replay", "forecast=last,every=1,bound=2")
    watched, deadlines = Watched(policy), []
    close = policy.choose  # type: ignore[attr-defined]

    def choose(now: float, samples: int) -> None:
        deadlines.append(policy.deadline)  # type: ignore[attr-defined]
        close(now, samples)

    policy.choose = choose  # type: ignore[attr-defined, method-assign]
    run = ran(watched, delays, updates=600, learner=learner_of(policy))
    assert len(run.updates) == 600 and turning.asked > 20
    watched.check_fates()
    tasks = run.tasks
    assert tasks is not None
    used = tasks[tasks["update"] >= 0]
    bounded = used[[deadlines[update] != 0 for update in used["update"]]]
    assert len(bounded) > 100 and bounded["staleness"].max() <= 2
    waited = used[[deadlines[update] == math.inf for update in used["update"]]]
    assert len(waited) > 20 and waited["staleness"].max() == 0, "an update of all is of the present parameters"


def test_it_goes_on_from_its_state() -> None:
    """A policy that is loaded, and one that goes on, choose alike."""
    one = made("deadline_by_replay", "forecast=last,every=2,window=6")
    ran(one, "pareto", updates=40)
    state = one.state()
    both = [made("deadline_by_replay", "forecast=last,every=2,window=6") for _ in range(2)]
    for policy in both:
        policy.load(state)
    assert both[0].facts() == both[1].facts() == one.facts() and any("chose" in name for name in one.facts())
    hands = [Hand(policy) for policy in both]
    for _ in range(200):
        decided = [hand.round(lambda worker, work: 0.01 * work.samples * (1 + worker % 3)) for hand in hands]
        assert decided[0] == decided[1] and decided[0].apply
    assert both[0].facts() != one.facts(), "it has chosen again"
