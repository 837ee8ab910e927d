"""Every experiment's stored records are of the cells of its grid."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pandas as pd
import pytest

from lockstep.analysis.cells import CELL
from lockstep.analysis.tables import TRACE_SECONDS
from lockstep.engine.job import LEARNING, Job, JobError
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import every, experiment
from lockstep.measure.comparisons import pairs_of
from lockstep.measure.parts import chosen_cells, comparisons_of
from lockstep.measure.planning import Compare, Comparison
from lockstep.records import read_records, read_traced_table
from lockstep.records.places import repository_root

MEASURED = [found.name for found in every() if found.grid is not None]
OF_THE_RUN = ("round", "seed", "images", "data_source")
"""Columns of a record that the data and the round decide, not the grid."""


def parameters_of_reference(name: str) -> Parameters:
    """The parameters that the stored records were measured with."""
    notebooks = repository_root() / "notebooks"
    values: dict[str, Any] = {
        key: parameter.default for key, parameter in read_parameters(notebooks / f"{name}.ipynb").items()
    }
    told = json.loads((repository_root() / "results" / "reference" / name / "run.json").read_text())["parameters"]
    values |= {key: value for key, value in told.items() if value != values.get(key)}
    return Parameters(**values)


@pytest.mark.parametrize("name", MEASURED)
def test_the_stored_rows_are_of_cells_of_the_grid(name: str) -> None:
    """Maybe not of all: a run measures what its minutes allow. Of what learns, older cells may stay."""
    grid = experiment(name).grid
    assert grid is not None
    jobs = grid(parameters_of_reference(name))
    records = read_records(repository_root() / "results" / "reference" / name)
    records = records[~records["experiment"].isin(LEARNING)]
    kept = [column for column in CELL if column not in OF_THE_RUN]
    asked = {tuple(getattr(job, column) for column in kept) for job in jobs}
    assert set(records[kept].itertuples(index=False, name=None)) <= asked


TRACED_CELL = ["experiment", "use_case", "strategy", "workers", "device"]


@pytest.mark.parametrize("name", MEASURED)
def test_the_traced_cells_are_those_whose_samples_are_stored(name: str) -> None:
    """Samples are stored by these columns alone, so no two traced cells of a grid may share them."""
    found = experiment(name)
    assert found.grid is not None
    traced = pd.DataFrame([vars(job) for job in found.grid(parameters_of_reference(name)) if found.traced(job)])
    folder = repository_root() / "results" / "reference" / name
    stored = read_traced_table(folder, "resources")
    if stored is None:
        pytest.skip("no cell was sampled for a minute yet")
    spans = stored.groupby(["round", *TRACED_CELL])["seconds"].agg(lambda seconds: seconds.max() - seconds.min())
    assert (spans > 0.8 * TRACE_SECONDS).all(), "some seconds are no trace"
    assert not traced.duplicated(TRACED_CELL).any()
    rows = read_records(folder)
    measured = set(map(tuple, rows.loc[rows["status"] == "ok", TRACED_CELL].to_numpy()))
    expected = {cell for cell in map(tuple, traced[TRACED_CELL].to_numpy()) if cell in measured}
    assert set(map(tuple, stored[TRACED_CELL].drop_duplicates().to_numpy())) <= expected


def compare_of(name: str) -> Compare:
    """As a run asks for it."""
    found = experiment(name)
    return partial(found.planned, parameters_of_reference(name)) if found.planned else found.comparisons or pairs_of


KINDS = ("experiment", "use_case", "strategy", "device")


@pytest.mark.parametrize("name", MEASURED)
def test_every_part_of_a_grid_can_be_measured_by_itself(name: str) -> None:
    """Seen: half an hour for one missing row of 03, since its minutes went to other cells first."""
    jobs, compare = cells_of_reference(name), compare_of(name)
    whole = list(compare(jobs))
    assert comparisons_of(jobs, [], compare) == whole and chosen_cells(jobs, []) == jobs
    for part in {getattr(job, kind) for job in jobs for kind in KINDS} - {""}:
        own = chosen_cells(jobs, [part])
        first = next(kind for kind in KINDS if part in {getattr(job, kind) for job in jobs})
        assert own == [job for job in jobs if getattr(job, first) == part]
        told, asked = named(comparisons_of(jobs, [part], compare), own), named(whole, jobs)
        assert {job for cells, *_ in told for job in cells} == {*own}
        assert [each for each in asked if {*each[0]} <= {*own}] == [each for each in told if each in asked]


def named(comparisons: list[Comparison], jobs: list[Job]) -> list[tuple[tuple[Job, ...], bool, int]]:
    return [(tuple(jobs[at] for at in each.cells), each.headline, each.rounds) for each in comparisons]


def cells_of_reference(name: str) -> list[Job]:
    grid = experiment(name).grid
    assert grid is not None
    return grid(parameters_of_reference(name))


def test_a_part_of_13_keeps_its_cells_in_one_round() -> None:
    """13 calibrates and checks in the same round; its cells stand in no pairs."""
    name = "13_advisor"
    jobs, only = cells_of_reference(name), ["SmallResNet"]
    (together,) = [each for each in comparisons_of(jobs, only, compare_of(name)) if each.once]
    own = chosen_cells(jobs, only)
    assert {own[at].experiment for at in together.cells} >= {"calibration", "held_out"}


def test_names_of_different_kinds_must_all_fit() -> None:
    jobs = cells_of_reference("03_pipelined_model_parallelism")
    own = chosen_cells(jobs, ["speedup", "ComplexSmall", "gpipe", "sequential"])
    assert {job.strategy for job in own} == {"gpipe", "sequential"}
    assert {(job.experiment, job.use_case) for job in own} == {("speedup", "ComplexSmall")}


def test_a_name_of_an_experiment_and_of_a_strategy_is_the_experiments() -> None:
    own = chosen_cells(cells_of_reference("03_pipelined_model_parallelism"), ["speedup", "decode"])
    assert {job.experiment for job in own} == {"speedup", "decode"} and len({job.strategy for job in own}) > 3


@pytest.mark.parametrize(
    ("only", "said"),
    [(["exchange", "unknown"], "no cell of 'unknown'; there are experiment: "),
     (["exchange", "ComplexSmall"], "no cell of 'ComplexSmall' with 'exchange'; there are "),
     ([{}], "no cell of '{}'; there are ")],
)  # fmt: skip
def test_a_part_that_is_not_there_is_refused(only: list[Any], said: str) -> None:
    with pytest.raises(JobError, match=re.escape(said)):
        chosen_cells(cells_of_reference("02_threads_vs_processes"), only)
