"""Notebook 05's grid, what it shows of the stored records, and the traces that a run of it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.analysis.stored import Stored, no_records, read_stored
from lockstep.commands.runner import read_parameters
from lockstep.engine.job import Job
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT
from lockstep.experiments.e05_mpi_distribution.grid import SYNCS, cells, traced
from lockstep.experiments.experiment import Parameters


@pytest.fixture(scope="module")
def chosen(root: Path) -> Parameters:
    """The parameters as they stand in the notebook."""
    known = read_parameters(root / "notebooks" / f"{EXPERIMENT.name}.ipynb")
    return Parameters(**{name: parameter.default for name, parameter in known.items()})


@pytest.fixture(scope="module")
def reference(root: Path) -> Stored:
    return read_stored(root / "results" / "reference" / EXPERIMENT.name)


def other(chosen: Parameters, **values: object) -> list[Job]:
    return cells(Parameters(**vars(chosen) | values))


def test_all_stands_for_every_sync(chosen: Parameters) -> None:
    jobs = other(chosen, strong_syncs={"ComplexSmall": ["all"]}, worker_counts=[2, 3])
    strong = [job for job in jobs if job.experiment == "strong" and job.strategy != "sequential"]
    assert [(job.strategy, job.workers) for job in strong] == [(name, count) for count in (2, 3) for name in SYNCS]
    assert {(job.use_case, job.global_batch_size, job.launcher) for job in strong} == {("ComplexSmall", 2, "engines")}


def test_without_syncs_there_is_no_baseline_either(chosen: Parameters) -> None:
    assert "strong" in {job.experiment for job in cells(chosen)}
    assert "strong" not in {job.experiment for job in other(chosen, strong_syncs={})}


def test_what_exchanges_every_few_steps_is_measured_over_as_many(chosen: Parameters) -> None:
    found = {(job.strategy, job.steps) for job in other(chosen, local_steps=7) if job.exchange_every == 7}
    assert found == {("local_sgd", 7), ("algorithm_1", 7), ("algorithm_1_best", 7)}


def test_every_size_has_a_ping_pong_over_the_slowest_link(chosen: Parameters) -> None:
    pings = [job for job in cells(chosen) if job.sync == "ping_pong"]
    assert [(job.message_bytes, job.steps) for job in pings] == [(4096, 20), (1048576, 20), (16777216, 3)]
    assert {(job.experiment, job.hosts, job.link_bits_per_second) for job in pings} == {("wire", 2, 1e9)}


def test_the_resources_of_the_papers_figure_are_sampled(chosen: Parameters) -> None:
    sampled = [(job.use_case, job.strategy) for job in cells(chosen) if traced(job)]
    names = ("sequential", "engines_shared_memory", "mpi_allreduce")
    assert sampled == [(use_case, name) for use_case in chosen.use_cases for name in names]


@pytest.mark.parametrize("name", EXPERIMENT.tables)
def test_every_table_has_rows_where_there_are_records_and_none_where_there_are_not(
    reference: Stored, name: str
) -> None:
    table = EXPERIMENT.tables[name](reference)
    assert len(table) and not table.isna().all(axis=None)
    assert EXPERIMENT.tables[name](no_records()).empty


def test_without_a_ping_pong_no_message_is_predicted(reference: Stored) -> None:
    pings = reference.records["strategy"] == "ping_pong"
    without = Stored(reference.records[~pings])
    assert EXPERIMENT.tables["predicted_messages"](without).empty and len(EXPERIMENT.tables["messages"](without))


def test_a_run_writes_the_steps_of_every_cell_as_a_trace(reference: Stored, tmp_path: Path) -> None:
    assert EXPERIMENT.after is not None
    EXPERIMENT.after(no_records(), tmp_path)
    assert not list(tmp_path.iterdir()), "nothing was kept"
    EXPERIMENT.after(reference, tmp_path)
    steps = reference.table("steps")
    own = steps[(steps["strategy"] == "mpi_allreduce") & (steps["use_case"] == "SimpleBig") & (steps["round"] == 0)]
    trace = json.loads((tmp_path / "traces" / "timeline-SimpleBig-mpi_allreduce-2-2-a.json").read_text())
    computed = [event for event in trace["traceEvents"] if event["name"] == "compute"]
    assert sum(event["dur"] for event in computed) / 1e6 == pytest.approx(own["compute_seconds"].sum())
    assert len(list((tmp_path / "traces").iterdir())) == steps.groupby(["strategy", "use_case"]).ngroups
