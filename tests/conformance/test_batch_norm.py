"""Synchronized batch normalization: with statistics of the whole batch, parameters are those of one worker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_conformance import TWO, combinations
from torch import Tensor, nn

import lockstep
import tiny
from declared_variants import equal_to_one_worker, plain
from failing import REASONS, Waiting, failure_of
from lockstep.engine import registry
from lockstep.engine.job import JobError
from lockstep.engine.sync.batch_norm import SYNC_BATCH_NORM
from lockstep.engine.training import checkpoint
from lockstep.engine.usecases import UseCase
from small_models import Evaluating, Normalised, NormalisedInput, failing_at_normalisation
from together import TOLERANCE, Teams, alone, small_job

SYNCHRONOUS = {
    name: fields
    for name, fields in equal_to_one_worker().items()
    if SYNC_BATCH_NORM in registry.syncs_and_peers()[fields["sync"]].options
}
PLAIN = [two for two in combinations(SYNCHRONOUS, [], ("threads", "processes", "mpiexec")) if two[1] in plain()]
OVERLAPPED = [(name, "allreduce-layer-overlap") for name in ("threads", "processes", "mpiexec")]
ON_ALL_LAUNCHERS = [("engines", "shared_memory"), ("spark", "shared_memory")]
EVERY_WAY = pytest.mark.parametrize(TWO, [*PLAIN, *OVERLAPPED, *ON_ALL_LAUNCHERS])
CLOSE = 4 * TOLERANCE
"""The variance is summed in another order than torch sums it, and each step's error goes into the next one's."""


def together(
    teams: Teams, launcher: str, variant: str, path: Path, model: Callable[[], nn.Module] = tiny.normalised_net,
    **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    this = small_job(launcher=launcher, **({"workers": 2, "sync_batch_norm": True} | SYNCHRONOUS[variant] | changes))
    teams.run(this, tiny.case(model=model), path)
    return checkpoint.read(str(path))


def dropping_net() -> nn.Module:
    """Seen: keyed dropout looked at the first image of a share that had none."""
    layers = (nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(100, 3))
    return nn.Sequential(*layers)


class Activating(nn.BatchNorm2d):
    """As in well-known libraries: a layer of batch normalization that does more than its base class."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Viewing(nn.Module):
    """A view with an open size, which has none for a share without images."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(126, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.norm(x).view(x.shape[0], -1))
        return output


@EVERY_WAY
def test_parameters_and_running_statistics_are_those_of_one_worker(
    teams: Teams, launcher: str, variant: str, tmp_path: Path
) -> None:
    """Uneven shares: 8 images among 2 workers, and 5 at the end of an epoch."""
    case = tiny.case(model=tiny.normalised_net)
    expected = alone(case, tmp_path / "alone")
    got = together(teams, launcher, variant, tmp_path / "together")
    assert (got["parameters"] - expected).abs().max() < CLOSE
    sequential = checkpoint.read(str(tmp_path / "alone"))
    assert torch.allclose(got["buffers"], sequential["buffers"], rtol=1e-5, atol=1e-6)
    assert torch.equal(got["others"]["1.num_batches_tracked"], sequential["others"]["1.num_batches_tracked"])


@pytest.mark.parametrize(("launcher", "variant"), [two for two in PLAIN if two[1] != "ddp"])
def test_a_worker_without_images_takes_part(teams: Teams, launcher: str, variant: str, tmp_path: Path) -> None:
    """37 images in batches of 7 leave 2 for three workers: one has none, and the others need its zeros."""
    case = tiny.case(model=dropping_net)
    changes = {"global_batch_size": 7, "steps": 6}
    expected = alone(case, tmp_path / "alone", **changes)
    got = together(teams, launcher, variant, tmp_path / "together", dropping_net, workers=3, **changes)
    assert (got["parameters"] - expected).abs().max() < CLOSE


KINDS: dict[str, Callable[[], nn.Module]] = {
    "no parameters of its own": functools.partial(Normalised, affine=False),
    "cumulative average": functools.partial(Normalised, momentum=None),
    "no running statistics": functools.partial(Normalised, track_running_stats=False),
    "used twice": functools.partial(Normalised, twice=True),
    "frozen": functools.partial(Normalised, frozen=True),
    "of images": NormalisedInput,
    "evaluating": Evaluating,
}


@pytest.mark.parametrize(("launcher", "sync"), [("threads", "shared_memory"), ("processes", "allreduce")])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer_is_that_of_one_worker(
    teams: Teams, kind: str, launcher: str, sync: str, tmp_path: Path
) -> None:
    case = tiny.case(model=KINDS[kind])
    alone(case, tmp_path / "alone")
    sequential = checkpoint.read(str(tmp_path / "alone"))
    found = {}
    for chosen in (True, False):
        job = small_job(launcher=launcher, sync=sync, workers=2, sync_batch_norm=chosen)
        teams.run(job, case, tmp_path / str(chosen))
        found[chosen] = checkpoint.read(str(tmp_path / str(chosen)))
    got = found[True]
    assert (got["parameters"] - sequential["parameters"]).abs().max() < CLOSE
    assert torch.allclose(got["buffers"], sequential["buffers"], rtol=1e-5, atol=1e-6)
    assert got["others"].keys() == sequential["others"].keys()
    assert all(torch.equal(got["others"][name], sequential["others"][name]) for name in got["others"])
    apart = (found[False]["parameters"] - sequential["parameters"]).abs().max()
    assert (apart > 10 * CLOSE) == (kind != "evaluating"), "what is not summed differs, or nothing needs to be"


@pytest.mark.linux
@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("launcher", "how"), [("threads", "raise"), ("processes", "kill"), ("mpiexec", "kill")])
def test_a_rank_that_fails_while_others_sum_statistics_is_named(launcher: str, how: str, backward: bool) -> None:
    def case(how: str) -> UseCase:
        return tiny.case(model=functools.partial(failing_at_normalisation, how, backward))

    failure = failure_of(launcher, how, Waiting("compute", {"sync": "allreduce", "sync_batch_norm": True}, case))
    assert failure.rank == 1 and REASONS[how] in str(failure)
    assert failure.where.endswith("phase compute")


def test_what_is_exchanged_is_measured_apart_from_computing(teams: Teams) -> None:
    case = tiny.case(model=tiny.normalised_net)
    runs = [
        teams.run(small_job(launcher="processes", sync="allreduce", workers=2, sync_batch_norm=chosen), case)
        for chosen in (False, True)
    ]
    without, synchronized = ([step["bytes_sent"] for step in traces[0].steps] for traces in runs)
    numbers = 2 * 5 + 1  # of a layer of 5 channels, forward and backward, float64; half of them are sent twice
    assert [more - less for more, less in zip(synchronized, without, strict=True)] == [2 * numbers * 8] * len(without)
    for step in runs[1][0].steps:
        parts = [step[f"{name}_seconds"] for name in ("input", "compute", "wait", "exchange", "update")]
        assert sum(parts) <= step["step_seconds"]
        assert step["forward_seconds"] + step["backward_seconds"] <= step["compute_seconds"]


SYNCED: dict[str, Any] = {"sync_batch_norm": True}


def test_a_whole_batch_of_one_value_is_refused_on_all_workers(teams: Teams) -> None:
    case = tiny.case(model=flat_net)
    this = small_job(launcher="threads", sync="shared_memory", workers=2, sync_batch_norm=True, global_batch_size=9)
    with pytest.raises(Exception, match="at least two values per channel, and this step's whole batch has 1 "):
        teams.run(this, case)


def flat_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(126, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_train_takes_it_and_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    data = tiny.arrays()
    common: dict[str, Any] = {"launcher": "threads", "global_batch_size": 8, "optimiser": tiny.SGD}
    one = lockstep.train(tiny.normalised_net, data, workers=1, **common)
    two = lockstep.train(tiny.normalised_net, data, workers=2, sync_batch_norm=True, **common)
    assert two.cautions == [] and not recwarn.list
    own, other = (torch.cat([p.flatten() for p in each.model.parameters()]) for each in (one, two))
    assert (own - other).abs().max() < CLOSE
    assert any("sync_batch_norm=True" in told for told in lockstep.train(tiny.normalised_net, data, **common).cautions)


def test_where_it_can_not_be_it_is_refused_before_any_worker_starts() -> None:
    with pytest.raises(JobError, match="no layer of batch normalization; give sync_batch_norm=False"):
        lockstep.train(tiny.net, tiny.arrays(), sync_batch_norm=True)
    with pytest.raises(JobError, match="Activating has a forward pass of its own, which would be left out"):
        lockstep.train(lambda: nn.Sequential(Activating(3), nn.Flatten(), nn.Linear(126, 3)), tiny.arrays(), **SYNCED)
    with pytest.raises(JobError, match=r"a pass without images, .* fails with RuntimeError.*use nn\.Flatten"):
        lockstep.train(Viewing, tiny.arrays(), **SYNCED)
    with pytest.raises(JobError, match="torch has one backward thread per"):
        small_job(launcher="threads", sync="allreduce", device="cuda", workers=2, **SYNCED)
    for fields, reason in (
        ({"sync": "gossip"}, "sync_batch_norm=True does nothing with sync='gossip'"),
        ({"sync": "allreduce", "framework": "tensorflow"}, "framework='tensorflow'"),
        ({"sync": "parameter_server", "policy": "k_sync", "policy_options": "k=1", "servers": 1}, "does not go with"),
    ):
        with pytest.raises(JobError, match=reason):
            small_job(launcher="processes", workers=2, sync_batch_norm=True, **fields)
