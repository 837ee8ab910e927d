"""A run's state in one file: it goes on where it was, and a file of something else is refused."""

from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tiny
from lockstep.engine.files import WriteError
from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.replica import Replica
from lockstep.engine.sync import Plan
from lockstep.engine.training import checkpoint
from lockstep.engine.training.finite import NotFiniteError
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.training.replicas import replica_for
from lockstep.engine.usecases import UseCase
from steps import on_ranks
from together import held_bytes


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
    message = r"c\.pt can't be read: it is not one of Lockstep's, or of an earlier format; name another"
    with pytest.raises(checkpoint.CheckpointError, match=message):
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
    content = checkpoint.read(str(tmp_path / "c.pt"))
    names = ["buffers", "cuts", "data", "epochs", "job", "model", "optimiser", "others", "parameters", "parts", "sync"]
    assert sorted(content) == names
    assert content["sync"]["step"] == 1
    assert b"pickle" not in (tmp_path / "c.pt").read_bytes() and not (tmp_path / "c.pt").read_bytes().startswith(b"PK")


# --- what training reads besides parameters ---


class Counting(nn.Module):
    """Its steps decide on its output, and are counted in whole numbers; one buffer is of float64, one is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny.net()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("level", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("last", torch.zeros(3))
        self.register_buffer("kept", None)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        if self.training:
            self.seen += 1
            self.level.add_(1.0 / 3.0)
            self.last = 0.9 * self.last + output.detach().mean(0)
            self.kept = self.seen.clone()
        return output / (1.0 + 0.1 * self.seen) + self.last


def averaging_net() -> nn.Module:
    """Without a momentum the number of batches decides how much each of them counts."""
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, momentum=None), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 5 * 4, 3))
    )


@pytest.mark.parametrize("sync", ["shared_memory", "local_sgd"])
@pytest.mark.parametrize("model", [Counting, averaging_net])
@pytest.mark.parametrize("workers", [1, 2])
def test_resume_is_the_unbroken_run_where_buffers_of_any_type_matter(
    tmp_path: Path, workers: int, model: object, sync: str
) -> None:
    """Seen: whole numbers began anew, and parameters differed by 0.04, running statistics by 0.26."""
    whole, parts, case = tmp_path / "whole", tmp_path / "parts", tiny.case(model=model)
    train(job(workers, sync), whole, case, checkpoint_every_steps=3)
    train(job(workers, sync, steps=3), parts, case)
    train(job(workers, sync), parts, case, resume=True)
    unbroken, resumed = (checkpoint.read(str(path)) for path in (whole, parts))
    for name in ("parameters", "buffers"):
        assert torch.equal(resumed[name], unbroken[name])
    expected = {"seen": torch.int64, "level": torch.float64, "kept": torch.int64}
    names = expected if model is Counting else {"1.num_batches_tracked": torch.int64}
    assert {name: each.dtype for name, each in unbroken["others"].items()} == names
    for name, each in unbroken["others"].items():
        assert torch.equal(resumed["others"][name], each) and float(each.max()) in (6.0, pytest.approx(2.0))
    assert unbroken["buffers"].abs().max() > 0, "also of a buffer that the model replaces in every step"


def test_a_buffer_that_changes_its_shape_is_refused(tmp_path: Path) -> None:
    class Growing(Counting):
        def forward(self, x: Tensor) -> Tensor:
            output = super().forward(x)
            self.last = torch.zeros(7)
            return output

    with pytest.raises(ValueError, match=r"Growing has replaced its buffer 'last', float32 \[3\], by \[7\]; keep its"):
        train(job(steps=1), tmp_path / "c.pt", tiny.case(model=Growing))


_number = itertools.count()


def frozen_net() -> nn.Module:
    """The first layer is not trained, and another one in every rank: nothing that torch's seed decides."""
    made = tiny.net()
    first = made[0]
    first.requires_grad_(False)
    nn.init.constant_(first.weight, 0.1 * (1 + next(_number)))
    return made


