"""`lockstep.train` on a reader's own model and data, and the launchers behind it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn

import lockstep
import tiny
from here import Here, Started, refuse_to_start
from lockstep.api import Trained
from lockstep.engine.cores import cores_of_rank, usable_cores
from lockstep.engine.data.errors import DataError
from lockstep.engine.job import JobError
from lockstep.engine.launch import LAUNCHERS, Launcher, WorkerFailed
from lockstep.engine.launch.environment import EnvironmentProfileError, worker_environment
from lockstep.engine.models.losses import cross_entropy
from lockstep.engine.training.checkpoint import CheckpointError
from lockstep.engine.training.finite import NotFiniteError

WHOLE, HELD_BACK = tiny.arrays(), tiny.arrays(11)
DATA = (WHOLE.images, WHOLE.labels)
TEST = (torch.from_numpy(HELD_BACK.images), torch.from_numpy(HELD_BACK.labels))
SETTINGS: dict[str, Any] = {"launcher": "threads", "global_batch_size": 8, "optimiser": tiny.SGD}

train = functools.partial(lockstep.train, tiny.net, DATA, **SETTINGS)


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused must be refused before anything starts."""
    monkeypatch.setattr("lockstep.engine.launch.team.Team.start", refuse_to_start)


NINE_STAGES = {"model_parallel": "pipeline", "launcher": "processes", "workers": 9, "global_batch_size": 36}


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sync": "shared"}, "sync='shared' does not exist; there are: local, allreduce, shared_memory, local_sgd"),
        ({"sync": "ddp"}, "sync='ddp' needs a process per worker, not launcher='threads'; give launcher='processes'"),
        ({"resume": True}, "resume=True needs the file of an earlier run, and checkpoint=None is none"),
        ({"resume": True, "checkpoint": "no/such.pt"}, "checkpoint='no/such.pt': its folder does not exist; make it"),
        ({"launcher": "slurm"}, "launcher='slurm' does not exist; there are: threads, processes"),
        ({"sync": "local", "workers": 2}, "sync='local' can't train 2 workers together; give workers=1"),
        ({"epochs": 0}, "epochs=0 is not possible; give a whole number of at least 1"),
        ({"epochs": 1.5}, "epochs=1.5 is not possible"),
        ({"epochs": True}, "epochs=True is not possible"),
        ({"workers": 0}, "workers=0 is not possible; give a whole number of at least 1"),
        ({"workers": -1}, "workers=-1 is not possible"),
        ({"workers": True}, "workers=True is not possible"),
        ({"workers": 1.5}, "workers=1.5 is not possible"),
        ({"threads_per_worker": 0}, "threads_per_worker=0 is not possible"),
        ({"global_batch_size": 0}, "global_batch_size=0 is not possible"),
        ({"precision": "float16"}, "precision='float16' does not exist; there are: float32, bfloat16"),
        ({"seed": -1}, "seed=-1 is not possible"),
        ({"on_nan": "hope"}, "on_nan='hope' does not exist; there are: stop, warn"),
        ({"buckets": "layer"}, "unknown option(s) ['buckets']; there are: bucket, overlap, transport, exchange_every"),
        ({"bucket": "layer"}, "bucket='layer' does nothing with sync='shared_memory'; only allreduce reads it"),
        ({"model_parallel": "pipeline", "stages": "2"}, "stages='2' is not possible"),
        ({"model_parallel": "pipeline", "stages_per_rank": 0}, "stages_per_rank=0 is not possible"),
        (NINE_STAGES, "stages=9 for a model with"),
        ({"sync": "parameter_server", "servers": 2}, "shards=1 on servers=2: each server has one"),
    ],
)
def test_what_is_impossible_is_refused_before_anything_starts(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        train(**wrong)
    assert message in str(caught.value)


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((WHOLE.images, WHOLE.labels[:-1]), r"labels has shape \[36\] for 37 images"),
        ((WHOLE.images.transpose(0, 2, 3, 1), WHOLE.labels), "looks like channels last"),
        ("no/such/folder", "no/such"),
    ],
)
def test_data_that_does_not_fit(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        lockstep.train(tiny.net, data, **SETTINGS)


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": len(usable_cores()) + 1}, ": workers share cores"),
        ({"workers": 38}, "38 workers for 37 training images: some have nothing to train on"),
        ({"workers": 3, "global_batch_size": 8}, "global batch 8 is not divisible by 3 workers"),
        ({"sync": "local_sgd", "exchange_every": 5}, "not synchronous SGD: other parameters than one worker"),
        ({"sync": "gossip", "workers": 4}, "not synchronous SGD"),
        ({"sync": "allreduce", "compression": "topk", "density": 0.1}, "not synchronous SGD"),
    ],
)
def test_what_is_allowed_is_warned_about_once(changes: dict[str, Any], message: str) -> None:
    with warnings.catch_warnings(record=True) as told, pytest.raises(Started):
        warnings.simplefilter("always")
        train(**changes)
    texts = [str(one.message) for one in told]
    assert sum(message in text for text in texts) == 1
    assert sum("cores" in text for text in texts) <= 1, "the launcher need not say it again"
    assert {one.filename for one in told} == {__file__}, "the warning points at the caller's line"


