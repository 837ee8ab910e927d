"""Checkpoints whose bytes have changed are refused, never read as other parameters, and run nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from examples import MUTATED_CHECKPOINTS
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.training import checkpoint
from lockstep.engine.training.checkpoint import CheckpointError
from lockstep.engine.training.checkpoint_file import packed_content
from lockstep.engine.training.loop import Site, run_job
from together import alone, small_job


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


WRONG = {
    "job": [3, None, [1], {1: 2}],
    "model": [3, {}, [3], [("a", "trained", 3, "float32")], [("a", "trained", (-1,), "float32")], [("a", "trained")]],
    "optimiser": [3, {}, {"class": 3}, {"lr": "0.1"}],
    "parts": [3, {"workers": "2"}, {"cores": 2}],
    "parameters": [3, None, torch.zeros(2, 2), torch.zeros(3, dtype=torch.int64)],
    "buffers": [[0.5], torch.zeros(())],
    "others": [3, {"a": 3}],
    "cuts": [3, ["a"], [-1]],
    "sync": [3, None, {"step": "2"}, {"step": -1}, {"step": True}],
    "epochs": [3, [3]],
    "data": [3],
}
"""What the content of a checkpoint is not."""


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_right_checksum_over_a_wrong_structure_is_refused(
    original: Path, tmp_path: Path, name: str, value: object
) -> None:
    """Seen: TypeError, for a job that was 3."""
    path, content = tmp_path / "c.pt", checkpoint.read(str(original))
    path.write_bytes(b"".join(packed_content(content | {name: value})))
    for read in (checkpoint.read, lambda place: checkpoint.check_resumable(place, small_job())):
        with pytest.raises(CheckpointError, match=rf"c\.pt can't be read: its {name} is .*, not .*; name another file"):
            read(str(path))


def test_a_state_that_the_sync_does_not_know_is_refused(original: Path, tmp_path: Path) -> None:
    """Seen: KeyError."""
    path, content = tmp_path / "c.pt", checkpoint.read(str(original))
    for state in ({"step": 3}, {"step": 3, "optimiser": 3}, {"step": 3, "optimiser": {"state": 3}}, {}):
        path.write_bytes(b"".join(packed_content(content | {"sync": state})))
        with pytest.raises(CheckpointError, match=r"c\.pt: its state is not that of local; remove the file: "):
            run_job(small_job(), ThreadGroup.of(1)[0], Site(use_case=tiny.case(), checkpoint=str(path), resume=True))
