"""A notebook opens its experiment with its own variables: none is repeated, and none is forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.analysis.published import CLAIM, read_ledger
from lockstep.analysis.sentences import briefly, with_lists
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.opening import WHERE, open_experiment, own_results
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import EXPERIMENTS, UnknownExperiment, every, experiment
from lockstep.records.places import FROM_NOTEBOOKS, REFERENCE, RUN_MARK

LOCAL = "02_threads_vs_processes"


@pytest.fixture(scope="module")
def values(root: Path) -> dict[str, Any]:
    return left_behind(root, LOCAL)


def left_behind(root: Path, name: str) -> dict[str, Any]:
    """What the parameters cell of a notebook leaves behind, with much else."""
    cells = json.loads((root / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    (cell,) = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    found: dict[str, Any] = {"something_else": object()}
    exec("".join(cell["source"]), found)
    return found


def test_it_takes_every_parameter_and_nothing_else(root: Path, values: dict[str, Any]) -> None:
    run = open_experiment("02", values)
    assert list(vars(run.parameters)) == list(read_parameters(root / "notebooks" / f"{LOCAL}.ipynb"))
    assert run.parameters.scaling_batch_size == values["scaling_batch_size"]


@pytest.mark.slow
def test_it_reads_what_is_stored(values: dict[str, Any]) -> None:
    run = open_experiment("02", values)
    assert len(run.stored.records) and run.folder.name == LOCAL
    sessions = json.loads((run.folder / "run.json").read_text())["sessions"]
    assert "rounds" in run.about()
    for session in sessions:
        machine = session["machine"]
        assert f"{machine['cores']} cores" in run.about() and session["day"] in run.about()
        assert f"bfloat16 units: {machine['bfloat16']} (" in run.about(), "none is a word here"
    assert len(run.table("speedup")) and run.figure("speedup").axes
    assert run.finding("speedup").data == with_lists(briefly(run.experiment.findings["speedup"](run.stored)))
    assert "session 0:" not in run.finding("speedup").data, "tables tell what each session gave"
    assert len(run.verdicts()) and len(run.targets())


@pytest.mark.slow
def test_what_is_not_judged_stands_beside_the_verdicts(values: dict[str, Any]) -> None:
    run = open_experiment("02", values)
    ledger = read_ledger()
    own = ledger[ledger["notebook"] == LOCAL]
    claims = own["kind"] == CLAIM
    assert sorted(run.verdicts()["claim"]) == sorted(own.loc[claims, "id"])
    head, _, *rows = run.unjudged().data.splitlines()
    assert head == "| Place | Kind | About | Published | Note |"
    assert [row.split(" | ")[1:3] for row in rows] == own.loc[~claims, ["kind", "statement"]].to_numpy().tolist() != []


def test_a_subject_on_which_nothing_is_open_has_no_table_without_rows(root: Path) -> None:
    told = open_experiment("09", left_behind(root, "09_autotuning")).unjudged().data
    assert told == "The ledger lists nothing more that is open here."


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


MEASURING = [found.name for found in every() if found.grid is not None]


class Noted(Parameters):
    """Parameters that note which of them were read."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        object.__setattr__(self, "noted", set())

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__") and name not in ("noted", "of"):
            object.__getattribute__(self, "noted").add(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("name", MEASURING)
def test_every_parameter_of_a_notebook_is_read(root: Path, name: str) -> None:
    """By its grid, by the measurement of any grid, or by what is drawn."""
    own = experiment(name)
    defaults = {key: found.default for key, found in read_parameters(root / "notebooks" / f"{name}.ipynb").items()}
    chosen = Noted(**defaults)
    assert own.grid is not None and own.grid(chosen)
    by_all = {*WHERE, "images", "strict", *own.drawn_only}
    noted = chosen.noted - set(vars(Parameters)) - {"results"}  # a grid may grow by what its folder holds
    assert noted == set(defaults) - by_all


@pytest.mark.parametrize("name", MEASURING)
def test_measuring_hands_over_every_parameter_that_decides_what_is_measured(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name forgotten by hand once weakened the check that a run goes on with the parameters it began with."""
    import lockstep.experiments.opening as opening
    from lockstep.measure import grid

    own = replace(experiment(name), after=None)
    given: dict[str, Any] = {}
    monkeypatch.setattr(grid, "run_grid", lambda jobs, **others: given.update(jobs=jobs, **others))
    monkeypatch.setattr(opening, "draw_all", lambda *_: [])
    monkeypatch.setenv(RUN_MARK, "of a run that says where")
    monkeypatch.setattr(opening, "experiment", lambda _: own)
    values = {key: found.default for key, found in read_parameters(root / "notebooks" / f"{name}.ipynb").items()}
    values |= {"measure": True, "rounds": 7, "data_dir": "photos", "images": 64, "strict": True}
    run = open_experiment(name, values)
    assert (given["rounds"], given["data_dir"], given["images"], given["strict"]) == (7, "photos", 64, True)
    assert given["notebook"] == name and given["results"] == REFERENCE
    assert given["parameters"] == {key: value for key, value in values.items() if key not in (*WHERE, *own.drawn_only)}
    assert given["jobs"] == run.grid and given["traced"] is own.traced


def test_an_opened_notebook_never_measures_into_the_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lockstep run --reference` is the one way to change them."""
    opened = {"measure": True, "results": REFERENCE}
    assert own_results(opened) == {"results": FROM_NOTEBOOKS}
    assert own_results(opened | {"measure": False}) == own_results(opened | {"results": "results/mine"}) == {}
    monkeypatch.setenv(RUN_MARK, "token")
    assert own_results(opened) == {}


def test_a_use_case_without_a_value_is_an_error_that_says_where() -> None:
    from lockstep.engine.job import JobError

    with pytest.raises(JobError, match=r"batch=.*has no value for use case 'SimpleBig'"):
        Parameters(batch={"ComplexSmall": 2}).of("batch", "SimpleBig")
    with pytest.raises(JobError, match=r"^prices=\{\} lacks 'dropout'; give it, as the notebook's own value does$"):
        Parameters(prices={}).part("prices", "dropout")


def test_every_experiment_asks_what_its_notebook_asks(root: Path) -> None:
    for found in every():
        cells = json.loads((root / "notebooks" / f"{found.name}.ipynb").read_text())["cells"]
        assert "".join(cells[0]["source"]).splitlines()[0] == f"# {found.number} · {found.question}"
    assert [found.name for found in every()] == list(EXPERIMENTS)
