"""TensorFlow learns what torch learns, with every launcher and kind of sync as with one worker."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import tiny
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.models.layers import Network
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, run_job
from small_images import images, needs_tensorflow, small_case
from together import TOLERANCE, Teams, alone, small_job

pytestmark = [needs_tensorflow, pytest.mark.slow]

CNN = Network(channels=1, dropout=0.2)
STEPS = 20


def curve(framework: str, network: Network, seed: int) -> np.ndarray:
    """Losses of 20 steps of Adam on 16 images each, in this process."""
    this = small_job(framework=framework, steps=STEPS, global_batch_size=16, seed=seed)
    case = small_case(network, optimiser=functools.partial(torch.optim.Adam, lr=0.0003, fused=True))
    trace = run_job(this, ThreadGroup.of(1)[0], Site(use_case=case))
    return np.array([step["train_loss"] for step in trace.steps])


@pytest.mark.parametrize(
    "network",
    [
        CNN,
        Network(channels=3, classes=4),
        Network(channels=1, batch_norm=True),
        Network("convlstm", channels=1, dropout=0.2),
        pytest.param(Network("convlstm2d", channels=1), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_the_same_loss_curve_as_torch(network: Network) -> None:
    """Same data, weights at the start, masks and optimiser; seeds 0, 1 and 2.

    The first losses agree to rounding, and most curves stay within 1e-6. Now and then one leaves by up to 1e-3, in one
    step: two pixels that max pooling compares, or the sign of a next to vanishing gradient, which Adam makes a whole
    step, turn on a rounding. So do torch's curves in its two memory formats, and the faster the loss falls, the more.
    A wrong mask, weight or step of the optimiser is off by 1e-2 at once, in every curve.
    """
    largest = []
    for seed in range(3):
        ours, theirs = curve("torch", network, seed), curve("tensorflow", network, seed)
        assert ours[:3].mean() - ours[-3:].mean() > 0.05, "something is learnt"
        assert np.abs(ours - theirs)[0] < 1e-6
        largest.append(np.abs(ours - theirs).max())
    assert np.median(largest) < 1e-5
    assert max(largest) < 5e-3


SERVED: dict[str, Any] = {"sync": "parameter_server", "policy": "wait_for_all", "servers": 1}
DISTRIBUTED = [
    ("threads", 2, {"sync": "shared_memory"}),
    ("threads", 3, {"sync": "allreduce", "bucket": "layer", "overlap": True}),
    pytest.param("processes", 2, {"sync": "allreduce"}, marks=pytest.mark.slow),  # processes that load TensorFlow
    pytest.param("processes", 2, {"sync": "allreduce", "bucket": "64KiB", "overlap": True}, marks=pytest.mark.slow),
    pytest.param("processes", 2, {"sync": "shared_memory"}, marks=pytest.mark.slow),
    pytest.param("processes", 2, {"sync": "local_sgd"}, marks=pytest.mark.slow),
    ("threads", 2, SERVED),  # on the team of three that is warm already: a process needs seconds to load TensorFlow
    ("mpiexec", 2, {"sync": "allreduce"}),
    ("mpiexec", 2, {"sync": "shared_memory"}),
]


def job(launcher: str, workers: int, fields: dict[str, Any], **changes: Any) -> Job:
    """9 samples a step, of 37: every fifth step has 1, so that some workers have an empty share."""
    values = {"framework": "tensorflow", "launcher": launcher, "workers": workers, "global_batch_size": 9, "steps": 7}
    return small_job(**(values | fields | changes))


@pytest.mark.parametrize(("launcher", "workers", "fields"), DISTRIBUTED, ids=str)
def test_parameters_are_those_of_one_worker(
    teams: Teams, launcher: str, workers: int, fields: dict[str, Any], tmp_path: Path
) -> None:
    case = small_case(CNN)
    this = job(launcher, workers, fields)
    expected = alone(case, tmp_path / "alone", framework="tensorflow", global_batch_size=9, steps=7)
    got = teams.together(this, case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE
    assert not torch.equal(got, _start(case, tmp_path)), "something was trained"


def _start(case: Any, path: Path) -> torch.Tensor:
    return alone(case, path / "start", framework="tensorflow", global_batch_size=9, steps=1)


@pytest.mark.parametrize(("before", "after"), [("torch", "tensorflow"), ("tensorflow", "torch")])
def test_a_run_is_resumed_in_the_other_framework(before: str, after: str, tmp_path: Path) -> None:
    """A checkpoint has torch's layout whoever wrote it: parameters, momentum and running statistics."""
    network = Network(channels=3, classes=3, dropout=0.2, batch_norm=True)
    case = small_case(network)
    unbroken = alone(case, tmp_path / "unbroken", framework=before)
    alone(case, tmp_path / "broken", framework=before, steps=7)
    this = small_job(framework=after)
    site = Site(use_case=case, checkpoint=str(tmp_path / "broken"), resume=True)
    run_job(this, ThreadGroup.of(1)[0], site)
    whole, resumed = (checkpoint.read(str(tmp_path / name)) for name in ("unbroken", "broken"))
    assert (resumed["parameters"] - unbroken).abs().max() < 5 * TOLERANCE
    assert torch.allclose(resumed["buffers"], whole["buffers"], rtol=1e-5, atol=1e-6)


