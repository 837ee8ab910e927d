"""The sequential training that the suite compares with: kept for the session, and never taken for another one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
import together
from together import alone


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs that were really trained."""
    jobs: list[Any] = []

    def run_job(job: Any, *rest: Any) -> Any:
        jobs.append(job)
        return actual(job, *rest)

    actual = together.run_job
    monkeypatch.setattr(together, "run_job", run_job)
    monkeypatch.setattr(together, "_folder", [])
    return jobs


def test_the_same_job_is_trained_once(trained: list[Any], tmp_path: Path) -> None:
    first = alone(tiny.case(), tmp_path / "first", steps=3)
    first += 1.0  # a test may do with its result what it likes
    second = alone(tiny.case(), tmp_path / "second", steps=3)
    assert len(trained) == 1 and torch.equal(first, second + 1.0)


def test_another_job_model_optimiser_or_data_is_another_training(trained: list[Any], tmp_path: Path) -> None:
    adam = functools.partial(torch.optim.Adam, lr=0.01)
    cases = [
        (tiny.case(), {}), (tiny.case(), {"seed": 1}), (tiny.case(model=tiny.deep_net), {}),
        (tiny.case(optimiser=adam), {}), (tiny.case(train=tiny.arrays(19)), {}),
    ]  # fmt: skip
    results = [alone(case, tmp_path / "c", steps=3, **fields) for case, fields in cases]
    assert len(trained) == len(cases)
    assert len({tuple(each.tolist()) for each in results}) == len(cases)


def test_training_again_gives_the_same_bits(trained: list[Any], tmp_path: Path) -> None:
    """Otherwise a kept result would hide that."""
    kept = alone(tiny.case(), tmp_path / "a", steps=3)
    together._folder.clear()
    assert torch.equal(alone(tiny.case(), tmp_path / "b", steps=3), kept) and len(trained) == 2
