"""What notebook 11's cells simulate, each once with tiny sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lockstep.engine.delays import make_delays
from lockstep.engine.job import Job
from lockstep.engine.models.layers import Network
from lockstep.engine.policies.base import GradientStandIn, Work
from lockstep.engine.training.loop import Site
from lockstep.experiments.e11_straggler_mitigation import learners, made_up, measuring, paper_network, rows
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    ADVISED,
    CODING,
    CONTENDERS,
    DOLLY,
    DROP_ONE,
    LEARNERS,
    LEFT_OUT,
    LSTM_WEIGHTS,
    NEVER_WAIT,
    OF_FIGURE_4,
    RIVALS,
    ROUND_BY_ROUND,
    STAND_INS,
    STAY,
    WAIT,
)
from lockstep.experiments.simulated import simulated
from lockstep.simulate import Until, simulate
from lockstep.simulate.learner import SgdLearner
from lockstep.simulate.perceptron import Perceptron
from lockstep.simulate.worker import Course
from small_images import images, small_case
from steps import on_ranks

COMPUTE = "sleep:image_seconds=0.0125"
IMAGES = 96


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Site:
    """Two classes of images that a small network learns in some updates."""
    network = Network(channels=1)
    case = small_case(network, train=images(IMAGES, network))
    monkeypatch.setattr(learners, "use_case", lambda name: case)
    monkeypatch.setattr(learners, "LOOK", 8)
    return Site(data_root=request.node.name)


def run(job: Job, site: Site | None = None) -> pd.DataFrame:
    """The rows that the cell's probe adds, by policy."""
    probe = measuring.PROBES[job.experiment]
    (trace,) = on_ranks(1, lambda group: probe.run(job, group, site))
    table = pd.DataFrame(trace.tables["policies"])
    assert set(table) <= set(rows.COLUMNS), "what is stored is read"
    assert set(trace.scores) <= {"step_seconds"}
    return table


def trained(experiment: str, **fields: Any) -> Job:
    given: dict[str, Any] = {"workers": 4, "per_worker_batch_size": 4, "micro_batch": 1, "learning_rate": 0.05}
    return simulated(experiment, use_case="Pneumonia", compute=COMPUTE, **{**given, "steps": 12, **fields})


def test_throughput_is_of_every_policy_under_the_same_delays() -> None:
    fields: dict[str, Any] = {"per_worker_batch_size": 4, "micro_batch": 1, "steps": 12}
    job = simulated("throughput", delays="exponential", workers=6, compute=COMPUTE, **fields)
    stored = run(job).assign(delays=job.delays, **{name: 0 for name in ("experiment", "workers", "seed", "data")})
    given = stored.assign(per_worker_batch_size=4, learning_rate=0.0)
    table = rows.with_shares(given).set_index("contender")
    assert not {"mitigation", "of_the_bound"} & set(stored) and stored["ideal_seconds_per_sample"].notna().sum() == 1
    assert list(table.index) == list(CONTENDERS) and (table["reason"] == "").all()
    assert table.loc[WAIT, "mitigation"] == 0 and table["mitigation"].drop(WAIT).ne(0).any()
    assert 1.5 < table.loc[DOLLY, "computed"] <= 2.01, "everything twice, until the first copy has come"
    assert table.loc[WAIT, "computed"] == pytest.approx(1, rel=0.02)
    assert table["seconds_per_sample"].ge(table["bound_seconds_per_sample"].iloc[0] * 0.99).all()


def test_a_replay_of_a_recorded_run_knows_a_node_that_stays_slow() -> None:
    fields: dict[str, Any] = {"per_worker_batch_size": 4, "micro_batch": 1, "steps": 12, "workers": 6}
    told = run(simulated("advice", delays="bad_node", compute=COMPUTE, **fields)).set_index("contender")
    then = run(simulated("throughput", delays="bad_node", compute=COMPUTE, seed=1, **fields)).set_index("contender")
    assert list(told.index) == list(ADVISED) and (told["reason"] == "").all()
    gains = [table["seconds_per_sample"] / table.loc[WAIT, "seconds_per_sample"] for table in (told, then)]
    for name in (DROP_ONE, DOLLY, CODING):
        assert gains[0][name] == pytest.approx(gains[1][name], rel=0.05)


