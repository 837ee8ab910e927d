"""Every experiment's grid is what its stored records hold: the same cells, in the same order."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from lockstep.commands.runner.parameters import read_profile
from lockstep.engine.job import IDENTITY
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import every, experiment
from lockstep.records import read_records, read_traced_table
from lockstep.records.places import repository_root

MEASURED = [found.name for found in every() if found.grid is not None]
PROFILES = {"07_convlstm_batch_size": "long"}
"""What the stored run was made with, where the grid follows the order of keys: `run.json` sorts them."""
OF_THE_RUN = ("round", "seed", "images", "data_source")
"""Columns of a record that the data and the round decide, not the grid."""


def parameters_of_reference(name: str) -> Parameters:
    """The parameters that the stored records were measured with."""
    notebooks = repository_root() / "notebooks"
    values: dict[str, Any] = {
        key: parameter.default for key, parameter in read_parameters(notebooks / f"{name}.ipynb").items()
    }
    if name in PROFILES:
        values |= read_profile(notebooks / "profiles" / f"{PROFILES[name]}.yaml")[name]
    told = json.loads((repository_root() / "results" / "reference" / name / "run.json").read_text())["parameters"]
    values |= {key: value for key, value in told.items() if value != values.get(key)}
    return Parameters(**values)


@pytest.mark.parametrize("name", MEASURED)
def test_a_grid_is_what_the_records_of_its_parameters_hold(name: str) -> None:
    kept = [column for column in IDENTITY if column not in OF_THE_RUN]
    grid = experiment(name).grid
    assert grid is not None
    jobs = grid(parameters_of_reference(name))
    records = read_records(repository_root() / "results" / "reference" / name)
    stored = records.loc[records["round"] == 0, kept].reset_index(drop=True)
    asked = pd.DataFrame([vars(job) for job in jobs])[kept]
    pd.testing.assert_frame_equal(asked, stored, check_dtype=False)


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
        assert traced.empty
        return
    assert not traced.duplicated(TRACED_CELL).any()
    rows = read_records(folder)
    measured = set(map(tuple, rows.loc[rows["status"] == "ok", TRACED_CELL].to_numpy()))
    expected = {cell for cell in map(tuple, traced[TRACED_CELL].to_numpy()) if cell in measured}
    assert set(map(tuple, stored[TRACED_CELL].drop_duplicates().to_numpy())) == expected
