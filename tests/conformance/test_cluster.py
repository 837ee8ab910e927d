"""`lockstep mpi` trains as the engines of a notebook do, goes on where it was killed, and says where it really ran."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from cluster_runs import START_SECONDS, Run, small_case
from lockstep.commands.mpi_job import job_of
from lockstep.commands.mpi_options import MpiOptions
from lockstep.commands.mpi_rank import result_line
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Team
from lockstep.engine.launch.mpi.commands import Placement
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import find_images

pytestmark = [pytest.mark.linux, pytest.mark.serial]
SMALL: dict[str, Any] = {"sync": "shared_memory", "images": 60, "per_worker_batch_size": 3}  # 8 batches of 48 photos


@pytest.fixture(scope="module")
def engines() -> Iterator[Team]:
    with LAUNCHERS["engines"](2) as team:
        yield team


@pytest.fixture(autouse=True)
def _made_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `Run` sees them: in CI, LOCKSTEP_DATA names real ones, and the losses were of other photos."""
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)


def with_engines(
    team: Team, steps: int, path: Path | None = None, draws: nn.Module | None = None
) -> tuple[Job, list[Trace]]:
    """The same job as `lockstep mpi` runs, unbroken. `draws`: dropout that can't be keyed by sample."""
    case = small_case(draws)
    source = find_images(case, None, SMALL["images"])
    job = job_of(MpiOptions(workers=2, steps=steps, **SMALL), Placement()).with_(images=source.train_images)
    assert job.images == 48
    file = str(path) if path else None
    site = Site(data_root=source.root, use_case=case, checkpoint=file, draws=draws is not None)
    return job, team.run(job, site)


def said(**options: Any) -> tuple[str, str]:
    run = Run(2, **(SMALL | options))
    try:
        code, errors = run.end(START_SECONDS)
        assert code == 0, errors
        return run.said("stdout"), errors
    finally:
        run.process.kill()
        run.process.join()
        shutil.rmtree(run.folder)


def test_the_loss_is_that_of_the_engines(engines: Team) -> None:
    last = said(steps=5)[0].splitlines()[-1]
    expected = result_line(*with_engines(engines, 5))
    assert re.search(r"[0-9.]+ images/s, [0-9.]+ s a step, loss [0-9.]{9} \(synthetic images\)$", last)
    assert re.findall(r"loss ([0-9.]+)", last) == re.findall(r"loss ([0-9.]+)", expected)
    assert last.startswith("SimpleBig shared_memory, 2 workers on 1 host, 5 steps: ")


def test_a_killed_run_resumes_from_its_last_epoch_to_the_unbroken_runs_parameters(
    engines: Team, tmp_path: Path
) -> None:
    file = tmp_path / "checkpoint"
    killed = Run(2, **SMALL, steps=100_000, checkpoint=str(file))
    try:
        end = time.monotonic() + START_SECONDS
        while not file.exists() and time.monotonic() < end and killed.process.is_alive():
            time.sleep(0.01)
        killed.ranks()[1].kill()
        assert killed.end()[0] not in (0, None)
    finally:
        killed.process.kill()
        killed.process.join()
        shutil.rmtree(killed.folder)
    reached = checkpoint.read(str(file))["sync"]["step"]
    assert reached > 0 and reached % 8 == 0, "after whole epochs of 8 batches"
    steps = reached + 5 - 1  # and one to warm up
    told, _ = said(steps=steps, checkpoint=str(file), resume=True)
    assert "2 workers on 1 host, 5 steps: " in told
    with_engines(engines, steps, tmp_path / "unbroken")
    resumed, unbroken = (checkpoint.read(str(path))["parameters"] for path in (file, tmp_path / "unbroken"))
    assert torch.equal(resumed, unbroken)


def test_the_hosts_are_those_that_mpi_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody named any; the two ranks are on nodes of their own."""
    monkeypatch.setenv("TEST_TWO_HOSTS", "1")
    told, _ = said(steps=2, sync="allreduce")
    assert re.search(r"^rank 0: node host0 0, cores \[\d+\]\nrank 1: node host1 1, cores \[\d+\]$", told, re.MULTILINE)
    assert "SimpleBig allreduce, 2 workers on 2 hosts, 2 steps: " in told


def test_a_resumed_run_draws_what_the_unbroken_one_draws(
    engines: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout that is no module drew from generators that nothing seeded, and nobody was told."""
    monkeypatch.setenv("TEST_DRAWS", "yes")
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    with_engines(engines, 10, unbroken, tiny.Dropping())
    _, errors = said(steps=7, checkpoint=str(broken))
    assert errors.count("draws random numbers in training") == 1, "rank 0 tells it, before it trains"
    before = checkpoint.read(str(broken))
    said(steps=10, checkpoint=str(broken), resume=True)
    expected, got = (checkpoint.read(str(path)) for path in (unbroken, broken))
    assert before["sync"]["step"] < got["sync"]["step"] == expected["sync"]["step"]
    assert torch.equal(got["parameters"], expected["parameters"])
