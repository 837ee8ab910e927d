"""Hosts whose workers are threads of one process: what the conformance suite asks of every launcher."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from lockstep.commands.mpi_job import job_of
from lockstep.commands.mpi_options import MpiOptions
from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import Team
from lockstep.engine.launch.mpi.commands import MpiError, Placement
from lockstep.engine.launch.mpi.emulated import why_not
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.usecases import UseCase
from lockstep.measure.summary import summarise
from lockstep.measure.teams import Teams

pytestmark = [pytest.mark.linux, pytest.mark.serial]
TOLERANCE = 3e-7  # as in test_conformance
SHAPES = [(2, 4), (1, 2)]  # hosts, workers
SHAPE = pytest.mark.parametrize(("hosts", "workers"), SHAPES)


def job(hosts: int, workers: int, **changes: Any) -> Job:
    values: dict[str, Any] = {"global_batch_size": 8, "steps": 12, "warmup_steps": 0}
    return Job.of("host_threads", use_case="own", hosts=hosts, workers=workers, **(values | changes))


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with warnings.catch_warnings(action="ignore"), Teams() as teams:  # more workers than cores
        yield teams


def train(teams: Teams, this: Job, path: Path, case: UseCase, **site: Any) -> tuple[Tensor, list[Trace]]:
    traces = teams.team(this).run(this, Site(use_case=case, checkpoint=str(path), **site))
    return checkpoint.read(str(path))["parameters"], traces


def alone(case: UseCase, path: Path, **changes: Any) -> Tensor:
    this = job(1, 1, **changes).with_(launcher="threads", sync="local", host_workers="processes")
    run_job(this, ThreadGroup.of(1)[0], Site(use_case=case, checkpoint=str(path)))
    return checkpoint.read(str(path))["parameters"]


@SHAPE
def test_the_parameters_are_those_of_one_worker(teams: Teams, hosts: int, workers: int, tmp_path: Path) -> None:
    """Three epochs, each with an uneven last batch; dropout is on."""
    case = tiny.case()
    got, traces = train(teams, job(hosts, workers), tmp_path / "together", case)
    assert (got - alone(case, tmp_path / "alone")).abs().max() < TOLERANCE
    assert [trace.rank for trace in traces] == list(range(workers))
    assert all(len(trace.steps) == 12 for trace in traces)


@SHAPE
def test_a_last_batch_smaller_than_the_team(teams: Teams, hosts: int, workers: int, tmp_path: Path) -> None:
    """37 samples in batches of 9 leave 1."""
    case, odd = tiny.case(), {"global_batch_size": 9, "steps": 6}
    got, _ = train(teams, job(hosts, workers, **odd), tmp_path / "together", case)
    assert (got - alone(case, tmp_path / "alone", **odd)).abs().max() < TOLERANCE


def test_adam_too(teams: Teams, tmp_path: Path) -> None:
    case = tiny.case(optimiser=functools.partial(torch.optim.Adam, lr=0.01))
    got, _ = train(teams, job(2, 4), tmp_path / "together", case)
    assert (got - alone(case, tmp_path / "alone")).abs().max() < 2e-5  # Adam amplifies rounding


@SHAPE
def test_resume_reaches_the_unbroken_runs_parameters_exactly(
    teams: Teams, hosts: int, workers: int, tmp_path: Path
) -> None:
    case = tiny.case()
    unbroken, _ = train(teams, job(hosts, workers), tmp_path / "unbroken", case)
    first, _ = train(teams, job(hosts, workers, steps=7), tmp_path / "broken", case)
    assert not torch.equal(first, unbroken)
    resumed, _ = train(teams, job(hosts, workers), tmp_path / "broken", case, resume=True)
    assert torch.equal(resumed, unbroken)


def test_running_statistics_are_the_mean_and_scores_the_same_everywhere(teams: Teams, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.normalised_net, test=tiny.arrays(13))
    _, traces = train(teams, job(2, 4), tmp_path / "c", case, evaluate=True)
    assert all(trace.scores == traces[0].scores for trace in traces)
    assert 0 <= traces[0].scores["test_accuracy"] <= 1
    assert teams.team(job(2, 4)).call(_averaged) == [1.5] * 4


def _averaged(group: Group) -> float:
    buffer = torch.full((3,), float(group.rank))
    group.allreduce(buffer)
    return float(buffer[0] / group.size)


def _place(group: Group) -> tuple[int, list[int], int, bool]:
    denormal = torch.tensor(1e-40) * 1.0
    return os.getpid(), sorted(os.sched_getaffinity(0)), torch.get_num_threads(), float(denormal) == 0.0


def test_each_rank_has_its_own_cores_in_one_process_per_host(teams: Teams) -> None:
    team = teams.team(job(2, 4))
    told = team.call(_place)
    assert team.ranks_by_process == [[0, 1], [2, 3]]
    assert [pid for pid, *_ in told] == [team.pids[0]] * 2 + [team.pids[1]] * 2
    assert team.pids[0] != team.pids[1]
    assert [cores for _, cores, _, _ in told] == team.cores
    assert [(threads, flushed) for *_, threads, flushed in told] == [(1, True)] * 4


def test_a_grid_keeps_teams_of_threads_and_of_processes_apart(teams: Teams) -> None:
    here, there = job(1, 2), job(1, 2).with_(host_workers="processes")
    assert teams.team(here) is teams.team(here)
    assert teams.team(here) is not teams.team(there)
    assert (teams.team(here).ranks_by_process, teams.team(there).ranks_by_process) == ([[0, 1]], [[0], [1]])
    placed = [(place["host_workers"], place["workers"]) for place in teams.placements()]
    assert ("threads", 2) in placed and ("processes", 2) in placed


def test_lockstep_mpi_says_that_it_starts_processes() -> None:
    with pytest.raises(MpiError, match=r"--sync host_threads has one process per host.*give --sync shared_memory"):
        job_of(MpiOptions(workers=2, sync="host_threads"), Placement())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Team]:
    if why_not():
        pytest.skip(why_not())
    with warnings.catch_warnings(action="ignore"):
        launcher = Mpiexec(4, hosts=2, link_bits_per_second=1e9, host_workers="threads")
    with launcher as team:
        yield team


def test_on_emulated_hosts(cluster: Team, tmp_path: Path) -> None:
    """The same parameters, and between hosts the least that a common sum of two takes: a gradient each way."""
    case = tiny.case()
    this = job(2, 4, link_bits_per_second=1e9)
    traces = cluster.run(this, Site(use_case=case, checkpoint=str(tmp_path / "c")))
    got = checkpoint.read(str(tmp_path / "c"))["parameters"]
    assert (got - alone(case, tmp_path / "alone")).abs().max() < TOLERANCE
    gradient = 4.0 * got.numel()
    assert sum(trace.steps[-1]["bytes_sent"] for trace in traces) == pytest.approx(4 * gradient, rel=0.01)
    assert summarise(this, traces)["link_bytes_sent"] > 2 * gradient
    assert cluster.ranks_by_process == [[0, 1], [2, 3]]
