"""Every notebook runs from the stored results, and shows the very tables that are committed (nbval)."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import nbformat
import papermill
import pytest

from lockstep.commands.runner.errors import RunFailed
from lockstep.commands.runner.execution import execute, refresh
from lockstep.commands.runner.plans import plan_runs
from lockstep.experiments.catalogue import catalogue

HERE = Path(__file__).resolve().parent
NOTEBOOKS = sorted((HERE.parents[1] / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.usefixtures("no_leftovers")


def nbval(*paths: Path, report: Path | None = None) -> subprocess.CompletedProcess[str]:
    """nbval in a pytest of its own, with this interpreter as the kernel; images are not compared, tables are."""
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=300"]
    command += ["--nbval-sanitize-with", str(HERE / "sanitise.cfg"), "-q", "--no-header", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-o", "timeout=0", *([f"--junit-xml={report}"] if report else []), *map(str, paths)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Of each notebook: "" for every cell that shows what is committed, and what is wrong with the others."""
    before = [path.read_bytes() for path in NOTEBOOKS]
    report = tmp_path_factory.mktemp("nbval") / "report.xml"
    result = nbval(*NOTEBOOKS, report=report)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    assert [path.read_bytes() for path in NOTEBOOKS] == before
    cells: dict[str, list[str]] = {path.stem: [] for path in NOTEBOOKS}
    for case in xml.parse(report).iter("testcase"):
        wrong = [each.get("message", "") + (each.text or "") for each in case if each.tag in ("failure", "error")]
        name = next(stem for stem in cells if stem in case.get("classname", "") + case.get("name", ""))
        cells[name].append("\n".join(wrong))
    return cells


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first of them waits for all
@pytest.mark.xdist_group("nbval")  # one process for all notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_shows_the_stored_tables_again(path: Path, shown: dict[str, list[str]]) -> None:
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert len(shown[path.stem]) == len(code), "every cell was run"
    assert not any(shown[path.stem]), "\n".join(filter(None, shown[path.stem]))


@pytest.mark.slow
def test_the_overview_renders_without_any_record(root: Path, tmp_path: Path) -> None:
    """A run folder in which nothing has been measured yet."""
    (plan,) = plan_runs(["00"], root, out=tmp_path / "run")
    execute(plan)
    assert [path.name for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name[0] != "."] == [
        "executed.ipynb"
    ]
    text = plan.executed.read_text(encoding="utf-8")
    assert "No records are stored in this run folder." in text
    assert text.count('"image/png": "') == 1, "every claim is not measured yet"
    assert "no claim has both a published and a measured number yet." in text, "a sentence in place of a figure"
    built = [notebook for notebook in catalogue() if notebook.built and notebook.number != "00"]
    assert text.count("none are stored here: not measured yet") == len(built) > 0


def test_papermill_warns_of_no_parameter_that_ours_reads(caplog: pytest.LogCaptureFixture) -> None:
    """Every run of notebook 11 began with five warnings of lines that papermill "was unable to parse"."""
    for path in NOTEBOOKS:
        papermill.inspect_notebook(str(path))
    assert not caplog.messages


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A notebook that shows a table, as `make notebooks` leaves it."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# Is it compared?"),
        nbformat.v4.new_code_cell("measure: bool = False", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("import pandas as pd\npd.DataFrame({'speedup': [1.87]})"),
    ]
    path = tmp_path / "01_table.ipynb"
    nbformat.write(notebook, path)
    refresh(path, tmp_path, 120)
    return path


@pytest.mark.slow
def test_another_number_in_a_table_is_found(table: Path) -> None:
    assert nbval(table).returncode == 0
    text = table.read_text()
    assert text.count("1.87") >= 2, "as text and as HTML"
    table.write_text(text.replace("<td>1.87</td>", "<td>1.97</td>"))
    result = nbval(table)
    assert result.returncode == 1 and "1.97" in result.stdout


def test_refreshing_changes_nothing_unless_the_results_do(table: Path) -> None:
    before = table.read_text()
    refresh(table, table.parent, 120)
    assert table.read_text() == before
    assert '"execution_count": 2' in before and str(table.parent) not in before


def test_a_notebook_that_fails_is_not_replaced(table: Path) -> None:
    broken = table.read_text().replace("[1.87]", "[1.87][5]")
    table.write_text(broken)
    with pytest.raises(RunFailed, match="IndexError"):
        refresh(table, table.parent, 120)
    assert table.read_text() == broken
