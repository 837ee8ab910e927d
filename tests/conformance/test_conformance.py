"""The suite that every sync x launcher x replica must pass: the same parameters as one worker, whatever the shape."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tiny
from lockstep import checkpoint
from lockstep.groups import Group
from lockstep.groups.threads import ThreadGroup
from lockstep.job import Job
from lockstep.launch import LAUNCHERS, Team
from lockstep.loop import Site, run_job
from lockstep.peers import PEERS
from lockstep.replica import TorchReplica
from lockstep.strategies import STRATEGIES
from lockstep.sync import SYNCS
from lockstep.usecases import UseCase

# Sums of up to 4 addends in another order: 3e-8 was seen; a dropped or doubled sample gives 1e-3.
TOLERANCE = 3e-7

# `local` does not agree, so only one worker can use it; torch.distributed needs a process per rank.
COMBINATIONS = [
    (launcher, sync)
    for launcher in LAUNCHERS
    for sync in (*SYNCS, *PEERS)
    if sync != "local" and not (launcher == "threads" and sync in PEERS)
]
EVERY = pytest.mark.parametrize(("launcher", "sync"), COMBINATIONS)
WORKERS = (2, 3)


@pytest.fixture(scope="module")
def teams() -> Iterator[dict[tuple[str, int], Team]]:
    """Warm teams, one per launcher and size: starting them is most of such a test's time."""
    with warnings.catch_warnings(action="ignore"):  # three workers may be more than there are cores
        made = {(name, count): LAUNCHERS[name](count).team for name in LAUNCHERS for count in WORKERS}
    yield made
    for team in made.values():
        team.close()


def job(launcher: str = "threads", sync: str = "local", workers: int = 1, **changes: object) -> Job:
    values: dict[str, object] = {"global_batch_size": 8, "steps": 12, "warmup_steps": 0, "strategy": "own"}
    return Job(use_case="own", launcher=launcher, sync=sync, workers=workers, **(values | changes))  # type: ignore[arg-type]


def alone(case: UseCase, path: Path, **changes: object) -> Tensor:
    """Parameters after sequential training, in this process."""
    run_job(job(**changes), ThreadGroup.of(1)[0], Site(use_case=case, checkpoint=str(path)))
    return checkpoint.read(str(path))["parameters"]


def together(team: Team, this: Job, case: UseCase, path: Path, **site: object) -> Tensor:
    team.run(this, Site(use_case=case, checkpoint=str(path), **site))  # type: ignore[arg-type]
    return checkpoint.read(str(path))["parameters"]


