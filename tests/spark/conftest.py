"""What the tests of Spark share."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.engine.launch.spark.cluster import SECRET_VARIABLE


@pytest.fixture
def cluster_url(_session_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the master of a cluster that runs, as a user has it from others, with its secret in the environment."""
    cluster = _session_cluster.running()
    monkeypatch.setenv(SECRET_VARIABLE, cluster.secret)
    url: str = cluster.url
    return url
