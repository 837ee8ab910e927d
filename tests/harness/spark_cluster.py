"""One Spark cluster for a whole session, lent to every team in turn: its two JVMs start once. And warm teams on it.

A team on it still has a driver, executors and ranks of its own, which end with the team. Tests that end a part of the
cluster itself, or look at its start, are marked `own_cluster`, and their teams start one as teams always do, with JVMs
that compile and Python that imports as they always do.

Starting a team takes some twenty seconds, of which most is the start of JVMs and of Python with torch. So the tests
that train on Spark, in whatever folder, share one team of each launcher and size (`SessionCluster.teams`). A test may
end it: the next one starts it anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.java_archive import java_archive
from lockstep.engine.launch.spark import team
from lockstep.engine.launch.spark.cluster import StandaloneCluster
from lockstep.engine.launch.spark.settings import application_conf
from processes import command
from together import Teams

_CORES = 8  # slots for executors: more than all teams that are warm at the same time have
_END_SECONDS = 60.0  # for the processes of a team that has been closed
_EXECUTOR = "CoarseGrainedExecutorBackend"
_OWN: type[StandaloneCluster] = StandaloneCluster
_CONF = application_conf
JVM_VARIABLE = "JAVA_TOOL_OPTIONS"
"""What every JVM reads, those of kernels and of other processes of a test too."""
# The second compiler takes longer than what it gains in the seconds that a JVM of a test lives: a driver with two
# executors took 9 CPU seconds instead of 14 until it was ready.
_QUICK_JVM = "-XX:TieredStopAtLevel=1"
# A task whose executor was killed may wait that long for it before it goes to the one that has come in its place.
_QUICK_SETTINGS = {"spark.python.daemon.module": "harness.spark_daemon", "spark.locality.wait": "10s"}


class LentCluster:
    """What a team needs of its `StandaloneCluster`: where it is. Stopping one leaves the session's as it is."""

    def __init__(self, session: SessionCluster) -> None:
        self._session = session
        self.url, self.folder, self.secret = "", "", ""

    def start(self) -> None:
        cluster = self._session.running()
        self.url, self.folder, self.secret = cluster.url, cluster.folder, cluster.secret

    def stop(self) -> None:
        self.url, self.folder, self.secret = "", "", ""

    @property
    def pids(self) -> list[int]:
        return self._session.running().pids if self.url else []

    def problem(self) -> str:
        return self._session.running().problem() if self.url else ""


class SessionCluster:
    """Starts when a team first asks for it, and stops with the session, or before tests that do without Spark."""

    def __init__(self) -> None:
        self.own = False  # Does the test that runs now want clusters of its own?
        self.teams = Teams()
        self.guests: list[int] = []  # process ids of programs that use it and outlast a test
        self._parts: set[int] = set()
        self._cluster: StandaloneCluster | None = None

    def for_team(self, executors: int) -> Any:
        """In place of `StandaloneCluster` in teams."""
        return _OWN(executors) if self.own else LentCluster(self)

    def conf(self, *how: Any) -> dict[str, str]:
        """In place of `application_conf` in teams."""
        return _CONF(*how) | ({} if self.own else _QUICK_SETTINGS)

    def running(self) -> StandaloneCluster:
        if self._cluster is not None and self._cluster.problem():  # a test that should have had its own has ended it
            self._stop_cluster()
        if self._cluster is None:
            quick_java()
            self._cluster = _OWN(_CORES)
            self._cluster.start()
            self._parts = below(self._cluster.pids[0])
        return self._cluster

    @property
    def standing(self) -> set[int]:
        """The processes of the cluster itself, of its warm teams and of its guests, which outlast a test."""
        if self._cluster is None:
            return set()
        of_guests = set[int]().union(*map(below, self.guests))
        return self._parts | of_guests | of_teams(self._cluster.pids[0], self.teams.made.values())

    def stop(self) -> None:
        """Close the warm teams, twice, and stop the cluster. Raises AssertionError for a process that a team leaves."""
        if self._cluster is None:
            return
        of_warm_teams = processes(self.standing - self._parts - set[int]().union(*map(below, self.guests)))
        for _ in range(2):
            self.teams.close()
        _, alive = psutil.wait_procs(of_warm_teams, _END_SECONDS)
        left = [f"{process.pid}: {command(process)}" for process in alive]
        self._stop_cluster()
        assert not left, f"a Spark team that was closed has left {left}"

    def _stop_cluster(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster, self._parts = None, set()


def quick_java() -> None:
    """Let every JVM that this process starts from now on start in half its CPU time."""
    os.environ[JVM_VARIABLE] = _QUICK_JVM  # of the JVM that makes the archive, too
    archive = java_archive(Path(os.environ["LOCKSTEP_CACHE"], "java"), JVM_VARIABLE)
    os.environ[JVM_VARIABLE] = f"{_QUICK_JVM} {archive}".strip()


def processes(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of them that have not ended."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def below(pid: int) -> set[int]:
    """This process and all below it; none, if it has ended."""
    try:
        process = psutil.Process(pid)
        return {pid, *(each.pid for each in process.children(recursive=True))}
    except psutil.Error:
        return set()


def of_teams(supervisor: int, teams: Iterable[Any]) -> set[int]:
    """All processes of warm `teams`: drivers, and executors below the cluster's `supervisor`, with what is below them.

    Executors do not say whose they are. Where there are more of them than the teams have, another team has left some,
    and none is counted.
    """
    warm = [team for team in teams if team.pids]
    found: set[int] = set().union(*(below(team.pids[0]) for team in warm))
    try:
        of_cluster = psutil.Process(supervisor).children(recursive=True)
    except psutil.Error:
        return found
    executors = [each.pid for each in of_cluster if _EXECUTOR in command(each)]
    if len(executors) <= sum(team.executors for team in warm):
        found = found.union(*map(below, executors))
    return found


def install(monkeypatch: pytest.MonkeyPatch) -> SessionCluster:
    """From now on teams of this process get the session's cluster."""
    session = SessionCluster()
    monkeypatch.setattr(team, "StandaloneCluster", session.for_team)
    monkeypatch.setattr(team, "application_conf", session.conf)
    monkeypatch.setenv(JVM_VARIABLE, _QUICK_JVM)
    return session