# --- models that can't be trained or scored: told before anything starts ---


class Returning(nn.Module):
    """What `wrap` makes of the output, in training and, if `always`, in evaluation too."""

    def __init__(self, wrap: Any, always: bool = True) -> None:
        super().__init__()
        self.inner, self.wrap, self.always = tiny.net(), wrap, always

    def forward(self, x: Tensor) -> Any:
        output = self.inner(x)
        return self.wrap(output) if self.always or self.training else output


def pair(output: Tensor) -> tuple[Tensor, Tensor]:
    return output, output


def scores(output: Tensor) -> dict[str, Tensor]:
    return {"scores": output}


def of_pair(output: Any, labels: Tensor) -> Tensor:
    return cross_entropy(output[0] if isinstance(output, tuple) else output, labels)


def of_scores(output: Any, labels: Tensor) -> Tensor:
    return cross_entropy(output["scores"], labels)


def mean_loss(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, labels)


def returning(*arguments: Any) -> Any:
    return functools.partial(Returning, *arguments)


def in_type(dtype: torch.dtype) -> Any:
    return lambda: tiny.net().to(dtype)


def with_dropout2d() -> nn.Module:
    return nn.Sequential(nn.Dropout2d(0.3), tiny.net())


FLOAT32 = "parameters are trained in float32; give the model as float32 (model.float()), with precision='bfloat16'"


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (in_type(torch.float64), {}, f"parameter '0.weight' is float64, and {FLOAT32}"),
        (in_type(torch.bfloat16), {}, f"parameter '0.weight' is bfloat16, and {FLOAT32}"),
        (in_type(torch.float16), {"precision": "bfloat16"}, f"parameter '0.weight' is float16, and {FLOAT32}"),
        (returning(scores), {}, "a dict of 1, which the loss can't take (TypeError: no logits in a dict of scores)"),
        (returning(scores), {"loss": of_scores, "test": TEST}, "in evaluation mode the model returns a dict of 1 for"),
        (tiny.net, {"loss": mean_loss}, "the loss gives a tensor [] for 2 images, whose output is a"),
        (with_dropout2d, {}, "layer '0' is Dropout2d, whose masks can't be keyed by sample"),
        (lambda: nn.Linear(3, 3), {}, "(float32 [2, 3, 7, 6]) fails with RuntimeError: mat1 and mat2"),
    ],
)
def test_a_model_that_can_not_be_trained_or_scored(model: Any, options: dict[str, Any], message: str) -> None:
    """Seen: other precisions were trained in float32 without a word; a tuple failed after all epochs."""
    with pytest.raises(JobError) as caught:
        lockstep.train(model, DATA, **(SETTINGS | options))
    assert message in str(caught.value)


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (returning(pair), {"loss": of_pair}),
        (returning(pair, False), {"loss": of_pair, "test": TEST}),
        (tiny.normalised_net, {"precision": "bfloat16", "test": TEST}),
        (tiny.Spare, {"test": TEST}),
    ],
)
def test_outputs_that_loss_and_scores_can_take_are_fine(model: Any, options: dict[str, Any]) -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(Started):
        lockstep.train(model, DATA, **(SETTINGS | options))
    assert torch.equal(torch.random.get_rng_state(), before)


