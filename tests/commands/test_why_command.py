"""What `lockstep why` asks for and how it shows what was found; the measuring itself is tests/advisor/why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

import planted
from lockstep.advisor.why import observe_own as observing
from lockstep.advisor.why.observations import CellSeen, Observations, WorkerStep
from lockstep.advisor.why.observe_script import ScriptError
from lockstep.commands.application import app

MODEL = ("why", "--model", "planted:healthy", "--input", planted.INPUT)
STEP = WorkerStep(0.1, 0.0, 0.09, 0.005, 0.0, 0.003, 16, 1e6, 0.09)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command asks to be measured; what it then gets was made up."""
    calls: list[Any] = []

    def observe(run: Any, case: Any, gradient_bytes: float, progress: Any) -> Observations:
        calls.append((run, case))
        cell = CellSeen(run.sync, run.workers, run.threads_per_worker, run.batch, (STEP,) * run.workers)
        seen = Observations(cell, 2, start_seconds=2.0, unmeasured=("a cell",), command=run.command)
        return replace(seen, turns=3, parts=(seen,) * 3)

    monkeypatch.setattr(observing, "observe_own", observe)
    return calls


def told(*words: str) -> str:
    result = CliRunner().invoke(app, [*MODEL, *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_too_many_threads_are_told_with_the_command_that_shows_it(asked: list[Any]) -> None:
    text = told("--threads-per-worker", "4", "--batch", "16", "--seconds", "5")
    run, _ = asked[0]
    assert (run.threads_per_worker, run.batch, run.seconds, run.workers, run.sync) == (4, 16, 5.0, 2, "allreduce")
    assert "2 workers x 4 threads, allreduce, batch 16 each, on 2 cores: 100 ms a step, looked at in 3 turns\n" in text
    assert "1. threads\n   found:     2 workers x 4 threads are 8 threads for 2 cores." in text
    again = f"lockstep why --model planted:healthy --input {planted.INPUT} --batch 16 --threads-per-worker 1\n"
    assert again in text, "the option is replaced, and what was not given is left out"
    assert "there was no time for: a cell." in text


@pytest.mark.parametrize(("words", "seconds"), [((), 30.0), (("--seconds", "7"), 7.0)])
def test_a_script_is_looked_at_for_half_a_minute(
    words: tuple[str, ...], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []

    def observe(command: Any, seconds: float) -> Any:
        looked.append(seconds)
        raise ScriptError("it ended at once")

    monkeypatch.setattr("lockstep.advisor.why.observe_script.observe_script", observe)
    CliRunner().invoke(app, ["why", *words, "--", "python", "train.py"])
    assert looked == [seconds]


def test_a_model_is_measured_for_25_seconds(asked: list[Any]) -> None:
    told()
    assert asked[0][0].seconds == 25.0


def test_a_healthy_run_is_told_so(asked: list[Any]) -> None:
    assert "no cause is named" in told()


def test_json(asked: list[Any]) -> None:
    found = json.loads(told("--json", "--threads-per-worker", "4"))
    assert [cause["kind"] for cause in found["causes"]] == ["threads"]
    assert found["seen"]["asked"]["ranks"][0]["compute_seconds"] == 0.09
    assert found["seen"]["turns"] == 3


def test_a_link_means_two_hosts_at_its_rate(asked: list[Any]) -> None:
    told("--link", "100mbit")
    assert (asked[0][0].hosts, round(asked[0][0].link_bits_per_second)) == (2, 100_000_000)


def test_photos_take_the_place_of_random_samples(asked: list[Any], tmp_path: Path) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / "train" / kind).mkdir(parents=True)
        for number in range(5):
            shade = (40 * number, 90, 200)
            Image.new("RGB", (300, 300), shade).save(tmp_path / "train" / kind / f"{number}.jpg")
    result = CliRunner().invoke(app, [*MODEL, "--data", str(tmp_path)])
    assert result.exit_code == 2 and "give --input 3,224,224" in result.output.replace("\n", " ")
    assert told("--input", "3,224,224", "--data", str(tmp_path))
    assert len(asked[0][1].train) == 8, "a fifth is set aside"
