"""Scored on held-out training images alone: whoever chooses by validation must not see a test image before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.data.sources import DataError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, run_job
from lockstep.engine.usecases import UseCase
from photo_sets import photo_set

SMALL: dict[str, Any] = {"experiment": "pool", "use_case": "Pneumonia", "epochs": 1, "global_batch_size": 8}
SMALL |= {"per_worker_batch_size": 8}


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The splits that were opened; the test split refuses."""
    opened: list[str] = []
    whole = UseCase.open

    def guard(self: UseCase, split: str, *args: Any, **options: Any) -> Any:
        opened.append(split)
        if split == "test":
            raise DataError("the test folder was opened")
        return whole(self, split, *args, **options)

    monkeypatch.setattr(UseCase, "open", guard)
    return opened


def test_no_test_image_is_opened(guarded: list[str], tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "pneumonia", 10, 2)
    found = run_job(Job(**SMALL, scored_on="held_out"), ThreadGroup.of(1)[0], Site(data_root=str(photos.parent)))
    assert guarded == ["train", "train"], "kept and held out"
    assert {"validation_accuracy", "validation_loss"} <= set(found.scores)
    assert not [name for name in found.scores if name.startswith("test")]


def test_the_guard_sees_a_test_image(guarded: list[str], tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "pneumonia", 10, 2)
    with pytest.raises(DataError, match="the test folder was opened"):
        run_job(Job(**SMALL, scored_on="validation"), ThreadGroup.of(1)[0], Site(data_root=str(photos.parent)))
    assert "test" in guarded