# --- what comes back ---


@pytest.fixture(scope="module")
def here() -> Iterator[str]:
    """The launcher's name."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(LAUNCHERS, "here", Here)
        yield "here"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def alone(here: str) -> Trained:
    """Two epochs, one worker."""
    return train(launcher=here, sync="local", workers=1, epochs=2, test=TEST)


@pytest.fixture(scope="module")
def first_epoch(folder: Path) -> Trained:
    """One epoch, two real workers, kept."""
    return train(workers=2, epochs=1, checkpoint=folder / "c.pt")


@pytest.fixture(scope="module")
def both_epochs(first_epoch: Trained, folder: Path, here: str) -> Trained:
    """The second epoch after the first."""
    return train(launcher=here, workers=2, epochs=2, checkpoint=folder / "c.pt", resume=True, test=TEST)


@pytest.fixture(scope="module", autouse=True)
def _none_left(_zygotes: Any) -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    new = set(psutil.Process().children(recursive=True)) - before
    left = [one for one in new if one.is_running() and one.pid not in _zygotes.pids]
    assert not left


def flat(trained: Trained) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])


def test_one_worker_and_two_give_the_same_model(alone: Trained, both_epochs: Trained) -> None:
    """Although two were broken off after an epoch and resumed: the conformance suite's tolerance."""
    assert (flat(alone) - flat(both_epochs)).abs().max() < 3e-7
    assert alone.scores == both_epochs.scores


@pytest.mark.parametrize(
    "options",
    [
        {"sync": "parameter_server", "servers": 1},
        {"sync": "parameter_server", "shards": 2},
        {"sync": "allreduce", "bucket": "layer", "overlap": True},
        {"sync": "local_sgd"},
    ],
    ids=str,
)
def test_other_syncs_give_the_same_model(here: str, alone: Trained, options: dict[str, Any]) -> None:
    with warnings.catch_warnings(action="ignore"):  # more ranks than cores
        got = train(launcher=here, workers=2, epochs=2, test=TEST, **options)
    assert (flat(alone) - flat(got)).abs().max() < 3e-7
    assert got.losses == pytest.approx(alone.losses, rel=1e-5)
    assert got.scores == alone.scores
    assert len(got.traces) == 2 + options.get("servers", 0)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"schedule": "naive"}, {"workers": 4, "stages": 2}], ids=str)
def test_a_model_in_stages_is_the_same_model(alone: Trained, options: dict[str, Any]) -> None:
    with warnings.catch_warnings(action="ignore"):  # more ranks than cores
        asked = {"workers": 2, "launcher": "processes", "epochs": 2, "test": TEST, "model_parallel": "pipeline"}
        got = train(**(asked | options))
    assert (flat(alone) - flat(got)).abs().max() < 3e-7
    assert got.losses == pytest.approx(alone.losses, rel=1e-5)
    assert got.scores == alone.scores


def test_a_rate_that_changes_and_weights_of_classes_are_the_same_for_any_workers(here: str, alone: Trained) -> None:
    options: dict[str, Any] = {"epochs": 2, "class_weights": "balanced", "learning_rate_decay": "cosine"}
    one, two = (train(launcher=here, workers=count, sync="allreduce", **options) for count in (1, 2))
    assert two.losses == pytest.approx(one.losses, rel=1e-5)
    assert one.losses != pytest.approx(alone.losses, rel=1e-5), "it is another course"


def test_a_model_that_workers_do_not_share_is_their_mean(here: str) -> None:
    """One epoch of five steps, averaged every four: the scores are those of the model that comes back."""
    with warnings.catch_warnings(action="ignore"):  # not synchronous SGD
        got = train(launcher=here, workers=2, test=TEST, sync="local_sgd", exchange_every=4)
    with torch.no_grad():
        guess = got.model(TEST[0]).argmax(dim=1)
    assert got.scores["test_accuracy"] == pytest.approx(float((guess == TEST[1]).float().mean()))


