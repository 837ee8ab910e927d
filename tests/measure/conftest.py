"""A machine and photos for grids that are measured without workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from lockstep.measure import grid, round
from made_up_measuring import Clock, Recorder, WarmTeams
from sessions import MACHINE


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    clock = Clock()
    made = Recorder(clock)
    monkeypatch.setattr(round, "measure_job", made)
    monkeypatch.setattr(round.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(grid, "Teams", WarmTeams)
    machine = {"git": {"commit": "abc", "dirty": False}, "machine": MACHINE, "versions": {}}
    monkeypatch.setattr(grid, "capture", lambda repository: dict(machine))
    return made


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Tiny photos: they are looked at once, and nothing is trained on them."""
    for split in ("train", "test"):
        for name in ("fire", "none", "smoke"):
            folder = tmp_path / "data" / "fire-smoke" / split / name
            folder.mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (4, 4)).save(folder / f"{split}{number}.jpg")
    return tmp_path / "data"
