"""`lockstep figures` and `lockstep report`: what they refuse, in which words, and the sheet of all figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from lockstep.analysis.figures.sheet import contact_sheet
from lockstep.analysis.figures.style import empty, save_figure
from lockstep.commands.application import app
from small_notebooks import small_repository


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = small_repository(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


def test_figures_and_report_need_records(small: Path) -> None:
    for command in ("figures", "report"):
        result = CliRunner().invoke(app, [command])
        assert result.exit_code == 2 and "results/reference does not exist" in result.output
        (small / "results" / "empty").mkdir(parents=True, exist_ok=True)
        result = CliRunner().invoke(app, [command, "--results", "results/empty"])
        assert result.exit_code == 2 and "holds no records" in result.output


def test_figures_and_report_leave_00_alone(small: Path) -> None:
    """Its folder holds an executed notebook and no records."""
    (small / "results" / "runs" / "smoke" / "00_overview").mkdir(parents=True)
    for command in ("figures", "report"):
        result = CliRunner().invoke(app, [command, "--results", "results/runs/smoke"])
        assert result.exit_code == 2 and "holds no records" in result.output


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "can't be read (No such file"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b"nothing generated", "holds no table to fill"),
        (b"<!-- table:nope -->\n<!-- /table -->", "table 'nope' does not exist; there are: advice"),
        (b"<!-- table:two words -->\n<!-- /table -->", "table 'two words' does not exist"),
        (b"<!-- table:headlines -->\n", "1 tables begin and only 0 end"),
    ],
)
def test_a_file_that_can_not_be_filled_is_told_and_left(small: Path, content: bytes | None, expected: str) -> None:
    (small / "results" / "run" / "07_small").mkdir(parents=True)
    (small / "results" / "run" / "07_small" / "records.csv").write_text("")
    path = small / "PAGE.md"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(app, ["report", "--results", "results/run", "--fill", "PAGE.md"])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    assert result.output.startswith("refused: PAGE.md") and expected in result.output
    assert (path.read_bytes() if content is not None else None) == content


def test_all_figures_stand_on_one_sheet(tmp_path: Path) -> None:
    """In their notebooks' order, each once; none to show is an error that says what to do."""
    figure = empty("A title", "why")
    pictures = [save_figure(figure, tmp_path / name / "figures", "speedup", ("png",))[0] for name in ("02_a", "03_b")]
    assert contact_sheet(pictures, tmp_path) == tmp_path / "contact_sheet.png"
    height, width, _ = imread(tmp_path / "contact_sheet.png").shape
    assert width > 3 * height, "one row of four places"
    with pytest.raises(ValueError, match="draw them first with `lockstep figures`"):
        contact_sheet([], tmp_path)