def test_a_loss_per_step_over_the_global_batch(alone: Trained, first_epoch: Trained, both_epochs: Trained) -> None:
    """37 samples in batches of 8 are 5 steps."""
    assert len(alone.losses) == 10
    assert alone.losses == pytest.approx(first_epoch.losses + both_epochs.losses, rel=1e-5)
    assert all(0.1 < loss < 10 for loss in alone.losses)


def test_scores_are_those_of_the_model_that_comes_back(alone: Trained, first_epoch: Trained) -> None:
    assert sorted(alone.scores) == ["test_accuracy", "test_balanced_accuracy"]
    assert not alone.model.training
    with torch.no_grad():
        guess = alone.model(TEST[0]).argmax(dim=1)
    assert alone.scores["test_accuracy"] == pytest.approx(float((guess == TEST[1]).float().mean()))
    recalls = [float((guess[TEST[1] == c] == c).float().mean()) for c in range(3)]
    assert alone.scores["test_balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert first_epoch.scores == {}, "without test data"


class Counted(nn.Module):
    """Batches are counted in whole numbers, and averaged in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny.normalised_net()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.frozen = nn.Parameter(torch.from_numpy(np.random.default_rng().normal(size=3).astype(np.float32)))
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
            self.mean += 0.1 * (float(x.detach().mean()) - self.mean)
        output: Tensor = self.inner(x) + self.frozen
        return output


@pytest.mark.parametrize("options", [{"sync": "shared_memory"}, {"sync": "allreduce"}], ids=str)
def test_the_model_that_comes_back_has_all_its_buffers(here: str, options: dict[str, Any]) -> None:
    """Seen: num_batches_tracked was 0, float64 became float32, and layers that torch's seed does not decide were
    others than those that were scored."""
    got = lockstep.train(Counted, DATA, **(SETTINGS | {"launcher": here, "workers": 2, "test": TEST} | options))
    assert int(got.model.steps) == int(got.model.inner[1].num_batches_tracked) == 5
    assert got.model.mean.dtype == torch.float64 and float(got.model.mean) != 0.0
    with torch.no_grad():
        guess = got.model(TEST[0]).argmax(dim=1)
    assert got.scores["test_accuracy"] == pytest.approx(float((guess == TEST[1]).float().mean()))


# The parameters are no finite numbers after the first step.
DIVERGES = {"optimiser": functools.partial(torch.optim.SGD, lr=1e38)}


def test_a_loss_that_is_no_number_stops_training_or_is_warned_about(here: str) -> None:
    with pytest.raises(NotFiniteError, match=r"the loss is (nan|inf) in step \d on rank 0: lower the learning rate"):
        train(**(DIVERGES | {"launcher": here, "workers": 1}))
    with pytest.warns(UserWarning, match=r"the loss is (nan|inf) in step \d on rank 0, the first of \d such losses"):
        got = train(**(DIVERGES | {"launcher": here, "workers": 1, "on_nan": "warn"}))
    assert len(got.losses) == 5 and np.isnan(got.losses[-1])


def test_a_worker_whose_loss_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match=r"rank [01] raised NotFiniteError: the loss is \w+ in step \d on rank [01]"):
        train(checkpoint=tmp_path / "c.pt", **DIVERGES)
    assert list(tmp_path.iterdir()) == []


def test_traces_are_by_rank(both_epochs: Trained) -> None:
    assert [trace.rank for trace in both_epochs.traces] == [0, 1]
    assert [len(trace.steps) for trace in both_epochs.traces] == [5, 5]
    assert both_epochs.images_per_second > 0


def test_the_checkpoint_is_all_that_is_left(both_epochs: Trained, folder: Path) -> None:
    assert [path.name for path in folder.iterdir()] == ["c.pt"]


def test_what_can_not_be_resumed_is_refused_before_anything_starts(
    first_epoch: Trained, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("no_workers")
    with pytest.raises(Started):
        train(checkpoint=folder / "c.pt", resume=True, epochs=2)
    with pytest.raises(CheckpointError, match="was written with seed=0, this run has 1; resume with the same value"):
        train(checkpoint=folder / "c.pt", resume=True, seed=1)
    with pytest.raises(JobError, match="resume=True needs the file of an earlier run"):
        train(checkpoint=tmp_path / "c.pt", resume=True)
    written = (folder / "c.pt").read_bytes()
    for content in (b"not a checkpoint", written[:-1], written[:600] + bytes([written[600] ^ 4]) + written[601:]):
        (tmp_path / "c.pt").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"c\.pt can't be read"):
            train(checkpoint=tmp_path / "c.pt", resume=True)
    (tmp_path / "c.pt").write_bytes(written)
    for changes, message in (
        ({"workers": 1}, "in 2 slices, one per worker per node; resume it with workers=2 per node, not 1"),
        ({"sync": "allreduce"}, "was written with sync='shared_memory', this run has 'allreduce'"),
        ({"optimiser": functools.partial(torch.optim.Adam, lr=0.01)}, "this run's has class=torch.optim.adam.Adam"),
    ):
        with pytest.raises(CheckpointError, match=message):
            train(checkpoint=tmp_path / "c.pt", resume=True, **changes)
    with pytest.raises(CheckpointError, match=r"'7.bias' is missing there, trained, float32 \[3\] here"):
        lockstep.train(narrower, DATA, checkpoint=tmp_path / "c.pt", resume=True, **SETTINGS)


def test_other_data_are_refused_where_training_goes_on(first_epoch: Trained, folder: Path) -> None:
    """Bug: as many other images, or the same ones with other labels, went on as if nothing had changed."""
    images, labels = DATA
    changed = images.copy()
    changed[3] += 1
    for data in ((changed, labels), (images, labels[::-1].copy())):
        with pytest.raises(CheckpointError, match="was written while training on other samples or labels"):
            lockstep.train(tiny.net, data, checkpoint=folder / "c.pt", resume=True, workers=2, epochs=2, **SETTINGS)


def narrower() -> nn.Module:
    """As many parameters, in other shapes."""
    return nn.Sequential(*tiny.net()[:6], nn.Linear(7, 3, bias=False), Shift())


class Shift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


# --- launchers, before they start anything ---


@pytest.mark.parametrize("workers", [0, -1, True, 2.0, "2"])
@pytest.mark.parametrize("launcher", LAUNCHERS.values())
def test_a_launcher_refuses_impossible_workers(launcher: type[Launcher], workers: Any) -> None:
    with pytest.raises(ValueError, match=f"workers={workers!r} is not possible; give a whole number of at least 1"):
        launcher(workers)
    with pytest.raises(ValueError, match=f"threads_per_worker={workers!r} is not possible"):
        launcher(1, workers)


def test_more_workers_than_cores_are_allowed_and_warned_about() -> None:
    count = len(usable_cores()) + 1
    with pytest.warns(UserWarning, match=f"{count} workers x 1 cores are more than the {count - 1} usable cores"):
        team = LAUNCHERS["processes"](count).team
    assert team.ranks_by_process == [[rank] for rank in range(count)]
    assert team.pids == []


@pytest.mark.parametrize(
    ("workers", "per_worker", "expected"),
    [
        (2, 1, [[4], [5]]),
        (2, 2, [[4, 5], [6, 9]]),
        (3, 2, [[4, 5], [6, 9], [4, 5]]),
        (1, 9, [[4, 5, 6, 9]]),
        (2, 3, [[4, 5, 6], [4, 5, 9]]),
    ],
)
def test_cores_of_workers(workers: int, per_worker: int, expected: list[list[int]]) -> None:
    """Cores 4, 5, 6 and 9 are all there are."""
    assert [cores_of_rank(rank, per_worker, [4, 5, 6, 9]) for rank in range(workers)] == expected


def test_every_worker_gets_one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("LOCKSTEP_TEST", "kept")
    plain, tuned = worker_environment("plain", 2), worker_environment("tuned", 2)
    assert "MALLOC_ARENA_MAX" not in plain, "what a profile sets must not come from outside"
    assert tuned["MALLOC_ARENA_MAX"] == "1"
    for environment in (plain, tuned):
        assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "2"
        assert environment["LOCKSTEP_TEST"] == "kept"
    with pytest.raises(EnvironmentProfileError, match="environment='fast' does not exist; there are: plain, tuned"):
        worker_environment("fast", 1)
