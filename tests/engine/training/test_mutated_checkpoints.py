"""Checkpoints whose bytes have changed are refused, never read as other parameters, and run nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from examples import MUTATED_CHECKPOINTS
from lockstep.engine.training import checkpoint
from lockstep.engine.training.checkpoint import CheckpointError
from together import alone


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutated") / "c.pt"
    alone(tiny.case(), path)
    return path


@settings(deadline=None, max_examples=MUTATED_CHECKPOINTS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_checkpoints_change_no_parameter(original: Path, tmp_path: Path, data: st.DataObject) -> None:
    content, path = original.read_bytes(), tmp_path / "c.pt"
    where = data.draw(st.integers(0, len(content) - 1))
    gone = data.draw(st.sampled_from([0, 1, 1, 50, len(content)]))
    path.write_bytes(content[:where] + data.draw(st.binary(max_size=4)) + content[where + gone :])
    try:
        found = checkpoint.read(str(path))
    except CheckpointError:
        return
    assert torch.equal(found["parameters"], checkpoint.read(str(original))["parameters"])
