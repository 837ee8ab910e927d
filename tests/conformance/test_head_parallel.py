"""A head split over ranks trains as the whole model does, through the one loop, on every launcher with processes."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from lockstep.engine.job import Job
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.replica.split_head import SplitHeadReplica
from lockstep.engine.training.checkpoint import CheckpointError, read
from together import TOLERANCE, Teams, alone, small_job

HEAD: dict[str, Any] = {"model_parallel": "head", "sync": "allreduce"}
VARIANTS: dict[str, dict[str, Any]] = {
    "whole": HEAD,
    "layer-overlap": HEAD | {"bucket": "layer", "overlap": True},
    "100B-overlap": HEAD | {"bucket": "100B", "overlap": True},
    "sockets-layer-overlap": HEAD | {"transport": "sockets", "bucket": "layer", "overlap": True},
}
RMA = HEAD | {"transport": "rma", "bucket": "layer", "overlap": True}
CASES = [
    *(("processes", workers, fields) for workers in (2, 3) for fields in VARIANTS.values()),
    *(("mpiexec", 2, fields) for fields in (HEAD, RMA)),
    ("engines", 2, HEAD),
]
NAMES = [*(f"processes-{n}-{name}" for n in (2, 3) for name in VARIANTS), "mpiexec", "mpiexec-rma", "engines"]


def split(launcher: str = "processes", workers: int = 2, **changes: Any) -> Job:
    return small_job(**(HEAD | {"launcher": launcher, "workers": workers} | changes))


@pytest.mark.parametrize(("launcher", "workers", "fields"), CASES, ids=NAMES)
def test_the_parameters_are_those_of_one_worker(
    teams: Teams, launcher: str, workers: int, fields: dict[str, Any], tmp_path: Path
) -> None:
    """Three epochs of 37 samples in batches of 8, each with a last one of 5: uneven shares, and dropout is on."""
    case = tiny.case(model=tiny.deep_net)
    expected = alone(case, tmp_path / "alone")
    got = teams.together(split(launcher, workers, **fields), case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("variant", ["whole", "layer-overlap"])
def test_a_last_batch_smaller_than_the_team(teams: Teams, variant: str, tmp_path: Path) -> None:
    """37 samples in batches of 9 leave 1 for three workers: two of them have an empty share, and units all the same."""
    case = tiny.case(model=tiny.deep_net)
    small: dict[str, Any] = {"global_batch_size": 9, "steps": 6}
    expected = alone(case, tmp_path / "alone", **small)
    got = teams.together(split("processes", 3, **VARIANTS[variant] | small), case, tmp_path / "c")
    assert (got - expected).abs().max() < TOLERANCE


def test_resume_reaches_the_unbroken_runs_parameters_exactly(teams: Teams, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.deep_net)
    unbroken = teams.together(split(), case, tmp_path / "unbroken")
    first = teams.together(split(steps=7), case, tmp_path / "broken")
    assert not torch.equal(first, unbroken)
    assert torch.equal(teams.together(split(), case, tmp_path / "broken", resume=True), unbroken)
    with pytest.raises(WorkerFailed, match="resume it with workers=2, not 3") as caught:
        teams.run(split(workers=3), case, tmp_path / "broken", resume=True)
    assert CheckpointError.__name__ in str(caught.value)


@pytest.mark.slow
def test_evaluation_with_unequally_many_batches(teams: Teams, tmp_path: Path) -> None:
    """13 samples are 7 and 6: two batches of 6 here, one there. The scores are those of the whole model."""
    case = tiny.case(model=tiny.deep_net, test=tiny.arrays(13))
    this = split(steps=3).with_(per_worker_batch_size=6)
    traces = teams.run(this, case, tmp_path / "c", evaluate=True)
    model = tiny.deep_net().eval()
    torch.nn.utils.vector_to_parameters(read(str(tmp_path / "c"))["parameters"], model.parameters())
    assert case.test is not None
    guess = model(torch.from_numpy(case.test.load(range(13), 0, 0))).argmax(1).numpy()  # type: ignore[arg-type]
    assert traces[0].scores == traces[1].scores
    assert traces[0].scores["test_accuracy"] == pytest.approx((guess == case.test.labels).mean())


def test_every_rank_is_measured_in_every_step(teams: Teams) -> None:
    for trace in teams.run(split(steps=3, warmup_steps=2), tiny.case(model=tiny.deep_net)):
        assert len(trace.steps) == 3
        for times in trace.steps:
            parts = [times[f"{name}_seconds"] for name in ("input", "compute", "wait", "exchange", "update")]
            assert all(part >= 0 for part in parts)
            assert sum(parts) <= times["step_seconds"]
            assert times["images"] in (4, 3, 2) and times["bytes_sent"] > 0


def test_a_run_gives_its_memory_back(teams: Teams) -> None:
    for _ in range(2):
        teams.run(split(steps=2), tiny.case(model=tiny.deep_net))
    assert teams.of("processes", 2).call(_left_over) == [0, 0]


def _left_over(group: object) -> int:
    """Replicas of an earlier call in this process."""
    del group
    gc.collect()
    return sum(isinstance(each, SplitHeadReplica) for each in gc.get_objects())


def test_a_model_without_a_head_says_so(teams: Teams) -> None:
    with pytest.raises(WorkerFailed, match=r"ValueError: model_parallel='head' splits the first two .* has 1 behind"):
        teams.run(split(), tiny.case(model=tiny.normalised_net))
