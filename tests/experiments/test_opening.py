"""A notebook opens its experiment with its own variables: none is repeated, and none is forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.experiments.experiment import Parameters
from lockstep.experiments.opening import WHERE, open_experiment
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import EXPERIMENTS, UnknownExperiment, every, experiment

LOCAL = "02_threads_vs_processes"


@pytest.fixture(scope="module")
def values(root: Path) -> dict[str, Any]:
    """What the parameters cell of notebook 02 leaves behind, with much else."""
    import json

    cells = json.loads((root / "notebooks" / f"{LOCAL}.ipynb").read_text())["cells"]
    (cell,) = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    found: dict[str, Any] = {"something_else": object()}
    exec("".join(cell["source"]), found)
    return found


def test_it_takes_every_parameter_and_nothing_else(root: Path, values: dict[str, Any]) -> None:
    run = open_experiment("02", values)
    assert list(vars(run.parameters)) == list(read_parameters(root / "notebooks" / f"{LOCAL}.ipynb"))
    assert run.parameters.scaling_batch_size == values["scaling_batch_size"]


def test_it_reads_what_is_stored(values: dict[str, Any]) -> None:
    run = open_experiment("02", values)
    assert len(run.stored.records) and run.folder.name == LOCAL
    assert "cores" in run.about() and "rounds" in run.about()
    assert len(run.table("speedup")) and run.figure("speedup").axes
    assert "AlexNet" in run.finding("speedup").data
    assert len(run.verdicts()) and len(run.targets())


def test_a_name_that_it_has_not_is_an_error_that_lists_what_there_is(values: dict[str, Any]) -> None:
    run = open_experiment("02", values)
    for ask in (run.figure, run.table, run.finding):
        with pytest.raises(KeyError, match=r"there are: .*speedup"):
            ask("no such thing")


def test_a_parameter_without_a_value_is_named(values: dict[str, Any]) -> None:
    rest = {name: value for name, value in values.items() if name != "workers"}
    with pytest.raises(KeyError, match="workers"):
        open_experiment("02", rest)


def test_an_unknown_experiment_lists_those_that_exist() -> None:
    with pytest.raises(UnknownExperiment, match=LOCAL):
        experiment("77")


def test_measuring_hands_over_every_parameter_that_decides_what_is_measured(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name forgotten by hand once weakened the check that a run goes on with the parameters it began with."""
    import lockstep.experiments.opening as opening
    from lockstep.measure import grid

    given: dict[str, Any] = {}
    monkeypatch.setattr(grid, "run_grid", lambda jobs, **others: given.update(jobs=jobs, **others))
    monkeypatch.setattr(opening, "draw_all", lambda *_: [])
    run = open_experiment("02", {**values, "measure": True, "rounds": 7})
    assert given["rounds"] == 7 and given["notebook"] == LOCAL
    assert set(given["parameters"]) == set(vars(run.parameters)) - set(WHERE)
    assert given["jobs"] == run.grid and given["traced"] is experiment("02").traced


def test_a_use_case_without_a_value_is_an_error_that_says_where() -> None:
    from lockstep.engine.job import JobError

    with pytest.raises(JobError, match=r"batch=.*has no value for use case 'SimpleBig'"):
        Parameters(batch={"ComplexSmall": 2}).of("batch", "SimpleBig")


def test_every_experiment_asks_what_its_notebook_asks(root: Path) -> None:
    import json

    for found in every():
        cells = json.loads((root / "notebooks" / f"{found.name}.ipynb").read_text())["cells"]
        assert "".join(cells[0]["source"]).splitlines()[0] == f"# {found.number} · {found.question}"
    assert [found.name for found in every()] == list(EXPERIMENTS)
