"""Notebook 06's grid, and what it shows of the stored records."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.analysis.stored import Stored, no_records, read_stored
from lockstep.commands.runner import read_parameters
from lockstep.engine.job import Job
from lockstep.experiments.e06_spark_distribution import EXPERIMENT
from lockstep.experiments.e06_spark_distribution.grid import VARIANTS, cells, traced
from lockstep.experiments.experiment import Parameters


@pytest.fixture(scope="module")
def chosen(root: Path) -> Parameters:
    """The parameters as they stand in the notebook."""
    known = read_parameters(root / "notebooks" / f"{EXPERIMENT.name}.ipynb")
    return Parameters(**{name: parameter.default for name, parameter in known.items()})


def other(chosen: Parameters, **values: object) -> list[Job]:
    return cells(Parameters(**vars(chosen) | values))


def test_all_stands_for_every_variant_with_each_number_of_workers(chosen: Parameters) -> None:
    jobs = other(chosen, use_cases=["ComplexSmall"], variants={"ComplexSmall": ["all"]},
                 worker_counts={"ComplexSmall": [2, 3]})  # fmt: skip
    found = [(job.strategy, job.workers) for job in jobs if job.use_case == "ComplexSmall" and job.workers > 1]
    assert found == [(name, count) for count in (2, 3) for name in VARIANTS]


def test_a_window_of_steps_is_measured_after_another(chosen: Parameters) -> None:
    jobs = [job for job in other(chosen, tau=4) if job.strategy == "sparknet_tau"]
    assert {(job.exchange_every, job.steps, job.warmup_steps) for job in jobs} == {(4, 4, 4)}


@pytest.mark.parametrize(("asked", "expected"), [(4096, 4096), (0, 4 * 57_016_131)])
def test_messages_are_as_long_as_simple_big_has_parameters_unless_a_size_is_chosen(
    chosen: Parameters, asked: int, expected: int
) -> None:
    """AlexNet with three classes: its 61 100 840 parameters less 997 of the 1000 rows of 4097 in its last layer."""
    sizes = {
        job.strategy: job.message_bytes for job in other(chosen, message_bytes=asked) if job.experiment == "overhead"
    }
    assert sizes == {"spark_schedule": 0, "spark_broadcast": expected, "spark_aggregate": expected}


def test_resources_are_sampled_where_variants_are_compared(chosen: Parameters) -> None:
    sampled = [job for job in cells(chosen) if traced(job)]
    assert {job.experiment for job in sampled} == {"speedup"} and {job.variant for job in sampled} == {"a"}
    assert {job.strategy for job in sampled} == {"sequential", *VARIANTS}


@pytest.mark.parametrize("name", EXPERIMENT.tables)
def test_every_table_has_rows_where_there_are_records_and_none_where_there_are_not(root: Path, name: str) -> None:
    reference = read_stored(root / "results" / "reference" / EXPERIMENT.name)
    table = EXPERIMENT.tables[name](reference)
    assert len(table) and not table.isna().all(axis=None)
    assert EXPERIMENT.tables[name](no_records()).empty


def test_memory_is_that_of_all_processes_in_gib(root: Path) -> None:
    reference = read_stored(root / "results" / "reference" / EXPERIMENT.name)
    table = EXPERIMENT.tables["speedup"](Stored(reference.records))
    row = table[(table["strategy"] == "sparknet") & (table["use_case"] == "ComplexSmall")].iloc[0]
    own = reference.of("speedup")
    own = own[(own["strategy"] == "sparknet") & (own["use_case"] == "ComplexSmall") & (own["status"] == "ok")]
    assert row["peak_GiB"] == pytest.approx(own["peak_pss_bytes"].median() / 2**30, abs=1e-3)
