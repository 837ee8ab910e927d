"""Notebook 05's grid, what it shows of the stored records, and the traces that a run of it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_distribution import chosen, records
from lockstep.analysis.stored import Stored, no_records
from lockstep.engine.job import Job
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT
from lockstep.experiments.e05_mpi_distribution.grid import SYNCS, cells, traced
from lockstep.experiments.e05_mpi_distribution.pairs import GROWING, comparisons
from lockstep.measure.planning import Comparison
from stored_reference import stored_reference


@pytest.fixture(scope="module")
def reference(root: Path) -> Stored:
    return stored_reference(root / "results" / "reference" / EXPERIMENT.name)


def other(**values: object) -> list[Job]:
    return cells(chosen(**values))


def test_all_stands_for_every_sync() -> None:
    jobs = other(strong_syncs={"ComplexSmall": ["all"]}, worker_counts=[2, 3])
    strong = [job for job in jobs if job.experiment == "strong" and job.strategy != "sequential"]
    assert [(job.strategy, job.workers) for job in strong] == [(name, count) for count in (2, 3) for name in SYNCS]
    assert {(job.use_case, job.global_batch_size, job.launcher) for job in strong} == {("ComplexSmall", 1, "engines")}


def test_without_syncs_there_is_no_baseline_either() -> None:
    assert "weak" in {job.experiment for job in other()}
    assert {job.device for job in other(weak_syncs={}) if job.experiment == "weak"} == {"cuda"}


def test_what_exchanges_every_few_steps_is_measured_over_as_many() -> None:
    jobs = other(local_steps=7, weak_syncs={"Pneumonia": ["all"]})
    found = {(job.strategy, job.steps) for job in jobs if job.exchange_every == 7}
    assert found == {("local_sgd", 7), ("algorithm_1", 7), ("algorithm_1_best", 7)}


def test_every_size_has_a_ping_pong_over_the_slowest_link() -> None:
    pings = [job for job in other() if job.sync == "ping_pong"]
    assert [(job.message_bytes, job.steps) for job in pings] == [(4096, 20), (4194304, 4)]
    assert {(job.experiment, job.hosts, job.link_bits_per_second) for job in pings} == {("wire", 2, 1e9)}


def test_the_resources_of_the_papers_figure_are_sampled() -> None:
    sampled = [(job.use_case, job.strategy, job.hosts) for job in other() if traced(job)]
    assert sampled == [("SimpleBig", "mpi_allreduce", 2)], "Figure 5 is of training over several nodes"


def test_every_cell_warms_up() -> None:
    assert {job.warmup_steps for job in other() if job.experiment != "paired"} == {3}


# --- which cells stand back to back ---


def named(jobs: list[Job], comparison: Comparison) -> str:
    return " / ".join(
        f"{jobs[place].experiment} {jobs[place].use_case} {jobs[place].strategy}" for place in comparison.cells
    )


def test_each_cell_is_in_a_comparison_and_few_are_alone() -> None:
    jobs = other()
    asked = comparisons(jobs)
    assert {place for each in asked for place in each.cells} == set(range(len(jobs)))
    alone = [named(jobs, each) for each in asked if len(each.cells) == 1]
    assert sorted(set(alone)) == [
        "paired Pneumonia allreduce", "paired Pneumonia terngrad", "paired Pneumonia topk",
        "start SimpleBig engines_shared_memory",
    ]  # fmt: skip
    assert len(asked) < 45 and len({each.cells for each in asked}) == len(asked)


def test_headlines_are_what_the_readme_shows() -> None:
    jobs = other()
    headlines = [named(jobs, each) for each in comparisons(jobs) if each.headline]
    assert "bars SimpleBig mpi_shared_memory / bars SimpleBig processes" in headlines
    assert "batches SimpleBig sequential / batches SimpleBig sequential" in headlines
    assert not [name for name in headlines if name.startswith("links")]


def test_compared_cells_are_alike_but_for_how_they_train() -> None:
    jobs = other()
    for each in comparisons(jobs):
        if len(each.cells) == 2:
            above, under = (jobs[place] for place in each.cells)
            same = ("experiment", "use_case", "device", "precision", "message_bytes", "per_worker_batch_size")
            assert all(getattr(above, name) == getattr(under, name) for name in same), named(jobs, each)
            assert (above.strategy, above.variant) != (under.strategy, under.variant) or above.experiment in GROWING


def test_cells_that_learn_have_as_many_seeds_as_their_claims_need() -> None:
    jobs = other()
    seeds = {jobs[each.cells[0]].experiment: each.rounds for each in comparisons(jobs) if each.rounds}
    assert seeds == {"paired": 32}
    learning = [job for job in jobs if job.experiment == "paired"]
    assert [job.compression for job in learning] == ["none", "terngrad", "topk", "topk"]


def test_a_grid_without_some_cells_has_fewer_comparisons() -> None:
    jobs = other(use_cases=["SimpleBig"], link_rates=[1e10], weak_syncs={}, densities=[])
    asked = comparisons(jobs)
    assert {place for each in asked for place in each.cells} == set(range(len(jobs)))


# --- what is shown of the stored records ---

OF_THE_PAPER = "factors"


@pytest.mark.parametrize("name", EXPERIMENT.tables)
def test_every_table_has_rows_where_there_are_records_and_none_where_there_are_not(
    reference: Stored, name: str
) -> None:
    for stored in (reference, Stored(records())):
        if len(table := EXPERIMENT.tables[name](stored)):
            assert not table.isna().all(axis=None)
    assert len(table) or name in ("strong", "slowest"), "no cell and no traced steps in the made-up records"
    assert EXPERIMENT.tables[name](no_records()).empty != (name == OF_THE_PAPER)


def test_without_a_ping_pong_no_message_is_predicted(reference: Stored) -> None:
    pings = reference.records["strategy"] == "ping_pong"
    without = Stored(reference.records[~pings])
    assert EXPERIMENT.tables["predicted_messages"](without).empty and len(EXPERIMENT.tables["messages"](without))


def test_a_run_writes_the_steps_of_every_cell_as_a_trace(reference: Stored, tmp_path: Path) -> None:
    assert EXPERIMENT.after is not None
    EXPERIMENT.after(no_records(), tmp_path)
    assert not list(tmp_path.iterdir()), "nothing was kept"
    EXPERIMENT.after(reference, tmp_path)
    steps = reference.table("timeline")
    own = steps[(steps["strategy"] == "mpi_allreduce") & (steps["use_case"] == "SimpleBig")]
    own = own[own["round"] == own["round"].min()]
    trace = json.loads((tmp_path / "traces" / "timeline-SimpleBig-mpi_allreduce-2-2-a.json").read_text())
    computed = [event for event in trace["traceEvents"] if event["name"] == "compute"]
    assert sum(event["dur"] for event in computed) / 1e6 == pytest.approx(own["compute_seconds"].sum())
    assert len(list((tmp_path / "traces").iterdir())) == steps.groupby(["strategy", "use_case"]).ngroups
