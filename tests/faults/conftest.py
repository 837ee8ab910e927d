"""What the tests of failures share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from lockstep.engine.launch import failure_detector
from mpi_files import left_since, library_files


@pytest.fixture(autouse=True)
def _frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped rank is found as it always is, in two checks in a row; of some dozens each would last a second."""
    monkeypatch.setattr(failure_detector, "_CHECK_SECONDS", 0.1)


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of MPI's in /dev/shm or /tmp, none of our folders; other jobs here may come and go meanwhile."""
    folder = tempfile.mkdtemp(prefix="faults-")
    monkeypatch.setattr(tempfile, "tempdir", folder)
    before = library_files()
    yield
    assert os.listdir(folder) == []
    os.rmdir(folder)
    assert left_since(before) == set()
