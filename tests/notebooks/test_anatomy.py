"""Every notebook has the anatomy of the house: a question, one parameters cell, stored outputs, no machine path."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import experiment

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
MOST_CELLS = 25
MOST_WORDS, MOST_ROWS = 900, 40  # before the appendix: it is read in ten minutes
MOST_LINES = 10  # of a function
PLACE = re.compile(r"(?<![\w.~/*-])/(?:work|farm|root|home|Users|opt|tmp|private|var)/\w")
ANSWERING = [path for path in NOTEBOOKS if experiment(path.stem).answer is not None]
every_answer = pytest.mark.parametrize("path", ANSWERING, ids=lambda path: path.stem)
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
def test_it_opens_its_own_experiment_with_its_own_variables(path: Path) -> None:
    """With all of them, so that no parameter is forgotten on the way (see tests/experiments/test_opening.py)."""
    calls = [
        ast.unparse(node)
        for cell in code_cells(path)
        for node in ast.walk(python(cell))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "open_experiment"
    ]
    assert calls == [f"open_experiment({path.stem[:2]!r}, globals())"]


@every_notebook
def test_what_it_shows_is_in_its_experiment(path: Path) -> None:
    own = experiment(path.stem)
    known = {"figure": own.figures, "table": own.tables, "finding": own.findings, "text": own.texts}
    shown: dict[str, set[str]] = {kind: set() for kind in known}
    for cell in code_cells(path):
        for node in ast.walk(python(cell)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in known:
                shown[node.func.attr] |= {ast.literal_eval(argument) for argument in node.args}
    for kind, names in shown.items():
        assert names <= set(known[kind]), kind
    assert shown["figure"] == set(own.figures), "every figure that is stored is shown"


@every_notebook
def test_one_that_measures_takes_images_and_can_be_strict_about_them(path: Path) -> None:
    parameters = read_parameters(path)
    measures = experiment(path.stem).grid is not None
    assert {name: name in parameters for name in ("data_dir", "strict", "images", "rounds")} == dict.fromkeys(
        ("data_dir", "strict", "images", "rounds"), measures
    )
    if measures:
        assert parameters["strict"].kind == "bool" and parameters["strict"].default is False


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
def test_every_figure_has_an_alternative_text(path: Path) -> None:
    """For those who can't see it: in the metadata, and where no picture is shown in its place."""
    figures = [output for output in outputs(path) if "image/png" in output.get("data", {})]
    for output in figures:
        words = output["metadata"].get("image/png", {}).get("alt", "")
        assert len(words.split()) >= 5 and words.endswith("."), words
        assert "".join(output["data"]["text/plain"]) == words


@every_notebook
def test_it_knows_no_machine_and_no_time(path: Path) -> None:
    text = json.dumps([{"source": cell["source"], "outputs": cell.get("outputs")} for cell in read(path)["cells"]])
    assert not PLACE.findall(text)
    notebook = read(path)
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}, "`make notebooks` leaves the rest out"
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    timed = [source(cell) for cell in notebook["cells"] if set(cell["metadata"]) - {"tags", "jupyter"}]
    assert not timed, "`make notebooks` leaves times and other metadata out"


def cells_of_tables(shown: Iterable[dict[str, Any]], kind: str = "[dh]") -> list[str]:
    """The texts of all cells of all tables, or of their headings alone (`kind="h"`)."""
    tables = "".join("".join(data.get("text/html", "")) for data in shown)
    found = re.findall(rf"<t{kind}[^>]*>(.*?)</t{kind}>", tables, re.DOTALL)
    return [html.unescape(re.sub("<[^>]*>", "", text)).strip() for text in found]


@every_notebook
def test_its_tables_are_in_words_the_appendix_included(path: Path) -> None:
    """No name that only the code knows, nothing that is missing under a name of pandas, nothing cut off, no row
    numbers."""
    shown = [output["data"] for output in outputs(path) if "data" in output]
    headings, cells = cells_of_tables(shown, "h"), cells_of_tables(shown)
    assert cells
    assert [text for text in headings if "_" in text or not text or text.isdigit()] == []
    assert [text for text in cells if re.search(r"\b(nan|NaN|NaT|None|True|False)\b", text)] == []
    assert [text for text in cells if text.endswith(("...", "…"))] == [], "pandas ends a text after 50 characters"
    assert [text for text in cells if re.fullmatch(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)+", text)] == []
    assert [text for text in cells if len(re.findall(r"\d", text.partition(" ")[0])) > 9] == [], "of so many digits"


@every_notebook
def test_its_code_is_folded(path: Path) -> None:
    assert all(cell["metadata"].get("jupyter") == {"source_hidden": True} for cell in code_cells(path))


def test_every_notebook_answers_its_title() -> None:
    assert ANSWERING == NOTEBOOKS


@every_answer
def test_its_first_screen_answers_the_title(path: Path) -> None:
    """The first cell behind the parameters shows the question, a computed answer, its machine, and one figure."""
    title, parameters, first = read(path)["cells"][:3]
    assert len(source(title).split()) <= 150
    assert "parameters" in parameters["metadata"]["tags"] and "run.answer()" in source(first)
    shown = [output["data"] for output in first["outputs"] if "data" in output]
    box = "".join("".join(data.get("text/markdown", "")) for data in shown)
    assert box.startswith(f"> **{experiment(path.stem).question}**")
    assert experiment(path.stem).grid is None or " cores, " in box, "it names the machine"
    assert "do not answer this yet" not in box.splitlines()[2]
    assert sum("image/png" in data for data in shown) == 1


@every_answer
def test_every_figure_has_a_finding(path: Path) -> None:
    own = experiment(path.stem)
    assert set(own.figures) <= set(own.findings)


@every_answer
def test_it_is_read_in_ten_minutes(path: Path) -> None:
    """What stands before the appendix: few words, few rows, and nothing in them that only the code knows."""
    cells = read(path)["cells"]
    ends = [i for i, cell in enumerate(cells) if re.search(r"^## Appendix", source(cell), re.MULTILINE)]
    assert len(ends) == 1 and source(cells[ends[0]]).startswith("## Appendix"), "one appendix, in a cell of its own"
    prose = [source(cell) for cell in cells[: ends[0]] if cell["cell_type"] == "markdown"]
    shown = [output.get("data", {}) for cell in cells[: ends[0]] for output in cell.get("outputs", [])]
    prose += ["".join(data.get("text/markdown", "")) for data in shown]
    words = sum(len(text.split()) for text in prose)
    assert words <= MOST_WORDS, words
    tables = ["".join(data.get("text/html", "")) for data in shown]
    assert sum(table.count("<tr") for table in tables) <= MOST_ROWS
