"""What the conformance tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from together import Teams


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    teams = Teams()
    yield teams
    teams.close()
