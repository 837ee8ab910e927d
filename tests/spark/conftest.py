"""What the tests of Spark share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.engine.launch.spark.cluster import SECRET_VARIABLE
from strangers import Refused


@pytest.fixture
def cluster_url(_session_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the master of a cluster that runs, as a user has it from others, with its secret in the environment."""
    cluster = _session_cluster.running()
    monkeypatch.setenv(SECRET_VARIABLE, cluster.secret)
    url: str = cluster.url
    return url


@pytest.fixture(scope="session", autouse=True)
def refused(
    request: pytest.FixtureRequest, _session_cluster: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Refused | None]:
    """Strangers who try to use the session's cluster from the first of these tests on, where one is about them."""
    if not any("a_stranger_who_knows" in item.name for item in request.session.items):
        yield None
        return
    strangers = Refused(_session_cluster.running().url, tmp_path_factory.mktemp("strangers"))
    _session_cluster.guests = [program.pid for program in strangers.programs.values()]
    yield strangers
    strangers.end()
    _session_cluster.guests = []
