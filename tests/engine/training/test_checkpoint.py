"""A run's state in one file: it goes on where it was, and a file of something else is refused."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import tiny
from lockstep.engine.files import WriteError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.usecases import UseCase


def job(workers: int = 1, sync: str = "shared_memory", **changes: object) -> Job:
    values: dict[str, object] = {"global_batch_size": 8, "steps": 6, "warmup_steps": 0, "strategy": "own"}
    return Job(use_case="own", sync=sync, workers=workers, **(values | changes))  # type: ignore[arg-type]


def train(this: Job, path: Path | None, case: UseCase | None = None, **site: object) -> list[Trace]:
    """On as many threads of this process as the job has workers."""
    where = Site(use_case=case or tiny.case(), checkpoint=str(path) if path else None, **site)  # type: ignore[arg-type]
    with ThreadPoolExecutor(this.workers) as pool:
        calls = [pool.submit(run_job, this, group, where) for group in ThreadGroup.of(this.workers)]
        return [call.result(60) for call in calls]


def parameters(path: Path) -> torch.Tensor:
    return checkpoint.read(str(path))["parameters"]


def test_a_finished_run_resumed_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    train(job(2), path)
    before = parameters(path)
    traces = train(job(2), path, resume=True)
    assert [trace.steps for trace in traces] == [[], []]
    assert torch.equal(parameters(path), before)
    shorter = train(job(2, steps=3), path, resume=True)
    assert [trace.steps for trace in shorter] == [[], []], "a plan that ends before the checkpoint"
    assert torch.equal(parameters(path), before)


def test_it_is_written_as_often_as_asked_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    save = checkpoint.save

    def note(path: str, *others: object) -> None:
        save(path, *others)  # type: ignore[arg-type]
        written.append(checkpoint.read(path)["sync"]["step"])

    monkeypatch.setattr(checkpoint, "save", note)
    for every, expected in ((0, [6]), (2, [2, 4, 6]), (4, [4, 6]), (100, [6])):
        written.clear()
        train(job(), tmp_path / f"{every}.pt", checkpoint_every_steps=every)
        assert written == expected
    assert torch.equal(parameters(tmp_path / "0.pt"), parameters(tmp_path / "4.pt"))


def test_a_momentum_in_slices_needs_as_many_workers(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    train(job(2, steps=3), path)
    with pytest.raises(checkpoint.CheckpointError, match=r"c\.pt: this checkpoint holds .* resume it with workers=2"):
        train(job(1), path, resume=True)


def test_all_reduce_may_change_the_workers(tmp_path: Path) -> None:
    """Every rank holds the whole optimiser state."""
    train(job(2, "allreduce", steps=3), tmp_path / "c.pt")
    train(job(3, "allreduce"), tmp_path / "c.pt", resume=True)
    train(job(1, "allreduce"), tmp_path / "alone.pt")
    assert (parameters(tmp_path / "c.pt") - parameters(tmp_path / "alone.pt")).abs().max() < 3e-7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_batch_size": 4}, "was written with global_batch_size=8, this run has 4"),
        ({"precision": "bfloat16"}, "was written with precision='float32', this run has 'bfloat16'"),
        ({"sync": "allreduce"}, "was written with sync='shared_memory', this run has 'allreduce'"),
    ],
)
def test_another_run_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = tmp_path / "c.pt"
    train(job(steps=1), path)
    before = path.read_bytes()
    with pytest.raises(checkpoint.CheckpointError, match=message):
        train(job(**changes), path, resume=True)  # type: ignore[arg-type]
    assert path.read_bytes() == before


def test_images_go_on_as_they_were_prepared(tmp_path: Path) -> None:
    train(job(steps=1), tmp_path / "c.pt")
    for changes in ({"standardise": True}, {"augmentation": "affine"}):
        with pytest.raises(checkpoint.CheckpointError, match=f"was written with {next(iter(changes))}="):
            checkpoint.read_for(str(tmp_path / "c.pt"), job(steps=1, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", ["topk", "terngrad"])
def test_compression_goes_on_with_the_same_bucket_only(tmp_path: Path, compression: str) -> None:
    """TernGrad draws and top-k chooses per bucket: another one would train otherwise than the unbroken run."""
    path = tmp_path / "c.pt"
    options = {"compression": compression, "density": 0.1 if compression == "topk" else 1.0}
    train(job(2, "allreduce", steps=3, bucket="layer", **options), path)
    before = path.read_bytes()
    with pytest.raises(checkpoint.CheckpointError, match="was written with bucket='layer', this run has 'whole'"):
        train(job(2, "allreduce", **options), path, resume=True)
    assert path.read_bytes() == before
    train(job(2, "allreduce", bucket="layer", **options), path, resume=True)
    train(job(2, "allreduce", bucket="layer", **options), tmp_path / "unbroken.pt")
    assert torch.equal(parameters(path), parameters(tmp_path / "unbroken.pt"))


def test_plain_all_reduce_may_change_the_bucket(tmp_path: Path) -> None:
    train(job(2, "allreduce", steps=3), tmp_path / "c.pt")
    train(job(2, "allreduce", bucket="layer"), tmp_path / "c.pt", resume=True)
    train(job(2, "allreduce"), tmp_path / "unbroken.pt")
    assert (parameters(tmp_path / "c.pt") - parameters(tmp_path / "unbroken.pt")).abs().max() < 3e-7


def test_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    train(job(steps=1), path)
    with pytest.raises(checkpoint.CheckpointError, match="holds 871 parameters, the model has 453; it was written for"):
        train(job(), path, tiny.case(model=tiny.normalised_net), resume=True)


@pytest.mark.parametrize("content", [{"weights": torch.zeros(3)}, [1, 2], torch.zeros(3)])
def test_a_torch_file_of_something_else_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "c.pt")
    with pytest.raises(checkpoint.CheckpointError, match=r"c\.pt is not one of Lockstep's"):
        train(job(), tmp_path / "c.pt", resume=True)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.pt"
    train(job(steps=2), path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"c\.pt: the disk is full: free some space"):
        train(job(), path, resume=True)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.pt"]


def test_plain_data_only(tmp_path: Path) -> None:
    train(job(steps=1), tmp_path / "c.pt")
    content = torch.load(tmp_path / "c.pt", weights_only=True)
    assert sorted(content) == ["buffers", "cuts", "job", "parameters", "sync"]
    assert content["sync"]["step"] == 1
