"""What others on the machine may read: as far as the umask lets them, and nothing that was made of a user's images."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from lockstep.engine.data import open_folder
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.synthetic import write_stand_in
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, run_job
from lockstep.records import RunFolder, make_row
from photo_sets import photo_set
from together import small_job

MASKS = (0o022, 0o077, 0o002)


@pytest.fixture(params=MASKS, ids=oct)
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The permissions of all that is in this folder, by path."""
    return {path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_a_checkpoint_is_its_owners_alone(tmp_path: Path, mask: int) -> None:
    """Seen: 0644 whatever the umask; a model that learnt images by heart tells of them."""
    job, path = small_job(steps=2), tmp_path / "checkpoint.pt"
    for resume in (False, True):
        site = Site(use_case=tiny.case(), checkpoint=str(path), resume=resume)
        run_job(job.with_(steps=job.steps + resume), ThreadGroup.of(1)[0], site)
        assert modes(tmp_path) == {"checkpoint.pt": 0o600}
        path.chmod(0o644)  # as one that was written before


def test_cached_pixels_are_their_owners_alone(tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perhaps of patients, and of a folder that others can't enter."""
    photos = photo_set(tmp_path / "photos")
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    SmallImages.of(open_folder(photos, "train"), 3).enlarged  # noqa: B018  # decodes, and keeps what it decoded
    found = modes(tmp_path / "cache")
    files = {path: mode for path, mode in found.items() if (tmp_path / "cache" / path).is_file()}
    assert files and set(files.values()) == {0o600}, files
    folders = {Path(path).parent.as_posix() for path in files}
    assert {found[folder] for folder in folders} == {0o700}


def test_records_and_stand_ins_follow_the_umask(tmp_path: Path, mask: int) -> None:
    """Seen: the folder of a stand-in is open to all, whatever the umask."""
    with RunFolder(tmp_path / "results", {}, {}) as run:
        run.write_round([make_row(Job(), {}, status="skipped", reason="no such device")], {})
    counts = {split: dict.fromkeys(("fire", "none", "smoke"), 1) for split in ("train", "test")}
    write_stand_in(tmp_path / "stand-in", "fire-smoke", counts)
    for path, mode in modes(tmp_path).items():
        most = 0o777 if (tmp_path / path).is_dir() else 0o666
        assert mode == most & ~mask, path
