"""Warm Spark teams, shared by a module's tests: their start is most of such a test's time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from together import Teams


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    teams = Teams()
    yield teams
    teams.close()
