"""A stage that fails in the middle of a schedule: the whole pipeline ends in time, and the first cause is told."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from torch import Tensor, nn

import tiny
from failing import fail, job_of, ready, staged_net
from lockstep.engine.groups import GroupError
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import UseCase

pytestmark = pytest.mark.usefixtures("no_leftovers")


class TakeState(nn.Linear):
    """Of what a recurrent layer gives, the output."""

    def forward(self, given: tuple[Tensor, Any]) -> Tensor:  # type: ignore[override]
        return super().forward(given[0])


def recurrent() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LSTM(126, 4), TakeState(4, 3))


STAGES: dict[str, Any] = {
    "workers": 2, "model_parallel": "pipeline", "stages": 2, "micro_batches": 4, "schedule": "1f1b",
    "partition": "equal_layers",
}  # fmt: skip


def failure(case: UseCase, **fields: Any) -> WorkerFailed:
    job = job_of("processes", STAGES | fields)
    with ready("processes", job.ranks) as team:
        return fail(team, job, Site(use_case=case))


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
    failed = failure(tiny.case(model=functools.partial(staged_net, "kill", True)), **fields)
    assert failed.rank in (0, 1) and "was killed by SIGKILL" in str(failed)


@pytest.mark.parametrize("phase", ["input", "update"])
def test_in_the_other_phases(phase: str) -> None:
    case = tiny.faulty_in(phase, "kill")
    failed = failure(tiny.case(model=tiny.deep_net, train=case.train, optimiser=case.optimiser))
    # Images are read by the first stage's rank, in the background: that one may be computing meanwhile.
    assert failed.rank == (0 if phase == "input" else 1)
    assert f"phase {phase}" in failed.where or (phase == "input" and "phase compute" in failed.where)


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
