"""Notebook 06's grid, and what it shows of the stored records."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_spark import chosen, records
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e06_spark_distribution import EXPERIMENT
from lockstep.experiments.e06_spark_distribution.grid import VARIANTS, cells, comparisons, traced
from lockstep.records import CONTENDED
from stored_reference import stored_reference


def test_all_stands_for_every_variant() -> None:
    jobs = cells(chosen(use_cases=["ComplexSmall"], variants={"ComplexSmall": ["all"]}))
    found = [job.strategy for job in jobs if job.use_case == "ComplexSmall" and (job.workers, job.variant) == (2, "a")]
    assert found == list(VARIANTS)


def test_the_papers_way_has_every_number_of_workers() -> None:
    jobs = cells(chosen(worker_counts={"SimpleBig": [1, 2, 3], "ComplexSmall": [2]}))
    found = [(job.use_case, job.workers) for job in jobs if (job.experiment, job.strategy) == ("speedup", "sparknet")]
    assert found == [("SimpleBig", 2), ("SimpleBig", 1), ("SimpleBig", 3), ("ComplexSmall", 2)]


def test_a_window_of_steps_is_measured_after_another() -> None:
    jobs = [job for job in cells(chosen(tau=4)) if job.strategy == "sparknet_tau"]
    assert {(job.exchange_every, job.steps, job.warmup_steps) for job in jobs} == {(4, 4, 4)}


@pytest.mark.parametrize(("asked", "expected"), [(4096, 4096), (0, 4 * 57_016_131)])
def test_messages_are_as_long_as_simple_big_has_parameters_unless_a_size_is_chosen(asked: int, expected: int) -> None:
    """AlexNet with three classes: its 61 100 840 parameters less 997 of the 1000 rows of 4097 in its last layer."""
    sizes = {
        job.strategy: job.message_bytes for job in cells(chosen(message_bytes=asked)) if job.experiment == "overhead"
    }
    assert sizes == {"spark_schedule": 0, "spark_broadcast": expected, "spark_aggregate": expected}


def test_resources_are_sampled_of_the_papers_way() -> None:
    sampled = [(job.use_case, job.strategy, job.workers) for job in cells(chosen()) if traced(job)]
    assert sampled == [("SimpleBig", "sparknet", 2)]


# --- which cells stand back to back ---


def test_each_cell_is_in_a_comparison_and_spark_stands_beside_light_ones() -> None:
    """Two teams on Spark in one round may have to start anew for each visit."""
    jobs = cells(chosen())
    asked = comparisons(jobs)
    assert {place for each in asked for place in each.cells} == set(range(len(jobs))) and len(asked) < 25
    for each in asked:
        heavy = {(jobs[place].launcher, jobs[place].ranks) for place in each.cells if "spark" in jobs[place].launcher}
        assert len(heavy) <= 1, "one team, which both of its cells share"


def test_headlines_are_what_the_readme_shows() -> None:
    jobs = cells(chosen())
    headlines = [jobs[each.cells[0]].strategy for each in comparisons(jobs) if each.headline]
    assert headlines == ["sparknet", "mpi_shared_memory"]


def test_a_grid_without_some_cells_has_fewer_comparisons() -> None:
    jobs = cells(chosen(use_cases=["SimpleBig"], variants={"SimpleBig": ["sparknet"]}, data_sizes=[640]))
    assert {place for each in comparisons(jobs) for place in each.cells} == set(range(len(jobs)))


# --- what is shown of the stored records ---


@pytest.mark.parametrize("name", EXPERIMENT.tables)
def test_every_table_has_rows_where_there_are_records_and_none_where_there_are_not(root: Path, name: str) -> None:
    for stored in (stored_reference(root / "results" / "reference" / EXPERIMENT.name), Stored(records())):
        table = EXPERIMENT.tables[name](stored)
        assert len(table) and not table.isna().all(axis=None)
    assert EXPERIMENT.tables[name](no_records()).empty


def test_memory_is_that_of_all_processes_in_gib(root: Path) -> None:
    reference = stored_reference(root / "results" / "reference" / EXPERIMENT.name)
    table = EXPERIMENT.tables["speedup"](Stored(reference.records))
    row = table.query("strategy == 'sparknet' and use_case == 'SimpleBig' and workers == 2").iloc[0]
    own = reference.of("speedup").query("strategy == 'sparknet' and use_case == 'SimpleBig' and workers == 2")
    quiet = ~own["reason"].astype(str).str.contains(CONTENDED)
    own = own[(own["status"] == "ok") & quiet]
    assert row["peak_GiB"] == pytest.approx(own["peak_pss_bytes"].median() / 2**30, abs=1e-3)
