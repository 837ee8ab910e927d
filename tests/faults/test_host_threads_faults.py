"""Hosts whose workers are threads of one process: a thread that fails, a process that ends; all end in time."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_mpi_faults import REASONS, fail, no_files  # noqa: F401 - a fixture

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.launch import Team
from lockstep.engine.launch.mpi.emulated import why_not
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from lockstep.engine.training.loop import Site

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers", "no_files")]


def team_of(workers: int, hosts: int, link_bits_per_second: float = 0.0) -> Mpiexec:
    with warnings.catch_warnings(action="ignore"):  # more workers than cores
        return Mpiexec(workers, hosts=hosts, link_bits_per_second=link_bits_per_second, host_workers="threads")


@pytest.fixture
def four() -> Iterator[Team]:
    with team_of(4, 2) as team:
        yield team


def misbehave_in(group: Group, culprit: int, phase: str, how: str) -> None:
    """`culprit` misbehaves in that phase; the others wait for it, each the way that its place asks for."""
    group.at_step(3)
    group.barrier()  # all have begun
    group.enter(phase)
    if group.rank == culprit:
        tiny.misbehave(how)
    group.enter("wait")
    if group.rank == culprit ^ 1:
        group.node.barrier()  # the other thread of that process: it does not look at MPI for that
    group.barrier()


def test_a_thread_that_raises_is_named_wherever_it_is(four: Team) -> None:
    """Thread 1 while thread 0 waits, thread 0 while thread 1 waits, each with the other process waiting in MPI."""
    for culprit in (1, 2):
        failure = fail(four, misbehave_in, culprit, "exchange", "raise")
        assert (failure.rank, failure.where) == (culprit, "step 3, phase exchange")
        assert REASONS["raise"] in str(failure) and "misbehave" in failure.traceback
    assert [rank for rank, *_ in four.call(tiny.say_rank)] == [0, 1, 2, 3], "it starts again"


@pytest.mark.parametrize(("phase", "how"), [("compute", "raise"), ("start", "raise"), ("update", "kill")])
def test_in_a_step(four: Team, phase: str, how: str) -> None:
    this = Job.of("host_threads", use_case="own", hosts=2, workers=4, global_batch_size=8, steps=6, warmup_steps=0)
    failure = fail(four, this, Site(use_case=tiny.faulty_in(phase, how)))
    assert REASONS[how] in str(failure)
    if how == "raise":
        assert (failure.rank, "misbehave" in failure.traceback) == (1, True)
        assert failure.where.endswith(f"phase {phase}")
    else:  # of a process the launcher knows who was in it, and where
        assert failure.rank == 0
        assert f"rank 1: step 0, phase {phase}" in failure.where


@pytest.mark.parametrize("how", ["kill", "leave", "stop", "segfault"])
def test_a_process_that_ends_is_named_by_its_ranks(four: Team, how: str) -> None:
    failure = fail(four, misbehave_in, 3, "compute", how)
    assert failure.rank == 2
    assert failure.where.startswith("rank 2: step 3, phase ")
    assert failure.where.endswith("; rank 3: step 3, phase compute")
    assert REASONS[how] in str(failure)


def test_a_thread_that_stalls_is_named_with_its_stack(four: Team) -> None:
    failure = fail(four, misbehave_in, 3, "compute", "hang", stall_seconds=2)
    assert failure.rank == 3
    assert "has not moved for 2 s" in str(failure) and "misbehave" in failure.traceback


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_one_host_alone(how: str) -> None:
    with team_of(2, 1) as team:
        failure = fail(team, misbehave_in, 1, "compute", how)
    assert REASONS[how] in str(failure)
    assert "step 3, phase compute" in failure.where
    assert failure.rank == (1 if how == "raise" else 0)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_on_emulated_hosts(how: str) -> None:
    if why_not():
        pytest.skip(why_not())
    with team_of(4, 2, 1e9) as team:
        failure = fail(team, misbehave_in, 3, "compute", how)
    assert REASONS[how] in str(failure)
    assert failure.rank == (3 if how == "raise" else 2)
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout == ""


def test_a_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its two processes find no package to import."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('no MPI on this Tuesday')")
    monkeypatch.syspath_prepend(str(tmp_path))
    launcher = team_of(4, 2)
    failure = fail_to_start(launcher.team)
    assert "no MPI on this Tuesday" in str(failure)


def fail_to_start(team: Team) -> Exception:
    with pytest.raises(Exception, match="could not start") as caught:
        team.start()
    assert team.pids == []
    return caught.value