def test_a_resumed_run_reaches_the_unbroken_runs_parameters_exactly(tmp_path: Path) -> None:
    case = small_case(CNN, adam=True)
    unbroken = alone(case, tmp_path / "unbroken", framework="tensorflow")
    alone(case, tmp_path / "broken", framework="tensorflow", steps=7)
    site = Site(use_case=case, checkpoint=str(tmp_path / "broken"), resume=True)
    run_job(small_job(framework="tensorflow"), ThreadGroup.of(1)[0], site)
    assert torch.equal(checkpoint.read(str(tmp_path / "broken"))["parameters"], unbroken)


def test_scores_are_those_of_torch(teams: Teams) -> None:
    """With batch normalisation: running statistics are averaged over workers, and evaluation uses them."""
    case = small_case(Network(channels=1, batch_norm=True))
    scores = [
        teams.run(job("threads", 2, {"sync": "shared_memory"}, framework=framework), case, evaluate=True)[0].scores
        for framework in ("torch", "tensorflow")
    ]
    assert scores[0] == pytest.approx(scores[1])
    assert 0 < scores[0]["test_accuracy"] <= 1


def test_a_step_is_measured_as_one_of_torch(teams: Teams) -> None:
    traces = teams.run(job("processes", 2, {"sync": "allreduce"}, steps=3, warmup_steps=2), small_case(CNN))
    for trace in traces:
        assert len(trace.steps) == 3
        for times in trace.steps:
            assert times["compute_seconds"] > 0
            assert np.isnan(times["forward_seconds"]) and np.isnan(times["backward_seconds"])
            assert times["compute_seconds"] < times["step_seconds"]


def _wrong_labels() -> Any:
    data = images(tiny.SAMPLES, Network(channels=1, classes=3))
    data.labels[...] = 7  # of three classes: TensorFlow's own error, in the middle of its graph
    return data


@pytest.mark.usefixtures("no_leftovers")
def test_an_error_in_the_graph_leaves_nothing_behind(teams: Teams) -> None:
    """A worker that is killed ends its team whatever it computes with: tests/faults has that.

    The last test here: it ends a team that is warm, since each worker needs seconds to load TensorFlow.
    """
    network, team = Network(channels=1, classes=3), teams.of("processes", 2)
    team.start()
    workers = [psutil.Process(pid) for pid in team.pids]
    with pytest.raises(WorkerFailed, match="InvalidArgumentError"):
        teams.run(job("processes", 2, {"sync": "allreduce"}), small_case(network, train=_wrong_labels()))
    assert len(workers) == 2 and team.pids == []
    assert psutil.wait_procs(workers, 60)[1] == []
