"""`lockstep advise`: from a saved file without torch, what it refuses, and once from a model to a verified answer."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.advisor.calibration_file import read_calibration, write_calibration
from lockstep.advisor.measuring.needed_memory import NeededMemory
from lockstep.commands import advise_job
from lockstep.commands.application import app
from lockstep.engine.files import WriteError
from made_up_calibration import GIB, Truth, made_up

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


@pytest.mark.slow
def test_a_saved_calibration_is_answered_without_torch(saved: Path) -> None:
    words = ["advise", "--from", str(saved), "--workers", "1..8", "--link", "10gbit", "--images", "1000000"]
    program = (
        "import sys; from lockstep.commands.application import app; "
        f"app({words!r}, standalone_mode=False); "
        "assert not {'torch', 'tensorflow'} & set(sys.modules), 'an answer needs no framework'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(r"(Stay|Train) with |Stay on one machine: ", done.stdout), done.stdout
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
        ("--from {saved} --model made.up:model --input 3,64,64", "inputs: 3,224,224 was calibrated, 3,64,64 is here"),
        ("--from {saved} --model made.up:model --loss mse", "loss: cross_entropy was calibrated, mse is here"),
        ("--from {saved} --model made.up:model --optimiser adam", "optimiser: sgd was calibrated, adam is here"),
        ("--from {saved} --model made.up:model --optimizer adam", "optimiser: sgd was calibrated, adam is here"),
        ("--from {saved} --input 3,64,64", "--input: the calibration of --from is answered from as it is"),
        ("--from {saved} --model made.up:model --device cuda", "--device cuda: --from"),
    ],
)
def test_what_a_saved_calibration_can_not_answer(saved: Path, line: str, says: str) -> None:
    other = saved.with_name("other.json")
    other.write_text(saved.read_text().replace('"schema": 1', '"schema": 99'))
    done = CliRunner().invoke(app, ["advise", *line.format(saved=saved, other=other).split()])
    assert done.exit_code == 2 and says in " ".join(done.stderr.split()), done.output


@pytest.mark.parametrize("more", [[], ["--model", "made.up:model"]])
def test_another_machine_is_named(saved: Path, more: list[str]) -> None:
    done = CliRunner().invoke(app, ["advise", "--from", str(saved), *more, "--workers", "1,2"])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("The calibration is of another machine: machine's processor: made up was") == 1
    assert done.stdout.count("of another machine") == 1, "all that differs is one line's"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="without torch")
def test_a_gpus_calibration_is_answered_without_a_gpu(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = made_up()
    write_calibration(saved, replace(base, machine=replace(base.machine, device="H200")))
    monkeypatch.setattr("lockstep.measure.environment.cuda_devices", lambda: 0)
    words = ["advise", "--from", str(saved), "--model", "made.up:model", "--workers", "1,2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "device: H200 was calibrated, no GPU is here" in done.stdout, done.output
    refused = CliRunner().invoke(app, [*words, "--verify"])
    assert refused.exit_code == 2 and "--verify trains on a GPU" in refused.stderr, refused.output


def test_workers_by_default_are_those_of_the_calibrated_machine(saved: Path) -> None:
    write_calibration(saved, made_up(Truth(cores=5)))
    done = CliRunner().invoke(app, ["advise", "--from", str(saved), "--json"])
    assert {way["workers"] for way in json.loads(done.stdout)["ways"]} == {1, 2, 3, 4, 5}


def test_an_answer_is_printed_though_its_calibration_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(path: Path, calibration: object) -> None:
        raise WriteError("the disk is full; make room")

    monkeypatch.setattr(advise_job, "_measured", lambda options, question: made_up())
    monkeypatch.setattr(advise_job, "write_calibration", unwritable)
    words = ["advise", "--model", "a:b", "--workers", "1,2", "--save"]
    done = CliRunner().invoke(app, [*words, str(tmp_path / "x.json")])
    assert done.exit_code == 1 and "images/s" in done.stdout and "disk is full" in done.stderr, done.output
    folder = CliRunner().invoke(app, [*words, str(tmp_path)])
    assert folder.exit_code == 2 and "is a folder; name a file in it" in " ".join(folder.stderr.split())


def test_how_long_it_took_is_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a made-up clock, which measuring moves on by 31 seconds."""
    now = [100.0]

    def measured(options: object, question: object) -> object:
        now[0] += 31.0
        return replace(made_up(), seconds=28.0)

    monkeypatch.setattr(advise_job, "_measured", measured)
    monkeypatch.setattr(advise_job, "time", SimpleNamespace(monotonic=lambda: now[0]))
    path = tmp_path / "own.json"
    words = ["advise", "--model", "a:b", "--save", str(path), "--workers"]
    done = CliRunner().invoke(app, [*words, "1,2"])
    told = "This answer took 31.0 s from start to end, of which the calibration 28.0 s."
    assert done.exit_code == 0 and told in " ".join(done.stdout.split()), done.output
    kept = read_calibration(path)
    assert (kept.answer_seconds, kept.seconds) == (31.0, 28.0)
    again = CliRunner().invoke(app, ["advise", "--from", str(path), "--workers", "1,2"])
    assert again.exit_code == 0 and "This answer took" not in again.stdout
    path.unlink()
    refused = CliRunner().invoke(app, [*words, "3", "--hosts", "2", "--link", "1gbit"])
    assert refused.exit_code == 2 and read_calibration(path).answer_seconds == 31.0, "a question without an answer"


def test_a_model_that_fits_nowhere_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is too large for one worker is tried with as many samples as fit; a model that is, is divided."""
    tried: list[int] = []

    def measuring(saved_bytes: int | None) -> list[str]:
        def calibrate(asked: Any, seconds: float, tell: Any, force: bool) -> Any:
            tried.append(asked.batch)
            needed = NeededMemory(GIB, GIB, GIB, 0, saved_bytes and saved_bytes * asked.batch)
            needed.check(4 * GIB, asked.model, asked.batch)
            return made_up()

        monkeypatch.setattr("lockstep.advisor.measuring.calibrate.calibrate", calibrate)
        done = CliRunner().invoke(app, ["advise", "--model", "a:b", "--workers", "1,2", "--batch", "64"])
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    assert "images/s" in " ".join(measuring(100 << 20)[:2]) and tried == [64, 8]
    lines = measuring(2 * GIB)
    assert lines[0].startswith("It does not fit: one worker of a:b with batch 64 needs")
    assert "fully sharded" in lines[-5]
    assert tried[2:] == [64]


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
    assert calibration.answer_seconds >= calibration.seconds > 0
    assert calibration.model.name == "small_own_model:mlp" and calibration.model.parameters == 192 * 16 + 16 + 68
    again = CliRunner().invoke(app, ["advise", "--from", "own.json", "--workers", "1,2", "--batch", "8", "--json"])
    assert json.loads(again.stdout)["ways"] == found["ways"], "the file holds all that the answer rests on"
