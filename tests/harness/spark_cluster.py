"""One Spark cluster for a whole session, lent to every team in turn: its two JVMs start once.

A team on it still has a driver, executors and ranks of its own, which end with the team. Tests that end a part of the
cluster itself, or look at its start, are marked `own_cluster`, and their teams start one as teams always do.
"""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from lockstep.engine.launch.spark import team
from lockstep.engine.launch.spark.cluster import StandaloneCluster

_CORES = 8  # slots for executors: more than all teams that are warm at the same time have
_OWN: type[StandaloneCluster] = StandaloneCluster


class LentCluster:
    """What a team needs of its `StandaloneCluster`: where it is. Stopping one leaves the session's as it is."""

    def __init__(self, session: SessionCluster) -> None:
        self._session = session
        self.url, self.folder = "", ""

    def start(self) -> None:
        cluster = self._session.running()
        self.url, self.folder = cluster.url, cluster.folder

    def stop(self) -> None:
        self.url, self.folder = "", ""

    @property
    def pids(self) -> list[int]:
        return self._session.running().pids if self.url else []

    def problem(self) -> str:
        return self._session.running().problem() if self.url else ""


class SessionCluster:
    """Starts when a team first asks for it, and stops with the session."""

    def __init__(self) -> None:
        self.own = False  # Does the test that runs now want clusters of its own?
        self.standing: set[int] = set()  # the processes of the cluster itself, which no test is to end
        self._cluster: StandaloneCluster | None = None

    def for_team(self, executors: int) -> Any:
        """In place of `StandaloneCluster` in teams."""
        return _OWN(executors) if self.own else LentCluster(self)

    def running(self) -> StandaloneCluster:
        if self._cluster is not None and self._cluster.problem():  # a test that should have had its own has ended it
            self.stop()
        if self._cluster is None:
            self._cluster = _OWN(_CORES)
            self._cluster.start()
            (supervisor,) = (psutil.Process(pid) for pid in self._cluster.pids)
            self.standing = {supervisor.pid, *(each.pid for each in supervisor.children(recursive=True))}
        return self._cluster

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster, self.standing = None, set()


def install(monkeypatch: pytest.MonkeyPatch) -> SessionCluster:
    """From now on teams of this process get the session's cluster."""
    session = SessionCluster()
    monkeypatch.setattr(team, "StandaloneCluster", session.for_team)
    return session
