"""Hosts whose workers are threads of one process: a thread that fails, a process that ends; all end in time."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from failing import REASONS, fail
from lockstep.engine.groups import Group
from lockstep.engine.launch import Team
from lockstep.engine.launch.mpi.emulated import why_not
from lockstep.engine.launch.mpi.mpiexec import Mpiexec

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


def test_a_thread_that_stalls_is_named_with_its_stack(four: Team) -> None:
    failure = fail(four, misbehave_in, 3, "compute", "hang", stall_seconds=1)
    assert failure.rank == 3
    assert "has not moved for 1 s" in str(failure) and "misbehave" in failure.traceback


def test_one_host_alone() -> None:
    with team_of(2, 1) as team:
        failure = fail(team, misbehave_in, 1, "compute", "kill")
    assert REASONS["kill"] in str(failure)
    assert (failure.rank, "rank 1: step 3, phase compute" in failure.where) == (0, True)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_on_emulated_hosts(how: str) -> None:
    if why_not():
        pytest.skip(why_not())
    with team_of(4, 2, 1e9) as team:
        failure = fail(team, misbehave_in, 3, "compute", how)
    assert REASONS[how] in str(failure)
    assert failure.rank == (3 if how == "raise" else 2)
    assert subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout == ""


@pytest.mark.true_start
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
