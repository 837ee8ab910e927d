"""A run folder with one notebook, with one round of it, with failed rows only, with a header or with nothing: figures,
findings, notebook 00 and the report say what is missing, and nothing raises."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot

from lockstep.experiments.opening import Run, open_experiment
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import experiment
from lockstep.experiments.report import report_all, report_json
from lockstep.records.schema import MEASUREMENTS

pytestmark = pytest.mark.slow

ONE = "02_threads_vs_processes"
CHANGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "one notebook": lambda rows: rows,
    "one round": lambda rows: rows[rows["round"] == rows["round"].min()],
    "all failed": lambda rows: rows.assign(status="failed", reason="the worker was killed by SIGKILL"),
    "no rows": lambda rows: rows.iloc[:0],
}


@pytest.fixture(scope="module", params=[*CHANGES, "empty folder", "no folder"])
def folder(request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run: Path = tmp_path_factory.mktemp("run")
    if request.param == "no folder":
        return run / "nowhere"
    if request.param in CHANGES:
        own = run / ONE
        without = shutil.ignore_patterns("figures", "*checks.csv")  # whose rows are about to change
        shutil.copytree(root / "results" / "reference" / ONE, own, ignore=without)
        rows = pd.read_csv(own / "records.csv", dtype=str, keep_default_na=False)
        rows["round"] = rows["round"].astype(int)
        changed = CHANGES[request.param](rows)
        if request.param == "all failed":
            changed = changed.assign(**dict.fromkeys(MEASUREMENTS, ""))
        changed.to_csv(own / "records.csv", index=False)
    return run


def opened(name: str, root: Path, folder: Path) -> Run:
    found = read_parameters(root / "notebooks" / f"{experiment(name).name}.ipynb")
    values = {each: parameter.default for each, parameter in found.items()}
    return open_experiment(name, values | {"results": str(folder)})


@pytest.mark.parametrize("name", ["00", "02"])
def test_a_notebook_of_a_poor_run_folder_says_what_is_missing(name: str, root: Path, folder: Path) -> None:
    run = opened(name, root, folder)
    told = [run.answer().data, *(run.finding(each).data for each in run.experiment.findings)]
    told += [run.text(each).data for each in run.experiment.texts]
    for text in told:
        assert text and not re.search(r"\bnan\b|Traceback|None\b", text), text
    for table in (*(run.table(each) for each in run.experiment.tables), run.verdicts(), run.targets()):
        assert not re.search(r">(NaN|nan|None|True|False)<|[a-z]_[a-z]\w*</th>", table._repr_html_())
    for each in run.experiment.figures:
        figure = run.figure(each)
        figure.draw_without_rendering()
        nothing = getattr(figure, "nothing", "")
        assert bool(figure.axes) and (not nothing or nothing.endswith("."))
        assert (figure._repr_png_() is None) == bool(nothing), "what has nothing to show is told, not drawn"  # type: ignore[attr-defined]
        pyplot.close(figure)


def test_the_report_of_a_poor_run_folder_has_every_claim(folder: Path) -> None:
    text, machine_read = report_all(folder), report_json(folder)
    assert "not measured yet" in text and "NaN" not in text and "NaN" not in machine_read
