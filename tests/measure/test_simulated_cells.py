"""Cells in virtual time: a probe of the experiment's own runs in one process, and each round is another seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lockstep.analysis.stored import Stored, read_stored
from lockstep.engine.groups import Group
from lockstep.engine.job import Job, JobError
from lockstep.engine.launch.virtual import VirtualTime
from lockstep.engine.training.loop import Site, Trace
from lockstep.experiments.simulated import simulated
from lockstep.measure import cell, grid
from lockstep.measure.planning import Comparison, Progress
from lockstep.measure.probes.probe import Probe
from lockstep.records import CONTENDED, SIMULATED, read_records, repeated_by_seed

JOB = simulated("toy", delays="pareto", workers=5000)


def run_toy(job: Job, group: Group, site: Site | None = None) -> Trace:
    """A cell whose number is its seed."""
    del site
    assert group.size == 1
    rows: list[dict[str, float | str]] = [{"contender": "a", "seconds": 1.0 + job.seed}]
    return Trace(group.rank, scores={"step_seconds": 1.0 + job.seed}, tables={"policies": rows})


TOY = {"toy": Probe(run_toy, tables={"policies": ("delays", "seed")})}


def measured(folder: Path, rounds: int, **changes: Any) -> Stored:
    wanted = [Comparison((0,), rounds=rounds)]
    given: dict[str, Any] = {"minutes": 1.0, "parameters": {}, "probes": TOY, "comparisons": lambda jobs: wanted}
    return read_stored(grid.run_grid([JOB], notebook="10", results=folder, **given | changes))


def test_thousands_of_workers_are_simulated_in_one_process() -> None:
    assert JOB.simulated and JOB.repeated_by_seed and not JOB.cautions(2)
    assert VirtualTime.of(JOB).team.size == 1


def test_each_round_is_another_seed_and_a_second_run_goes_on(tmp_path: Path) -> None:
    first = measured(tmp_path, rounds=2)
    assert set(first.records["source"]) == {SIMULATED}
    second = measured(tmp_path, rounds=4)
    assert second.records["seed"].tolist() == [0, 1, 2, 3]
    table = second.table("policies")
    assert table["seconds"].tolist() == [1.0, 2.0, 3.0, 4.0] and table["workers"].unique().tolist() == [5000]
    assert table["seed"].tolist() == [0, 1, 2, 3] and table["delays"].unique().tolist() == ["pareto"]


def test_nobody_elses_work_disturbs_what_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell.Contention, "contended", lambda self: True)
    stored = measured(tmp_path, rounds=1)
    assert CONTENDED not in stored.records["reason"].item()
    assert len(stored.quiet.records) == 1 and repeated_by_seed(stored.records).all()


def test_others_at_work_beside_a_simulated_cell_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows don't say so, and the plan took the machine for quiet after each of them."""
    monkeypatch.setattr(cell.Contention, "contended", lambda self: True)
    noticed, choose = [], grid.choose

    def noted(states: Sequence[Progress], seconds: float, last: int | None) -> int | None:
        noticed.append([state.just_disturbed for state in states])
        return choose(states, seconds, last)

    monkeypatch.setattr(grid, "choose", noted)
    measured(tmp_path, rounds=2)
    assert noticed == [[False], [True], [True]]


def test_a_simulated_cell_without_a_probe_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="experiment='toy': nothing trains in virtual time, and no probe of that name"):
        measured(tmp_path, rounds=1, probes={})
    assert not (tmp_path / "10").exists()


def test_a_cell_whose_data_are_lacking_is_a_skipped_row(tmp_path: Path) -> None:
    lacking = {"toy": Probe(run_toy, lacking=lambda job, source: "the data folder has no traces")}
    grid.run_grid([JOB], notebook="10", results=tmp_path, rounds=1, parameters={}, probes=lacking)
    row = read_records(tmp_path / "10").iloc[0]
    assert (row["status"], row["reason"]) == ("skipped", "the data folder has no traces")
    assert math.isnan(row["step_seconds"])


@pytest.mark.slow
def test_a_part_of_the_grid_is_measured_now_and_the_rest_later_into_the_same_folder(tmp_path: Path) -> None:
    """What real ranks measure wants a quiet machine, what is simulated does not: they once went in one run or none."""
    other = simulated("another", delays="pareto", workers=4)
    where: dict[str, Any] = {"notebook": "10", "results": tmp_path, "parameters": {"workers": 4}}
    where["probes"] = TOY | {"another": TOY["toy"]}
    for only in (["another"], ["toy"], []):
        grid.run_grid([JOB, other], rounds=1, only=only, **where)
    found = read_records(tmp_path / "10")
    assert found["experiment"].tolist() == ["another", "toy", "toy", "another"]
    assert found["seed"].tolist() == [0, 0, 1, 1], "a seed that is stored is not simulated again"
    with pytest.raises(JobError, match=r"the grid has no cell of 'real'; there are experiment: another, toy;"):
        grid.run_grid([JOB, other], rounds=1, only=["real"], **where)
