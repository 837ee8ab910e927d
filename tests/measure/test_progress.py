"""Progress of measuring: a bar in a notebook, one line on a terminal, lines elsewhere, and what an interrupt keeps."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from rich.console import Console

from lockstep.commands.runner.progress import CellProgress
from lockstep.measure import progress
from lockstep.measure.progress import KEPT, Bar, Lines, OneLine, UnderRunner, progress_of, say
from lockstep.records import read_records
from lockstep.records.places import RUN_MARK
from made_up_measuring import Recorder, run


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a notebook is given to display, in place of displaying it."""
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **how: shown.append({**data, **how}))
    return shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_progress_is_seen_decides_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_MARK, raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(progress_of("02")) is Lines, "a log file, or IPython on one"
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(progress_of("02")) is OneLine
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    assert type(progress_of("02")) is Bar
    monkeypatch.setenv(RUN_MARK, "a run")
    assert type(progress_of("02")) is UnderRunner, "the runner shows the kernel's stderr and displays nothing"


def test_a_bar_is_drawn_again_in_its_place_and_escapes_what_it_shows(displayed: list[dict[str, Any]]) -> None:
    with Bar("02") as bar:
        bar.show(0.25, 90.0, "2 of 3 minutes left")
        say("round 0: <failed> & so on")
    assert [each["update"] for each in displayed] == [False, True, True, True]
    assert len({each["display_id"] for each in displayed}) == 1 and all(each["raw"] for each in displayed)
    assert '<progress value="0.250" max="1"' in displayed[1]["text/html"]
    assert "25% of 02: 2 of 3 minutes left" in displayed[1]["text/html"]
    assert "round 0: &lt;failed&gt; &amp; so on" in displayed[2]["text/html"]
    assert displayed[1]["text/plain"] == "25% of 02: 2 of 3 minutes left"
    assert displayed[-1]["text/plain"].startswith("100% of 02")


def test_a_terminal_has_one_line_that_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with OneLine("02") as line:
        line.show(0.5, 60.0, "1 of 2 minutes left, 1 of 3 comparisons settled")
        line.show(0.9, 12.0, "1 of 2 minutes left")
        say("round 3: done")
    text = terminal.getvalue()
    assert text.count("\n") == 1, "the message alone ends a line"
    assert [each.rstrip() for each in text.split("\r")] == [
        "", "02: 50%, 1 of 2 minutes left, 1 of 3 comparisons settled", "02: 90%, 1 of 2 minutes left", "round 3: done",
    ]  # fmt: skip
    shown = text.split("\r")
    assert len(shown[2]) >= len(shown[1]), "nothing of the line before stays visible"


def test_a_log_file_gets_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines("02") as lines:
        for seconds in (120, 110, 70, 50):
            lines.show(0.1, seconds, f"{seconds} s left")
    assert capsys.readouterr().err.splitlines() == ["02: 120 s left", "02: 50 s left"]
    say("afterwards")
    assert capsys.readouterr().err == "afterwards\n"


def test_the_log_of_a_run_gets_a_line_a_minute_and_its_bar_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, written = io.StringIO(), io.StringIO()
    with CellProgress("02", 3, Console(file=shown, width=200)) as cells:
        monkeypatch.setattr(sys, "stderr", written)
        with UnderRunner("02") as line:
            line.show(0.1, 90.0, "2 of 2 minutes left")
            line.show(0.4, 70.0, "2 of 2 minutes left, 1 settled")
            line.show(0.6, 50.0, "1 of 2 minutes left")
            say("round 3: done")
        cells.write(written.getvalue())
    assert [text.strip() for text in shown.getvalue().splitlines()] == [
        "02: 2 of 2 minutes left", "02: 1 of 2 minutes left", "round 3: done",
    ]  # fmt: skip
    assert "02: 40%, 2 of 2 minutes left, 1 settled" in written.getvalue()


def test_an_interrupted_kernel_keeps_whole_rounds_and_the_bar_says_so(
    recorder: Recorder, photos: Path, displayed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.delenv(RUN_MARK, raising=False)
    recorder.stop_at = 5  # in the middle of the second round
    with pytest.raises(KeyboardInterrupt):
        run(photos, rounds=3)
    assert set(read_records(photos.parent / "out" / "02")["round"]) == {0}
    assert KEPT in displayed[-1]["text/html"] and 'value="0.333"' in displayed[-1]["text/html"]
    assert re.search(r"about \d+ minutes left, 1 of 3 rounds measured", displayed[-2]["text/html"])
    recorder.stop_at = 10**9
    run(photos, rounds=3)
    assert set(read_records(photos.parent / "out" / "02")["round"]) == {0, 1, 2}


@pytest.mark.slow
def test_a_real_kernel_shows_one_bar_and_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_MARK, raising=False)
    cell = nbformat.v4.new_code_cell(
        "from lockstep.measure.progress import progress_of, say\n"
        "with progress_of('02') as bar:\n    bar.show(0.4, 30.0, 'half a minute left')\n    say('round 1')\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    (output,) = notebook.cells[0].outputs
    assert output["output_type"] == "display_data" and "<progress" in output["data"]["text/html"]
    assert "round 1" in output["data"]["text/html"], "of several drawings the last one stays"