def test_scale_is_of_policies_that_decide_round_by_round() -> None:
    fields: dict[str, Any] = {"per_worker_batch_size": 4, "micro_batch": 1, "steps": 5}
    job = simulated("scale", delays="pareto", workers=64, compute=COMPUTE, **fields)
    table = run(job).set_index("contender")
    assert list(table.index) == list(ROUND_BY_ROUND) and (table["reason"] == "").all()


def test_training_says_when_the_loss_was_reached(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TARGET_LOSS", 0.6)
    table = run(trained("time_to_loss", delays="exponential"), site).set_index("contender")
    assert list(table.index) == list(LEARNERS)
    reached = table[table["seconds_to_loss"].notna()]
    assert len(reached) >= 3 and (reached["loss"] <= 0.6).all() and (reached["reason"] == "").all()
    late = table[table["seconds_to_loss"].isna()]
    assert late["reason"].ne("").all()


def test_rivals_have_momentum(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TARGET_LOSS", 1e-9)
    job = trained("rivals", delays="exponential", steps=6, learning_rate=0.01)
    with_it = run(job, site).set_index("contender")["loss"]
    assert list(with_it.index) == list(RIVALS)
    monkeypatch.setattr(measuring, "MOMENTUM", 0.0)
    assert with_it[NEVER_WAIT] != run(job, site).set_index("contender")["loss"][NEVER_WAIT]


def test_slow_nodes_are_trained_with_by_some(site: Site) -> None:
    table = run(trained("slow_nodes", delays="bad_node:nodes=2", steps=2), site)
    assert list(table["contender"]) == list(OF_FIGURE_4)


@pytest.mark.slow
def test_the_papers_network_is_trained_as_the_engine_trains_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient is that of torch on the same model, and its vector of parameters that of the job's seed."""
    monkeypatch.setattr(paper_network, "use_case", learners.use_case)
    monkeypatch.setattr(paper_network, "JUDGED", 8)
    monkeypatch.setattr(learners, "LOOKS", 1)
    monkeypatch.setattr(measuring, "PAPER_TARGET_LOSS", 1e-9)
    job = trained("paper_network", delays="exponential", steps=3, seed=3, workers=2)
    table = run(job, site).set_index("contender")
    assert list(table.index) == list(OF_FIGURE_4) and table["loss"].between(0, 2).all()
    assert (table["reason"] != "").all() and table["accuracy"].between(0, 1).all()

    (found,) = on_ranks(1, lambda group: paper_network.paper_problem_of(job, group, site))
    problem, test, labels = found
    torch.manual_seed(3)
    model = learners.use_case("Pneumonia").model()
    assert problem.start == pytest.approx(torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
    shown, known, _, _ = learners.images_of(job, site)
    ids = np.array([5, 2, 7])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        model(torch.from_numpy(shown[ids]))[:, 0], torch.from_numpy(known[ids]).float()
    )
    loss.backward()
    gradient, own = problem.gradient(problem.start, ids)
    expected = torch.cat([each.grad.view(-1) for each in model.parameters() if each.grad is not None])
    assert own == pytest.approx(loss.item(), rel=1e-5)
    assert gradient == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-7)
    assert problem.loss(problem.start - 0.05 * gradient) != problem.loss(problem.start)
    assert 0 <= problem.accuracy(problem.start, test, labels) <= 1


@pytest.mark.slow
def test_stand_ins_are_judged_and_a_node_that_goes_stops_who_waits(site: Site) -> None:
    table = run(trained("stand_ins", delays="gone:at=0.3", steps=24), site).set_index("contender")
    assert list(table.index) == list(STAND_INS)
    assert "for ever" in table.loc[WAIT, "reason"] and np.isnan(table.loc[WAIT, "loss"])
    assert table.loc[LEFT_OUT, "reason"] == "" and table.loc[LEFT_OUT, "stand_ins"] == 0
    own = table.loc[LSTM_WEIGHTS]
    assert own["stand_ins"] > 0 and -1 <= own["cosine"] <= 1 and own["own_cosine"] > 0


def test_partitions_keep_images_with_their_workers(site: Site) -> None:
    table = run(trained("partitions", delays="bad_node", steps=12, learning_rate=0.05), site)
    assert len(table) == 4 and set(table["train_images"]) == {IMAGES} and set(table["test_images"]) == {11}
    stay = table[table["data"] == STAY].set_index("contender")["loss_of_worker_0"]
    assert stay["first n - 1"] > stay[WAIT], "nobody ever sees the slow worker's images"


@pytest.mark.parametrize(("delays", "left_out"), [("bad_node", 0), ("none", 3)])
def test_who_is_always_left_out_is_worker_0_as_the_bad_node_alone(delays: str, left_out: int) -> None:
    """Bug: worker 0's images were called the missing worker's, who without delays is the last to be given its work."""
    job = trained("partitions", delays=delays)
    policy = measuring.made(CONTENDERS[DROP_ONE], job, measuring._setting(job, IMAGES))
    cluster = measuring.cluster_of(job, measuring.LINK, job.workers, 0)
    ran = simulate(policy, cluster, make_delays(delays, job.workers, 0), Until(samples=200), keep_tasks=True)
    assert ran.tasks is not None
    gone = ran.tasks.loc[ran.tasks["fate"] == "recalled", "worker"]
    assert (gone == left_out).mean() > 0.9 and made_up.OWN == "worker 0's images"


def test_options_are_those_that_the_policies_know() -> None:
    """A typing error in one of them would be a row with a reason for ever."""
    from lockstep.engine.policies import Setting

    for known in (CONTENDERS, LEARNERS, ROUND_BY_ROUND, RIVALS, STAND_INS):
        for one in known.values():
            assert one.made(Setting(8 + one.standby, 640, 64, 2, one.standby), 0.1) is not None


def small_problem() -> Perceptron:
    network = Network(channels=1)
    data = images(24, network)
    return Perceptron(
        np.asarray(data.load(np.arange(24), 0, 0), np.float64).reshape(24, -1)[:, :40], data.labels, hidden=3
    )


def test_a_loss_is_looked_at_as_often_whatever_the_updates() -> None:
    """Whoever made smaller updates looked more often at a loss that goes up and down, and saw it low earlier."""
    learner = learners.SparinglyJudged(small_problem(), 0.1, 2, batch=8).looking()
    looks = [learner.judged(8) for _ in range(8 * learners.LOOKS)]
    assert np.isinf(looks[:-1]).all() and looks[-1] == pytest.approx(learner.problem.loss(learner.parameters))
    learner.versions[0] = learner.versions[0] + 1.0
    assert learner.judged(56) == looks[-1], "not yet"
    changed = learner.judged(8)
    assert changed == pytest.approx((3 * looks[-1] + learner.problem.loss(learner.parameters)) / 4), (
        "a look in 64 samples"
    )
    large = learners.SparinglyJudged(small_problem(), 0.1, 2, batch=128).looking()
    assert np.isfinite([large.judged(64) for _ in range(8)]).tolist() == [False] * 7 + [True], "one in a batch"


def test_parameters_are_averaged_from_an_update_on() -> None:
    learner = learners.AveragedLearner(small_problem(), 0.1, 2).from_update(1)
    seen = []
    for _ in range(4):
        learner._kept[0, 0] = np.ones_like(learner.parameters)
        learner.update([(Course(0, 0, 0, Work((), 4, 4), 0, 1, 4, 1, ()), 1.0)], [])
        seen.append(learner.parameters)
    assert np.allclose(learner.averaged, np.mean(seen[1:], axis=0)) and not np.allclose(seen[1], seen[3])


def test_only_those_remember_whose_gradients_may_be_made_up() -> None:
    learner = SgdLearner(small_problem(), 0.1, 2)
    learner.remembers = False
    assert not learner.made_up(GradientStandIn(0, "last", 1.0)).any()


def test_what_is_judged_is_what_stands_in() -> None:
    """The LSTM learns whenever it is asked: judging it with a call of its own changed what stood in."""
    problem = small_problem()
    learner = learners.JudgedLearner(problem, 0.1, 2)
    asked: list[GradientStandIn] = []
    made = learner._stand_ins.made

    def counted(worker: int, kind: str) -> Any:
        asked.append(GradientStandIn(worker, kind, 0.5))
        return made(worker, kind)

    learner._stand_ins.seen(1, np.ones(len(problem.start)))
    learner._stand_ins.made = counted  # type: ignore[method-assign]
    learner.update([], [GradientStandIn(1, "last", 0.5)])
    assert len(asked) == 1 and len(learner.cosines) == 1
