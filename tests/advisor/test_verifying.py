"""Which ways `--verify` trains: those that one machine can, though the best of all need several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.advisor.calibration import CalibrationCell
from lockstep.advisor.links import parse_link
from lockstep.advisor.measuring.asked_cells import CellAsked
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.verified import why_not_here
from lockstep.advisor.verifying import MOST_LATENCY_SECONDS
from lockstep.commands import advise_job
from lockstep.commands.application import app
from made_up_calibration import MB, Truth, made_up, predicted_step_seconds

FAST = parse_link("10gbit")
SMALL = made_up(Truth(gradient=MB))
MANY = Question(workers=tuple(range(1, 33)), link=FAST)


def test_with_a_link_the_two_best_ways_of_this_machine_are_verified() -> None:
    found = advise(SMALL, MANY)
    best = sorted((way for way in found.ways if way.fits), key=lambda way: way.step_seconds.middle)
    here = [way for way in best if way.hosts == 1]
    assert best[0].hosts > 1 and best[1].hosts > 1, "the best need more machines than one"
    run = [way for way in found.verify if not why_not_here(way)]
    assert [way for way in run if not way.emulated][:2] == here[:2] and found.alone in run
    assert all(way in found.verify for way in best[:2]), "they are told of"
    assert why_not_here(best[0]) == f"it needs {best[0].hosts} machines, and this is one"


def test_hosts_that_cores_and_memory_can_stand_for_are_emulated_and_predicted_so() -> None:
    (way,) = (way for way in advise(SMALL, MANY).verify if way.emulated)
    assert (way.hosts, way.workers) == (2, 4), "two ranks on each of two cores, and no more"
    assert way.kind.startswith("several hosts, turns on a core")
    asked = (way.sync, 4, 2, way.per_worker_batch_size, 1, FAST)
    assert way.step_seconds == predicted_step_seconds(SMALL, *asked, emulated=True)
    assert way.step_seconds.middle > predicted_step_seconds(SMALL, *asked).middle, "they share two cores"
    for question in (
        replace(MANY, link=replace(FAST, alpha_seconds=2 * MOST_LATENCY_SECONDS)),
        replace(MANY, link=parse_link("11gbit")),
        replace(MANY, memory_bytes=int(3.9 * way.memory_bytes)),
    ):
        assert not [one for one in advise(SMALL, question).verify if one.emulated]


@pytest.mark.parametrize("lacking", ["", "emulated hosts need root"])
def test_what_was_not_run_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    asked: list[CellAsked] = []

    def measured(case: object, cells: list[CellAsked], *others: object, **named: Any) -> list[CalibrationCell]:
        asked.extend(cells)
        named["failures"] |= {each: lacking for each in cells if lacking and each.hosts > 1}
        return [
            CalibrationCell(each.sync, each.workers, each.per_worker_batch_size, 1, seconds, (), (), ())
            for each in cells
            for seconds in [() if lacking and each.hosts > 1 else (0.1, 0.1)]
        ]

    monkeypatch.setattr(advise_job, "_measured", lambda options, question: SMALL)
    monkeypatch.setattr("lockstep.advisor.measuring.cells.measure_cells", measured)
    monkeypatch.setattr("lockstep.advisor.measuring.own_model.load_case", lambda model: None)
    done = CliRunner().invoke(app, ["advise", "--model", "a:b", "--workers", "1..32", "--link", "10gbit", "--verify"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()[done.stdout.splitlines().index("") :]
    lines = [line for line in lines if "predicted" in line and "milliseconds" not in line]
    one_host = [each for each in asked if each.hosts == 1]
    assert {each.workers for each in one_host} == {1, 2} and len(one_host) == 3
    (emulated,) = (each for each in asked if each.hosts > 1)
    assert emulated.link_bits_per_second == pytest.approx(1e10)
    assert sum("machines, and this is one" in line for line in lines) >= 1
    (line,) = (line for line in lines if "2 emulated machines" in line)
    assert f"not measured: {lacking}" in line if lacking else "measured 100" in line


def test_without_a_link_nothing_is_emulated() -> None:
    found = advise(SMALL, Question(workers=(1, 2, 4)))
    assert found.verify and not [way for way in found.verify if way.emulated or why_not_here(way)]
