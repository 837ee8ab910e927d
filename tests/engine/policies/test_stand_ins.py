"""Gradients that are made up for workers that are missing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from lockstep.engine.policies.stand_ins import KINDS, StandIns
from lockstep.simulate.learner import SgdLearner
from lockstep.simulate.problems import Logistic
from policy_runs import Watched, learner_of, made, ran


def seen(stand_ins: StandIns, values: list[np.ndarray], worker: int = 1) -> StandIns:
    for value in values:
        stand_ins.seen(worker, value)
        stand_ins.moved(value)
    return stand_ins


def test_simple_stand_ins() -> None:
    made_up = seen(StandIns(2), [np.array([4.0, 0.0]), np.array([2.0, 1.0]), np.array([0.0, 1.0])])
    assert made_up.made(1, "nothing").tolist() == [0, 0]
    assert made_up.made(1, "zero").tolist() == [0, 0]
    assert made_up.made(1, "last").tolist() == [0, 1]
    assert made_up.made(1, "average").tolist() == [1.5, 0.75]  # 4, then half way to 2, then half way to 0
    assert all(made_up.made(7, kind).tolist() == [0, 0] for kind in KINDS), "of 7 nothing is known"
    with pytest.raises(ValueError, match="'median' does not exist; there are: nothing, zero, last, average, lstm"):
        made_up.made(1, "median")


def test_what_is_made_up_changes_nothing_that_is_kept() -> None:
    made_up = seen(StandIns(2), [np.ones(2)])
    for kind in ("last", "average", "lstm"):
        made_up.made(1, kind)[:] = 9
        assert made_up.made(1, kind).tolist() == [1, 1]


def test_only_what_is_needed_is_remembered() -> None:
    """Bug: a server kept sixteen gradients of each worker, however large the model, for any kind of stand-in."""
    made_up = seen(StandIns(2, kinds=("average",)), [np.array([4.0, 0.0]), np.array([2.0, 1.0])])
    assert made_up.made(1, "average").tolist() == [3.0, 0.5] and not made_up._gradients and not made_up._weights
    assert len(seen(StandIns(2, kinds=("last",)), [np.ones(2)] * 3)._gradients[1]) == 1
    with pytest.raises(ValueError, match="of kind 'lstm' does not exist; there are: average"):
        made_up.made(1, "lstm")
    kinds = {options: made("dpro_sm", f"forecast=last,{options}").stand_in_kinds for options in (
        "reading=shares", "stand_in=nothing", "stand_in=zero", "stand_in=last", "reading=weights",
    )}  # fmt: skip
    assert list(kinds.values()) == [(), (), ("zero",), ("last",), ("lstm_weights",)]


def alternating(steps: int, length: int = 40) -> list[np.ndarray]:
    """Gradients that change their sign in every step, of a random size in every coordinate."""
    size = np.random.default_rng(0).standard_normal(length)
    return [size * (-1) ** step for step in range(steps)]


@pytest.mark.slow
def test_the_lstm_learns_what_the_last_value_can_not_know() -> None:
    """The next gradient is minus the last one. The LSTM learns a little each time it is asked."""
    values = alternating(200)
    made_up, errors = StandIns(40), []
    for value in values:
        errors.append(np.linalg.norm(made_up.made(1, "lstm") - value) / np.linalg.norm(value))
        seen(made_up, [value])
    assert np.median(errors[4:20]) > 0.5 and np.median(errors[-20:]) < 0.25
    assert np.linalg.norm(made_up.made(1, "last") - alternating(201)[-1]) > 1.9 * np.linalg.norm(values[0])


@pytest.mark.slow
def test_on_a_server_the_lstm_learns_while_nobody_waits_for_an_answer() -> None:
    """As much as it does when it is asked, one update later: made up at once, learnt from when the server waits."""
    values, errors = alternating(200), []
    made_up, never = StandIns(40, learns_idle=True), StandIns(40, learns_idle=True)
    for value in values:
        errors.append(np.linalg.norm(made_up.made(1, "lstm") - value) / np.linalg.norm(value))
        never.made(1, "lstm")
        seen(made_up, [value])
        seen(never, [value])
        made_up.idle()
    assert np.median(errors[-20:]) < 0.25
    untrained = np.linalg.norm(never.made(1, "lstm") - alternating(201)[-1]) / np.linalg.norm(values[0])
    assert untrained > 0.5, "who never waits learns nothing"
    never.idle()
    assert not never._due, "and does not make up for all of it at once"


def test_the_same_calls_make_up_the_same() -> None:
    for kind in ("lstm", "lstm_weights"):
        one, other, third = StandIns(40, seed=1), StandIns(40, seed=1), StandIns(40, seed=2)
        for made_up in (one, other, third):
            seen(made_up, alternating(6))
        assert (one.made(1, kind) == other.made(1, kind)).all()
        assert (one.made(1, kind) != third.made(1, kind)).any()


def test_forecast_weights_are_a_way_back_to_them() -> None:
    """A worker whose own weights have stood still for all steps is forecast to have them again; the server has moved on
    meanwhile, by (3, 0) since the worker was seen."""
    made_up = StandIns(2)
    for step in range(5):
        made_up.seen(1, np.array([1.0, 1.0]) - 0.5 * step)  # parameters after its own step: always the same
        made_up.moved(np.array([0.5, 0.5]))
    made_up.moved(np.array([3.0, 0.0]))
    np.testing.assert_allclose(made_up.made(1, "lstm_weights"), np.array([1.0, 1.0]) - [2.5 + 3, 2.5], atol=1e-12)


@pytest.mark.slow
def test_no_torch_before_it_is_asked_for() -> None:
    program = """
import sys, numpy as np
from lockstep.engine.policies.stand_ins import StandIns
made_up = StandIns(3)
made_up.seen(0, np.ones(3)); made_up.seen(0, np.zeros(3)); made_up.made(0, "average")
before = "torch" in sys.modules
made_up.made(0, "lstm")
print(before, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("options", ["stand_in=lstm", "reading=weights"])
def test_a_run_with_an_lstm(options: str) -> None:
    """Real gradients, made up ones in between, and still every sample has one fate."""
    watched = Watched(made("dpro_sm", f"forecast=smoothing,{options}"))
    learner = learner_of(watched.policy, rate=0.2)
    run = ran(watched, "bad_node", updates=12, learner=learner)
    kinds = {stand_in.kind for decision in watched.decisions for stand_in in decision.stand_in}
    assert len(kinds) == 1 and np.isfinite(learner.parameters).all() and len(run.updates) == 12
    watched.check_fates()


def test_the_way_of_the_parameters_is_known_with_momentum_too() -> None:
    """Bug: the LSTM of the weights was told of the gradients' sum, which is not where momentum moves the parameters."""
    problem = Logistic(samples=64, features=3)
    learner = SgdLearner(problem, 0.4, workers=2, momentum=0.9)
    policy = made("dpro_sm", "reading=weights,forecast=last,when=detected", workers=2, samples=64, global_batch=8)
    ran(policy, updates=5, learner=learner)
    way = (problem.start - learner.parameters) / 0.4
    np.testing.assert_allclose(learner._stand_ins._way, way, rtol=1e-9)
    assert np.abs(way).max() > 0.1


def test_a_learners_stand_ins_have_its_seed() -> None:
    """Bug: the LSTM of all seeds began with the same weights."""
    assert SgdLearner(Logistic(samples=8, features=3), 0.4, workers=2, seed=7)._stand_ins.seed == 7