@EVERY
@pytest.mark.parametrize("workers", WORKERS)
def test_the_parameters_are_those_of_one_worker(
    teams: dict[tuple[str, int], Team], launcher: str, sync: str, workers: int, tmp_path: Path
) -> None:
    """Three epochs of 37 samples in batches of 8: every epoch ends with an uneven batch of 5, dropout is on."""
    case = tiny.case()
    expected = alone(case, tmp_path / "alone")
    got = together(teams[launcher, workers], job(launcher, sync, workers), case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE
    start = tiny.net()
    assert expected.numel() == sum(p.numel() for p in start.parameters())


@EVERY
def test_a_last_batch_smaller_than_the_team(
    teams: dict[tuple[str, int], Team], launcher: str, sync: str, tmp_path: Path
) -> None:
    """37 samples in batches of 9 leave 1 for three workers: two of them have an empty share."""
    case = tiny.case()
    this = job(launcher, sync, 3, global_batch_size=9, steps=6)
    if sync in PEERS:
        with pytest.raises(Exception, match="empty share"):
            teams[launcher, 3].run(this, Site(use_case=case))
        return
    expected = alone(case, tmp_path / "alone", global_batch_size=9, steps=6)
    assert (together(teams[launcher, 3], this, case, tmp_path / "c") - expected).abs().max() < TOLERANCE


@EVERY
def test_layers_that_are_not_used_or_used_twice(
    teams: dict[tuple[str, int], Team], launcher: str, sync: str, tmp_path: Path
) -> None:
    if sync in PEERS:
        pytest.skip("DDP refuses unused parameters unless told to look for them in every step")
    case = tiny.case(model=tiny.Spare)
    expected = alone(case, tmp_path / "alone")
    got = together(teams[launcher, 2], job(launcher, sync, 2), case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE


@EVERY
def test_resume_reaches_the_unbroken_runs_parameters_exactly(
    teams: dict[tuple[str, int], Team], launcher: str, sync: str, tmp_path: Path
) -> None:
    """Broken after 7 of 12 steps, in the middle of an epoch; momentum is part of the state."""
    case, team = tiny.case(), teams[launcher, 2]
    unbroken = together(team, job(launcher, sync, 2), case, tmp_path / "unbroken")
    first = together(team, job(launcher, sync, 2, steps=7), case, tmp_path / "broken")
    assert not torch.equal(first, unbroken)
    resumed = together(team, job(launcher, sync, 2), case, tmp_path / "broken", resume=True)
    assert torch.equal(resumed, unbroken)


@EVERY
def test_running_statistics_are_the_mean_over_workers(
    teams: dict[tuple[str, int], Team], launcher: str, sync: str, tmp_path: Path
) -> None:
    """What is written must not be one rank's own statistics; ranks saw different samples, so theirs differ."""
    case = tiny.case(model=tiny.normalised_net, test=tiny.arrays(13))  # 7 and 6: unequally many batches of 6
    path = tmp_path / "c"
    this = job(launcher, sync, 2).with_(per_worker_batch_size=6)
    team = teams[launcher, 2]
    traces = team.run(this, Site(use_case=case, checkpoint=str(path), evaluate=True))
    assert 0 <= traces[0].scores["test_accuracy"] <= 1
    assert traces[0].scores == traces[1].scores
    assert team.call(_averaged) == [[1.0, 1.0], [1.0, 1.0]]


def _averaged(group: Group) -> list[float]:
    replica = TorchReplica(nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.BatchNorm1d(1, affine=False)))
    replica.buffers.fill_(2.0 * group.rank)
    checkpoint.average_buffers(replica, group)
    return replica.buffers.tolist()


@EVERY
def test_every_rank_is_measured_in_every_step(
    teams: dict[tuple[str, int], Team], launcher: str, sync: str, tmp_path: Path
) -> None:
    traces = teams[launcher, 2].run(job(launcher, sync, 2, steps=3, warmup_steps=2), Site(use_case=tiny.case()))
    assert [trace.rank for trace in traces] == [0, 1]
    for trace in traces:
        assert len(trace.steps) == 3
        for times in trace.steps:
            parts = [times[f"{name}_seconds"] for name in ("input", "compute", "wait", "exchange", "update")]
            assert all(part >= 0 for part in parts)
            assert sum(parts) <= times["step_seconds"]


def test_every_strategy_of_the_table_is_covered() -> None:
    """A new line in STRATEGIES can't slip past this suite."""
    for name, strategy in STRATEGIES.items():
        pair = (strategy.fields["launcher"], strategy.fields["sync"])
        assert pair in COMBINATIONS or not strategy.distributed, name


def test_parameters_stand_once_per_node(teams: dict[tuple[str, int], Team]) -> None:
    """Ranks of one node write to each other's parameters: the very same memory, in both launchers."""
    for launcher in LAUNCHERS:
        assert teams[launcher, 2].call(_write_and_read_shared) == [[10.0, 11.0], [10.0, 11.0]]


def _write_and_read_shared(group: object) -> list[float]:
    buffers = group.share(1000)  # type: ignore[attr-defined]
    assert all(float(b.abs().sum()) == 0.0 for b in buffers)
    group.barrier()  # type: ignore[attr-defined]
    buffers[group.rank][999] = 10 + group.rank  # type: ignore[attr-defined]
    group.barrier()  # type: ignore[attr-defined]
    return [float(b[999]) for b in buffers]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_adam_too(teams: dict[tuple[str, int], Team], launcher: str, tmp_path: Path) -> None:
    """Any optimiser that works element by element can be given a slice."""
    case = tiny.case(optimiser=functools.partial(torch.optim.Adam, lr=0.01))
    expected = alone(case, tmp_path / "alone")
    got = together(teams[launcher, 2], job(launcher, "shared_memory", 2), case, tmp_path / "c")
    # Adam divides by the root of tiny squares: rounding of a gradient is amplified up to the step itself.
    assert (got - expected).abs().max() < 2e-5


@EVERY
def test_a_run_gives_its_memory_back(teams: dict[tuple[str, int], Team], launcher: str, sync: str) -> None:
    """Seen: hooks kept every replica alive, and ten jobs later the machine was out of memory."""
    team = teams[launcher, 2]
    for _ in range(2):
        team.run(job(launcher, sync, 2, steps=2), Site(use_case=tiny.case()))
    assert team.call(_left_over) == [(0, 0), (0, 0)]


def _left_over(group: object) -> tuple[int, int]:
    """Replicas of an earlier call in this process, and its shared memory (the board is the one that stays)."""
    del group
    gc.collect()
    replicas = sum(isinstance(thing, TorchReplica) for thing in gc.get_objects())
    maps = Path("/proc/self/maps").read_text().splitlines() if Path("/proc/self/maps").exists() else [":lockstep"]
    return replicas, sum(":lockstep" in line for line in maps) - 1
