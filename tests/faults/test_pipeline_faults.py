"""A stage that fails in the middle of a schedule: the whole pipeline ends in time, and the first cause is told."""

from __future__ import annotations

import functools
import time
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tiny
from lockstep.engine.groups import GroupError
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import UseCase

pytestmark = pytest.mark.usefixtures("no_leftovers")
END_SECONDS = 10.0
REASONS = {
    "raise": "raised RuntimeError",
    "kill": "was killed by SIGKILL",
    "stop": "was stopped (SIGSTOP)",
}


class Backward(torch.autograd.Function):
    """Misbehaves on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        ctx.how = how
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        if rank() < 2:
            tiny.misbehave(ctx.how)
        return gradients[0], None


def rank() -> int:
    """Of this process: a stage is on one rank of the first replica, and in a hybrid on another one of the second."""
    return torch.distributed.get_rank()


class Faulty(nn.Module):
    """Misbehaves in training, on the first replica's rank that has it."""

    def __init__(self, how: str, backward: bool) -> None:
        super().__init__()
        self.how, self.backward = how, backward

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if self.backward:
            output: Tensor = Backward.apply(x, self.how)
            return output
        if rank() < 2:
            tiny.misbehave(self.how)
        return x


def net(how: str, backward: bool) -> nn.Module:
    layers = list(tiny.deep_net().children())
    return nn.Sequential(*layers[:-1], Faulty(how, backward), layers[-1])


class TakeState(nn.Linear):
    """Of what a recurrent layer gives, the output."""

    def forward(self, given: tuple[Tensor, Any]) -> Tensor:  # type: ignore[override]
        return super().forward(given[0])


def recurrent() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LSTM(126, 4), TakeState(4, 3))


def failure(case: UseCase, launcher: str = "processes", **fields: Any) -> WorkerFailed:
    values: dict[str, Any] = {
        "global_batch_size": 8, "steps": 6, "warmup_steps": 0, "workers": 2, "model_parallel": "pipeline", "stages": 2,
        "micro_batches": 4, "schedule": "1f1b", "partition": "equal_layers",
    }  # fmt: skip
    job = Job(use_case="own", strategy="own", launcher=launcher, **(values | fields))
    with warnings.catch_warnings(action="ignore"):  # more ranks than cores
        ready = LAUNCHERS[launcher](job.ranks)
    with ready as team:
        team.start()
        began = time.monotonic()
        with pytest.raises(WorkerFailed) as caught:
            team.run(job, Site(use_case=case))
        assert time.monotonic() - began < END_SECONDS
        assert team.pids == []
    return caught.value


@pytest.mark.parametrize("how", REASONS)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_a_stage_that_fails(how: str, backward: bool) -> None:
    failed = failure(tiny.case(model=functools.partial(net, how, backward)))
    assert failed.rank == 1
    assert REASONS[how] in str(failed) and "phase compute" in failed.where


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "zero_bubble"},
        {"schedule": "interleaved_1f1b", "stages": 4, "stages_per_rank": 2},
        {"workers": 4, "micro_batches": 2, "sync": "allreduce"},
    ],
    ids=["zero_bubble", "interleaved", "hybrid"],
)
def test_in_other_schedules_and_in_a_hybrid(fields: dict[str, Any]) -> None:
    failed = failure(tiny.case(model=functools.partial(net, "kill", True)), **fields)
    assert failed.rank in (0, 1) and "was killed by SIGKILL" in str(failed)


@pytest.mark.parametrize("launcher", ["mpiexec", "engines"])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_under_mpi(launcher: str, how: str) -> None:
    failed = failure(tiny.case(model=functools.partial(net, how, False)), launcher)
    assert REASONS[how] in str(failed)


def test_an_error_in_a_stage_keeps_its_traceback() -> None:
    failed = failure(tiny.case(model=functools.partial(net, "raise", False)))
    assert "a tyre burst" in failed.traceback and "in misbehave" in failed.traceback


@pytest.mark.parametrize("phase", ["input", "update", "start"])
def test_in_the_other_phases(phase: str) -> None:
    case = tiny.faulty_in(phase, "kill")
    model = functools.partial(_start, "kill") if phase == "start" else tiny.deep_net
    failed = failure(tiny.case(model=model, train=case.train, optimiser=case.optimiser))
    # Images are read by the first stage's rank, in the background: that one may be computing meanwhile.
    assert failed.rank == (0 if phase == "input" else 1)
    assert f"phase {phase}" in failed.where or (phase == "input" and "phase compute" in failed.where)


def _start(how: str) -> nn.Module:
    if tiny.rank() == 1:
        tiny.misbehave(how)
    return tiny.deep_net()


@pytest.mark.parametrize(
    ("model", "fields", "told"),
    [
        (tiny.deep_net, {"workers": 7, "stages": 7, "micro_batches": 8}, "stages=7 for a model with 6 layer(s)"),
        (tiny.Spare, {}, "Spare can't be cut between layers"),
        (recurrent, {}, "the model can't be cut after layers 0 (Flatten), 1 (LSTM)"),
    ],
    ids=["more stages than layers", "not a sequence", "a layer that gives a tuple"],
)
def test_a_model_that_cant_be_cut(model: Any, fields: dict[str, Any], told: str) -> None:
    failed = failure(tiny.case(model=model), **fields)
    assert told in str(failed), failed
    assert GroupError.__name__ not in str(failed)
