"""Real gradients in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.engine.data.sampling import global_batch
from lockstep.engine.delays import make_delays
from lockstep.engine.policies import Setting, WaitForAll
from lockstep.engine.policies.k_sync import KSync
from lockstep.engine.policies.places import cut_ranges, ids_of, part_of_batch
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, Until, simulate
from lockstep.simulate.learner import SgdLearner
from lockstep.simulate.problems import Logistic

CLUSTER = Cluster(4, Costs(0.0, 0.01, 0.0), AlphaBeta(0.0, 0.0))


def test_waiting_for_all_is_sequential_sgd() -> None:
    """The same parameters as plain SGD over the same batches, the short last one of an epoch included."""
    problem = Logistic(samples=100, features=8)
    learner = SgdLearner(problem, 0.5, workers=4)
    run = simulate(
        WaitForAll(Setting(4, 100, 30)), CLUSTER, make_delays("pareto", 4, 0), Until(updates=10), learner=learner
    )
    parameters = problem.start.copy()
    for update in range(10):
        ids = global_batch(0, update // 4, update % 4, 100, 30)
        parameters -= 0.5 * problem.gradient(parameters, ids)[0]
        assert run.updates["loss"].iloc[update] == pytest.approx(problem.loss(parameters), rel=1e-12)
    assert np.abs(learner.parameters - parameters).max() < 1e-12


def test_parameters_that_nobody_computes_with_are_forgotten() -> None:
    learner = SgdLearner(Logistic(samples=64, features=4), 0.1, workers=4)
    simulate(KSync(Setting(4, 64, 16)), CLUSTER, make_delays("pareto", 4, 0), Until(updates=50), learner=learner)
    assert len(learner.versions) <= 4


def test_the_gradient_is_that_of_the_loss() -> None:
    problem = Logistic(samples=50, features=6)
    at, every = np.linspace(-1, 1, 6), np.arange(50)
    gradient, loss = problem.gradient(at, every)
    assert loss == pytest.approx(problem.loss(at), rel=1e-12)
    for place in range(6):
        step = np.zeros(6)
        step[place] = 1e-6
        slope = (problem.loss(at + step) - problem.loss(at - step)) / 2e-6
        assert gradient[place] == pytest.approx(slope, abs=1e-8)


def test_places_become_sample_ids_across_epochs() -> None:
    whole = np.concatenate([global_batch(5, epoch, 0, 10, 10) for epoch in (0, 1)])
    assert ids_of(((8, 4),), 10, 5).tolist() == whole[8:12].tolist()
    assert ids_of(((1, 2), (15, 1)), 10, 5).tolist() == [*whole[1:3], whole[15]]


def test_pieces_of_ranges() -> None:
    ranges = ((0, 3), (10, 4))
    assert cut_ranges(ranges, 2, 5) == ((2, 1), (10, 2))
    assert [part_of_batch(ranges, 7, part, 3) for part in range(3)] == [((0, 3),), ((10, 2),), ((12, 2),)]