@pytest.mark.parametrize("sync", ["shared_memory", "allreduce", "local_sgd", "parameter_server"])
def test_frozen_parameters_are_the_same_on_every_rank_and_are_kept(tmp_path: Path, sync: str) -> None:
    """Seen: an accuracy of 0.26 was reported for a model that came back with 0.09."""
    options = {"servers": 1, "policy": "wait_for_all"} if sync == "parameter_server" else {}
    this, site = job(2, sync, **options), Site(use_case=tiny.case(model=frozen_net), checkpoint=str(tmp_path / "c.pt"))
    made: dict[int, Replica] = {}

    def make(case: UseCase, job: Job, group: Group) -> Replica:
        made[group.rank] = replica_for(case, job, group)
        return made[group.rank]

    def run(this: Job, site: Site) -> dict[str, Tensor]:
        with ThreadPoolExecutor(this.ranks) as pool:
            calls = [pool.submit(run_job, this, group, site, make) for group in ThreadGroup.of(this.ranks)]
            for call in calls:
                call.result(60)
        return checkpoint.read(str(tmp_path / "c.pt"))["others"]

    kept = run(this, site)
    assert sorted(kept) == ["0.bias", "0.weight"]
    resumed = run(this.with_(steps=8), dataclasses.replace(site, resume=True))
    for name, value in kept.items():
        assert torch.equal(resumed[name], value)
        assert all(torch.equal(each.others()[name], value) for each in made.values())


# --- the file ---


def many_layers() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(126, 8), *(nn.Linear(8, 8) for _ in range(60)), nn.Linear(8, 3))


ADAM = functools.partial(torch.optim.Adam, lr=0.01)


