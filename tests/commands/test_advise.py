"""`lockstep advise`: from a saved file without torch, what it refuses, and once from a model to a verified answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.advisor.calibration_file import read_calibration, write_calibration
from lockstep.commands.cli import app
from made_up_calibration import made_up

SMALL = """
from torch import nn


def mlp(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, width), nn.ReLU(), nn.Linear(width, 4))
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "node.json"
    write_calibration(path, made_up())
    return path


def test_a_saved_calibration_is_answered_without_torch(saved: Path) -> None:
    words = ["advise", "--from", str(saved), "--workers", "1..8", "--link", "10gbit", "--images", "1000000"]
    program = (
        "import sys; from lockstep.commands.cli import app; "
        f"app({words!r}, standalone_mode=False); "
        "assert not {'torch', 'tensorflow'} & set(sys.modules), 'an answer needs no framework'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Stay on one machine: train with 2 workers"), done.stdout
    assert "What would change this:" in done.stdout and "How far this reaches:" in done.stdout


def test_the_answer_as_json(saved: Path) -> None:
    done = CliRunner().invoke(app, ["advise", "--from", str(saved), "--workers", "1,2", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {way["workers"] for way in found["ways"]} == {1, 2} and found["verified"] == []
    assert found["recommended"]["step_seconds"]["low"] <= found["recommended"]["step_seconds"]["middle"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--from {saved} --model other:model", "is of another model: --model other:model, in the file made.up:model"),
        ("--from {saved} --model made.up:model --verify", "--verify compares with this machine"),
        ("--from {saved} --workers 64..1", "did you mean --workers 1..64?"),
        ("--from {saved} --hosts 1,2 --workers 1,2", "needs the link between them"),
        ("--from {saved} --save x.json", "measures nothing that --save x.json could write"),
        ("--from {other}", "schema"),
    ],
)
def test_what_a_saved_calibration_can_not_answer(saved: Path, line: str, says: str) -> None:
    other = saved.with_name("other.json")
    other.write_text(saved.read_text().replace('"schema": 1', '"schema": 99'))
    done = CliRunner().invoke(app, ["advise", *line.format(saved=saved, other=other).split()])
    assert done.exit_code == 2 and says in " ".join(done.stderr.split()), done.output


def test_another_machine_is_named(saved: Path) -> None:
    done = CliRunner().invoke(app, ["advise", "--from", str(saved), "--model", "made.up:model", "--workers", "1,2"])
    assert done.exit_code == 0, done.output
    assert "The calibration is of another machine: " in done.stdout and "made up" in done.stdout


def test_the_example_of_the_documentation(saved: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (root / "docs" / "advise.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(saved.parent)
    found: dict[str, Any] = {}
    exec(compile(example, "docs/advise.md", "exec"), found)
    assert {way.workers for way in found["advised"].ways} == {1, 2, 4, 8}


@pytest.mark.slow  # it starts workers twice
@pytest.mark.usefixtures("no_leftovers")
def test_from_a_model_to_a_verified_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_own_model.py").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lockstep.commands.advise_job.VERIFY_SECONDS", 4.0)
    monkeypatch.setattr("lockstep.advisor.measuring.meter.VISIT_SECONDS", 0.05)
    words = ["advise", "--model", "small_own_model:mlp", "--input", "3,8,8", "--batch", "8", "--workers", "1,2"]
    words += ["--seconds", "60", "--save", "own.json", "--verify", "--force", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    measured = [one for one in found["verified"] if one["step_seconds"]]
    assert measured and all(one["error"] is not None for one in measured), found["verified"]
    calibration = read_calibration(tmp_path / "own.json")
    assert calibration.model.name == "small_own_model:mlp" and calibration.model.parameters == 192 * 16 + 16 + 68
    again = CliRunner().invoke(app, ["advise", "--from", "own.json", "--workers", "1,2", "--batch", "8", "--json"])
    assert json.loads(again.stdout)["ways"] == found["ways"], "the file holds all that the answer rests on"
