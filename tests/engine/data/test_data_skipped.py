"""What can't be read is left out of a training, counted and warned about; with `strict` nothing runs."""

from __future__ import annotations

import dataclasses
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import lockstep
import tiny
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.synthetic import write_stand_in
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.usecases import USE_CASES, UseCase, find_images
from lockstep.measure import cell, grid
from lockstep.measure.teams import Teams
from lockstep.records import read_records, read_run
from photo_fixtures import cache as cache
from photo_fixtures import decoded as decoded
from photo_fixtures import photos as photos
from photo_sets import photo_set, text, truncate


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


# --- find_images, run_grid, train ---


def test_find_images_leaves_out_counts_and_warns_once(photos: Path) -> None:
    truncate(photos / "train/a/03.jpg")
    text(photos / "test/b/04.jpg")
    case = dataclasses.replace(USE_CASES["SimpleBig"], classes=2)
    with pytest.warns(UserWarning) as told:
        source = find_images(case, str(photos.parent))
    assert source.skipped == ("train/a/03.jpg", "test/b/04.jpg")
    assert source.train_images == 39
    (one,) = told
    assert "2 of 80 photos" in str(one.message) and "'train/a/03.jpg' (image file is trunc" in str(one.message)
    assert one.filename == __file__
    some = case.open("train", str(photos.parent), 38, source.skipped)
    assert len(some) == 38
    assert not any("a/03.jpg" in some.path(i) for i in range(38)), "left out before some are drawn"  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="strict allows none"):
        find_images(case, str(photos.parent), strict=True)


def test_the_stand_in_is_not_looked_at(tmp_path: Path, decoded: list[str]) -> None:
    counts = {"fire": 2, "none": 2, "smoke": 2}
    root = write_stand_in(tmp_path / "made", "fire-smoke", {"train": counts, "test": counts})
    source = find_images(USE_CASES["SimpleBig"], str(root))
    assert (source.kind, source.skipped, source.train_images) == ("synthetic", (), 6)
    assert decoded == []


class TeamHere:
    """A team whose ranks are threads of this process."""

    pids = (os.getpid(),)
    start_seconds = 0.0
    repeated = ""

    def start(self) -> None:
        pass

    def run(self, job: Job, site: Site, function: object) -> list[Trace]:
        with ThreadPoolExecutor(job.workers) as pool:
            calls = [pool.submit(run_job, job, group, site) for group in ThreadGroup.of(job.workers)]
            return [call.result(60) for call in calls]


class TeamsHere(Teams):
    def team(self, job: Job) -> Any:
        return TeamHere()


def few_pixels() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(56), nn.Flatten(), nn.Linear(48, 2))


@pytest.mark.parametrize("strict", [False, True])
def test_a_grid_trains_without_them_and_says_how_many(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    truncate(photos / "train/a/03.jpg")
    a_folder(photos / "test/b/04.jpg")
    case = UseCase("SimpleBig", few_pixels, tiny.SGD, dataset="fire-smoke", images=6003)
    monkeypatch.setitem(USE_CASES, "SimpleBig", case)
    monkeypatch.setattr(grid, "Teams", TeamsHere)
    jobs = [
        Job.of("threads", workers=2, per_worker_batch_size=20, steps=3, warmup_steps=0),
        Job.of("sequential", device="cuda"),
    ]
    where: dict[str, Any] = {"notebook": "02", "results": tmp_path / "out", "rounds": 1, "parameters": {}}
    if strict:
        with pytest.raises(DataError, match="strict allows none"):
            grid.run_grid(jobs, **where, data_dir=str(photos.parent), strict=True)
        assert not (tmp_path / "out").exists()
        return
    monkeypatch.setattr(cell, "missing", lambda job: "no CUDA device" if job.device == "cuda" else None)
    with pytest.warns(UserWarning, match="2 of 80 photos"):
        folder = grid.run_grid(jobs, **where, data_dir=str(photos.parent))
    frame = read_records(folder)
    assert frame["status"].tolist() == ["ok", "skipped"], frame["reason"].tolist()
    assert frame["skipped_images"].tolist()[0] == 2
    assert frame["skipped_images"].isna().tolist() == [False, True]
    assert frame["images"].tolist() == [39, 39]
    assert read_run(folder)["data"]["SimpleBig"]["skipped_images"] == 2


@pytest.mark.slow
def test_train_leaves_them_out_and_warns_at_the_callers_line(photos: Path) -> None:
    truncate(photos / "train/a/03.jpg")
    text(photos / "test/b/04.jpg")
    settings: dict[str, Any] = {"launcher": "threads", "workers": 2, "global_batch_size": 20, "optimiser": tiny.SGD}
    with pytest.raises(DataError, match="2 of 80 photos can't be read, and strict allows none"):
        lockstep.train(few_pixels, photos, strict=True, **settings)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trained = lockstep.train(few_pixels, photos, **settings)
    about = [one for one in told if "can't be read" in str(one.message)]
    assert [one.filename for one in about] == [__file__]
    assert sum(step["images"] for trace in trained.traces for step in trace.steps) == 39
    assert 0 <= trained.scores["test_accuracy"] <= 1


def test_train_looks_only_at_what_it_uses(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(Exception):
        pass

    def start(self: object) -> None:
        raise Started

    monkeypatch.setattr("lockstep.engine.launch.team.Team.start", start)
    for number in range(10):
        text(photos / f"test/a/{number:02d}.jpg")
    with pytest.raises(DataError, match="10 of 40 photos in test"):
        lockstep.train(few_pixels, photos, workers=1)
    other = photo_set(tmp_path / "other", train=1, test=2)
    with pytest.raises(Started):
        lockstep.train(few_pixels, photos, test=other, workers=1)
