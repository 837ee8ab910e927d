"""Warm teams on the session's Spark cluster: their processes are theirs, and what another team leaves is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness import spark_cluster
from harness.spark_cluster import SessionCluster, below, of_teams

CLUSTER = """\
import subprocess, sys
executor = [sys.executable, "-S", "-c", "input()", "CoarseGrainedExecutorBackend"]
executors = [subprocess.Popen(executor, stdin=subprocess.PIPE) for _ in range(2)]
print("ready", flush=True)
input()
"""


@pytest.fixture
def supervisor() -> Iterator[int]:
    """A process with two executors, or what looks so."""
    process = subprocess.Popen([sys.executable, "-S", "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    process.stdin.close()  # which ends it, and so its executors
    process.wait()
    process.stdout.close()


@pytest.fixture
def driver() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid


def warm(driver: int, executors: int) -> Any:
    return SimpleNamespace(pids=[driver, 1], executors=executors)


def test_a_teams_processes_are_its_driver_and_its_executors(supervisor: int, driver: int) -> None:
    executors = below(supervisor) - {supervisor}
    assert len(executors) == 2
    assert of_teams(supervisor, [warm(driver, 2)]) == {driver, *executors}


def test_executors_of_no_warm_team_are_left_over(supervisor: int, driver: int) -> None:
    assert of_teams(supervisor, [warm(driver, 1)]) == {driver}
    assert of_teams(supervisor, [SimpleNamespace(pids=[], executors=2)]) == set(), "of a team that has ended"


def test_a_closed_team_that_leaves_a_process_fails_the_run(
    supervisor: int, driver: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_cluster, "_END_SECONDS", 0.2)
    session, closed = SessionCluster(), []
    session.teams.made["spark", 2] = SimpleNamespace(pids=[driver], executors=2, close=lambda: closed.append(1))
    session._cluster = SimpleNamespace(pids=[supervisor], stop=lambda: closed.append(2))  # type: ignore[assignment]
    with pytest.raises(AssertionError, match=f"a Spark team that was closed has left .*({driver})"):
        session.stop()
    assert closed == [1, 1, 2]
    session.stop()
    assert closed == [1, 1, 2], "it has ended"
