"""Cells are visited in turns, and what was seen is kept by turn. No worker starts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_failed_cells import STEP

from lockstep.advisor.measuring.asked_cells import CellAsked
from lockstep.advisor.why import observe_own
from lockstep.advisor.why.observations import CellSeen, Observations
from lockstep.engine.training.loop import Trace


def cell_of(seconds_by_turn: dict[int, float]) -> observe_own._Visited:
    cell = observe_own._Visited(CellAsked("local", 1, 4))
    for turn, seconds in seconds_by_turn.items():
        cell.note([Trace(0, 0.5, steps=[STEP | {"step_seconds": seconds}] * 3)], turn)
    return cell


def seconds(cell: CellSeen | None) -> float | None:
    return None if cell is None else cell.step_seconds


def test_the_first_turn_counts_only_where_there_is_no_other() -> None:
    assert seconds(cell_of({0: 9.0}).seen()) == 9.0
    later = cell_of({0: 9.0, 1: 0.2, 2: 0.3})
    assert seconds(later.seen()) == pytest.approx(0.2), "the quickest quarter of both turns"
    assert [seconds(later.seen([turn])) for turn in range(4)] == [None, 0.2, 0.3, None]
    assert cell_of({}).seen() is None


def test_a_turn_takes_what_it_did_not_visit_from_all_turns() -> None:
    cells = {"asked": cell_of({0: 9.0, 1: 0.2, 2: 0.3}), "alone": cell_of({1: 0.5}), "larger": cell_of({})}
    all_turns = {name: each.seen() for name, each in cells.items()}
    seen = Observations(cores=2, **all_turns)  # type: ignore[arg-type]
    first, second = (observe_own._among(seen, cells, [turn]) for turn in cells["asked"].turns)
    assert (seconds(first.asked), seconds(first.alone), first.larger) == (0.2, 0.5, None)
    assert (seconds(second.asked), seconds(second.alone), second.larger) == (0.3, 0.5, None)
    assert replace(first, asked=seen.asked) == replace(second, asked=seen.asked) == seen


def test_turns_are_judged_in_thirds() -> None:
    """One turn beside a busy program may have no undisturbed step of a worker; a third of all turns has some."""
    assert observe_own.parts_of([]) == []
    assert observe_own.parts_of([1, 2]) == [[1], [2]]
    assert observe_own.parts_of([1, 2, 3, 4, 5, 6, 7]) == [[1, 2], [3, 4], [5, 6, 7]]
    cell = cell_of({1: 0.3, 2: 0.2, 3: 0.5})
    assert seconds(cell.seen([1, 2])) == pytest.approx(0.2)


def test_what_was_observed_is_told_by_thirds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the last third of seven turns take twice as long: a disturbance is in one part of three."""

    def measure(meter: Any, asked: Any, cells: list[observe_own._Visited], progress: Any) -> tuple[str, float]:
        for turn in range(8):
            step = STEP | {"step_seconds": 0.2 if turn > 4 else 0.1}
            cells[0].note([Trace(0, 0.5, steps=[step] * 3)], turn)
        return "", 1.0

    meter = SimpleNamespace(host=lambda cells: None, others_share=0.0)
    monkeypatch.setattr(observe_own, "_Meter", lambda case, asked: nullcontext(meter))
    monkeypatch.setattr(observe_own, "_measure", measure)
    seen = observe_own.observe_own(observe_own.RunAsked(workers=1), SimpleNamespace())  # type: ignore[arg-type]
    assert seen.turns == 7
    assert [seconds(part.asked) for part in seen.parts] == pytest.approx([0.1, 0.1, 0.2])
