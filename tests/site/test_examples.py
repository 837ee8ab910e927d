"""Every script in `examples/` runs as it stands, says what it promises and leaves nothing behind."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest

from here import Here
from lockstep.engine.launch import LAUNCHERS

SAYS = {
    "checkpoints": ("32 steps after the checkpoint; the parameters differ by", "'test_r2': 0."),
    "data_loader": ("loss ", "'test_accuracy': "),
    "own_network": ("workers=2: ", "images/s, {'test_accuracy': ", "the parameters differ by", "classes of five test"),
    "photo_folder": ("images/s, {'test_accuracy': ",),
}


def test_every_example_is_run(root: Path) -> None:
    elsewhere = {"slow_loader"}  # its own command runs it: see the tests of `lockstep why`
    assert {path.stem for path in (root / "examples").glob("*.py")} - elsewhere == set(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_the_script_does_what_it_says(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its workers are threads of this process here; that processes train alike is what the conformance suite shows."""
    monkeypatch.setitem(LAUNCHERS, "processes", Here)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="ignore"):  # more workers than cores
        runpy.run_path(str(root / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert all(text in said for text in SAYS[name]), said
    if name == "data_loader":
        found = re.search(r"loss ([\d.]+) -> ([\d.]+)", said)
        assert found is not None, said
        first, last = (float(each) for each in found.groups())
        assert last < first / 2 and last < 0.3, said
    assert not list(tmp_path.iterdir())
