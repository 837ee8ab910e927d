"""What the tests of Spark share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def cluster_url(_session_cluster: Any) -> str:
    """Of the master of a cluster that runs, as a user has it from others."""
    url: str = _session_cluster.running().url
    return url
