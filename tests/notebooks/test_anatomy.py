"""Every notebook has the anatomy of the house: a question, one parameters cell, stored outputs, no machine path."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lockstep.commands.runner import read_parameters

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
MOST_CELLS = 25
MOST_LINES = 10  # of a function
PLACE = re.compile(r"(?<![\w.~/*-])/(?:work|farm|root|home|Users|opt|tmp|private|var)/\w")
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS, "notebooks/ holds no notebook: the checks of this folder would check nothing"


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in code_cells(path) for output in cell["outputs"]]


def python(cell: dict[str, Any]) -> ast.Module:
    lines = source(cell).splitlines()
    return ast.parse("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))))


@every_notebook
def test_its_title_is_a_question_and_it_is_short(path: Path) -> None:
    cells = read(path)["cells"]
    title = source(cells[0]).splitlines()[0]
    assert cells[0]["cell_type"] == "markdown" and title.startswith("# ") and title.rstrip().endswith("?"), title
    assert len(cells) <= MOST_CELLS


@every_notebook
def test_it_has_one_parameters_cell_that_papermill_and_the_runner_understand(path: Path) -> None:
    parameters = read_parameters(path)
    assert parameters["measure"].default is False and parameters["measure"].kind == "bool"
    assert parameters["results"].default == "results/reference"
    (cell,) = [cell for cell in code_cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    lines = [line for line in python(cell).body if not isinstance(line, ast.Expr)]
    assert all(isinstance(line, ast.AnnAssign) for line in lines), "every parameter has its type"
    unions = [
        ast.unparse(line) for line in lines if isinstance(line, ast.AnnAssign) and "|" in ast.unparse(line.annotation)
    ]
    assert not unions, "papermill drops parameters with | in their type"
    comments = [line for line in source(cell).splitlines() if "#" in line]
    assert comments, "the parameters say what they mean"


@every_notebook
def test_one_that_takes_images_can_be_strict_about_them(path: Path) -> None:
    parameters = read_parameters(path)
    text = "\n".join(source(cell) for cell in code_cells(path))
    assert ("data_dir" in parameters) == ("strict" in parameters) == ("strict=strict" in text)
    if "strict" in parameters:
        assert parameters["strict"].kind == "bool" and parameters["strict"].default is False
        assert "data_dir=data_dir" in text, "a parameter that nobody reads would be a promise broken"


@every_notebook
def test_it_leaves_the_work_to_the_library(path: Path) -> None:
    for cell in code_cells(path):
        for node in ast.walk(python(cell)):
            assert not isinstance(node, ast.ClassDef), f"class {getattr(node, 'name', '')} belongs into lib/"
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= MOST_LINES, f"{node.name} has {length} lines; it belongs into lib/"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                drawing = {name.partition(".")[0] for name in names} & {"matplotlib", "seaborn", "sys", "os"}
                assert not drawing, f"{drawing}: plotting is a call of the library, and paths are its business"


@every_notebook
def test_it_carries_its_outputs(path: Path) -> None:
    cells = [cell for cell in code_cells(path) if source(cell).strip()]
    uncounted = [source(cell).splitlines()[0] for cell in cells if not cell["execution_count"]]
    assert not uncounted, "nbval checks nothing where the execution count is missing; run `make notebooks`"
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run from top to bottom"
    assert not [output["evalue"] for output in outputs(path) if output["output_type"] == "error"]
    warned = ["".join(output["text"]) for output in outputs(path) if output.get("name") == "stderr"]
    assert not warned, "a committed notebook shows no warnings and no progress"


@every_notebook
def test_every_figure_is_a_png_with_a_table_beside_it(path: Path) -> None:
    kinds = [set(output.get("data", {})) for output in outputs(path)]
    images = [kind for kind in kinds if any(name.startswith("image/") for name in kind)]
    assert images, "opening a notebook shows its figures"
    assert all("image/png" in kind and "image/svg+xml" not in kind for kind in images)
    assert any("text/html" in kind for kind in kinds), "nbval compares tables only: the plotted figures need one"


@every_notebook
def test_it_knows_no_machine_and_no_time(path: Path) -> None:
    text = json.dumps([{"source": cell["source"], "outputs": cell.get("outputs")} for cell in read(path)["cells"]])
    assert not PLACE.findall(text)
    notebook = read(path)
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}, "`make notebooks` leaves the rest out"
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    timed = [source(cell) for cell in notebook["cells"] if set(cell["metadata"]) - {"tags"}]
    assert not timed, "`make notebooks` leaves times and other metadata out"