@pytest.mark.parametrize(
    ("workers", "sync", "model", "optimiser"),
    [
        (2, "shared_memory", tiny.net, tiny.SGD),
        (2, "allreduce", tiny.net, tiny.SGD),
        (1, "local", many_layers, ADAM),
        (2, "gossip", many_layers, ADAM),
    ],
)
def test_a_file_is_as_large_as_what_it_holds(
    tmp_path: Path, workers: int, sync: str, model: object, optimiser: object
) -> None:
    """Seen: a file had 1.5 times its content. Workers with memory in common are in the conformance suite."""
    path = tmp_path / "c.pt"
    train(job(workers, sync, steps=2), path, tiny.case(model=model, optimiser=optimiser))
    assert path.stat().st_size <= 1.02 * held_bytes(checkpoint.read(str(path))) + 2**16


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two workers, to be damaged in copies."""
    path = tmp_path_factory.mktemp("written") / "c.pt"
    train(job(2, steps=2), path)
    return path


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_file_is_refused(written: Path, data: st.DataObject) -> None:
    """Seen: a flipped bit made 5e36 of a weight of 0.015, and then NaN."""
    before = written.read_bytes()
    place = data.draw(st.integers(0, len(before) - 1))
    mutated = data.draw(
        st.one_of(
            st.integers(0, 7).map(lambda bit: before[:place] + bytes([before[place] ^ 1 << bit]) + before[place + 1 :]),
            st.just(before[:place]),
            st.binary(min_size=1, max_size=40).map(lambda more: before[:place] + more + before[place:]),
            st.binary(max_size=40).map(lambda start: start + before[place:]),
        )
    )
    path = written.with_name("mutated.pt")
    path.write_bytes(mutated)
    if mutated == before:
        checkpoint.read(str(path))
        return
    with pytest.raises(
        checkpoint.CheckpointError, match=r"mutated\.pt can't be read: .*; name another file, or remove"
    ):
        checkpoint.read(str(path))


def test_a_file_of_another_format_says_so(written: Path, tmp_path: Path) -> None:
    (tmp_path / "c.pt").write_bytes(written.read_bytes().replace(b"format 2", b"format 3", 1))
    with pytest.raises(
        checkpoint.CheckpointError, match="was written in format '3', and this Lockstep reads format '2'"
    ):
        checkpoint.read(str(tmp_path / "c.pt"))


def other_net() -> nn.Module:
    """As many parameters as `tiny.net`, in the same places of the flat vector, as another model."""
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 5 * 4, 7), nn.ReLU(), nn.Linear(7, 3))
    )


def frozen_bias() -> nn.Module:
    made = tiny.net()
    made[6].bias.requires_grad_(False)
    return made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": other_net}, r"'3.weight' is missing there, trained, float32 \[7, 100\] here"),
        ({"model": frozen_bias}, r"'6.bias' is trained, float32 \[3\] there, frozen, float32 \[3\] here"),
        ({"optimiser": ADAM}, r"an optimiser of class=torch.optim.sgd.SGD, this run's has class=torch.optim.adam.Adam"),
        ({"optimiser": functools.partial(tiny.SGD, lr=0.5)}, "an optimiser of lr=0.05, this run's has lr=0.5; resume"),
    ],
)
def test_another_model_or_optimiser_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """Seen: a file of another model with as many parameters was loaded, and one of SGD ended in KeyError: 'step'."""
    path = tmp_path / "c.pt"
    train(job(steps=1), path)
    with pytest.raises(checkpoint.CheckpointError, match=message):
        train(job(), path, tiny.case(**changes), resume=True)


def test_how_an_optimiser_computes_may_change(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    train(job(steps=3), path)
    train(job(), path, tiny.case(optimiser=functools.partial(tiny.SGD, fused=False)), resume=True)
    train(job(), tmp_path / "unbroken.pt")
    assert (parameters(path) - parameters(tmp_path / "unbroken.pt")).abs().max() < 3e-7


def test_only_as_many_workers_as_the_state_is_divided_among(tmp_path: Path) -> None:
    """It can be told before any worker starts."""
    for sync, options, parts in (
        ("local_sgd", {}, {"workers": 2}),
        ("shared_memory", {}, {"slices": 2}),
        ("allreduce", {}, {}),
        ("allreduce", {"compression": "topk", "density": 0.1}, {"workers": 2}),
        ("parameter_server", {"policy": "wait_for_all", "shards": 2}, {"shards": 2}),
    ):
        path = tmp_path / f"{sync}.pt"
        train(job(2, sync, steps=1, **options), path)
        assert checkpoint.read(str(path))["parts"] == parts
        checkpoint.check_resumable(str(path), job(2, sync, **options))
        if "workers" in parts or "slices" in parts:
            with pytest.raises(checkpoint.CheckpointError, match=r"resume it with workers=2.*, not 3"):
                checkpoint.check_resumable(str(path), job(3, sync, **options))
        else:
            checkpoint.check_resumable(str(path), job(3, sync, **options))


# --- numbers that are none ---


def poisoned(sample: int = 5) -> tiny.Arrays:
    data = tiny.arrays()
    data.images[sample] = np.nan
    return data


def where_is(sample: int, workers: int) -> tuple[int, int]:
    """The first step that trains on `sample`, and the rank that has it."""
    plan = Plan(tiny.SAMPLES, 8, 6)
    return next(
        (step, rank)
        for step in range(6)
        for rank in range(workers)
        if any(sample in share.sample_ids for share in plan.shares(step, rank, workers))
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_no_number_ends_the_run_and_says_where(tmp_path: Path, workers: int) -> None:
    step, rank = 2, workers - 1
    sample = next(sample for sample in range(tiny.SAMPLES) if where_is(sample, workers) == (step, rank))
    where = rf"in step {step} on rank {rank} \(images: sample {sample} is nan"
    with pytest.raises(NotFiniteError, match=rf"the loss is nan {where} at \[.+\]\): lower the learning"):
        alone_or_together(workers, tiny.case(train=poisoned(sample)), tmp_path / "c.pt")
    assert checkpoint.read(str(tmp_path / "c.pt"))["sync"]["step"] == step, "the last one before it"


def alone_or_together(workers: int, case: UseCase, path: Path, **site: object) -> list[Trace]:
    """As `train`, with a checkpoint after every step; raises what the rank raised that failed first."""
    where = Site(use_case=case, checkpoint=str(path), checkpoint_every_steps=1, **site)  # type: ignore[arg-type]
    return on_ranks(workers, lambda group: run_job(job(workers), group, where))


def test_training_can_go_on_all_the_same(tmp_path: Path) -> None:
    step, rank = where_is(5, 2)
    traces = alone_or_together(2, tiny.case(train=poisoned()), tmp_path / "c.pt", on_nan="warn")
    assert len(traces[0].steps) == 6
    where = f"in step {step} on rank {rank} (images: sample 5 is nan"
    assert any(f"the loss is nan {where}" in told and "the first of" in told for told in traces[rank].cautions)


def test_parameters_that_are_no_numbers_do_not_replace_a_checkpoint(tmp_path: Path) -> None:
    """The loss before the step that spoils them is finite."""

    def steep(output: Tensor, labels: Tensor) -> Tensor:
        return 1000 * nn.functional.cross_entropy(output, labels, reduction="none")

    case = tiny.case(loss=steep, optimiser=functools.partial(torch.optim.SGD, lr=3e38))
    with pytest.raises(NotFiniteError, match="a parameter is NaN or infinite after step 0 on rank 0"):
        train(job(), tmp_path / "c.pt", case, checkpoint_every_steps=1)
    assert list(tmp_path.iterdir()) == []
