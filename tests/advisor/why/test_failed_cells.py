"""A cell whose workers fail is left out, with the reason; the others are measured all the same. No worker starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.advisor.measuring.asked_cells import CellAsked
from lockstep.advisor.why import observe_own
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.training.loop import Trace

STEP = {
    "step_seconds": 0.1, "compute_seconds": 0.09, "exchange_seconds": 0.0, "wait_seconds": 0.0, "update_seconds": 0.01,
    "images": 4.0, "bytes_sent": 0.0, "page_faults": 0.0, "input_seconds": 0.0, "cpu_seconds": 0.1,
}  # fmt: skip


class Clock:
    """In place of a meter: so many visits are left."""

    def __init__(self, visits: int) -> None:
        self.left, self.ends, self.late = float(visits), 0.0, False

    def team(self, asked: Any) -> Any:
        return SimpleNamespace(start_seconds=1.0)


class SlowClock:
    """In place of a meter and of the module `time`."""

    def __init__(self, seconds: float) -> None:
        self.now, self.ends, self.late, self.order = 0.0, seconds, False, list[int]()

    @property
    def left(self) -> float:
        return self.ends - self.now

    def monotonic(self) -> float:
        return self.now

    def team(self, asked: Any) -> Any:
        return SimpleNamespace(start_seconds=0.0)


def visited(monkeypatch: pytest.MonkeyPatch, failing: int, late: bool = False) -> tuple[list[Any], tuple[str, float]]:
    """Three cells, of which that number fails."""
    clock, cells = Clock(12), [observe_own._Visited(CellAsked("local", 1, 4 + number)) for number in range(3)]

    def visit(meter: Clock, asked: Any, cell: Any, steps: int) -> list[Trace]:
        meter.left -= 1
        if cell is cells[failing]:
            meter.late = late
            raise WorkerFailed(0, "training", "out of memory", "in line 1\nin line 2")
        return [Trace(0, 0.5, steps=[dict(STEP)])]

    monkeypatch.setattr(observe_own, "_visit", visit)
    meter: Any = clock
    return cells, observe_own._measure(meter, observe_own.RunAsked(), cells, lambda text: None)


def test_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, (reason, start) = visited(monkeypatch, failing=1)
    assert reason == "" and start == 1.5
    assert cells[1].seen() is None and "out of memory" in cells[1].failure and "\n" not in cells[1].failure
    assert len(cells[0].turns) > 1 and len(cells[2].turns) > 1, "visited again after the failure"


def test_without_the_asked_cell_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, (reason, _) = visited(monkeypatch, failing=0)
    assert "out of memory" in reason and cells[1].seen() is None


def test_workers_that_were_ended_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, (reason, _) = visited(monkeypatch, failing=1, late=True)
    assert reason == "the time was over" and cells[1].failure == ""


@pytest.mark.parametrize(("seconds", "order"), [(0.1, [0, 1, 0]), (20.0, [0, 1, 2, 0]), (30.0, [0, 1, 2, 0, 1])])
def test_the_asked_cell_is_visited_twice_even_if_the_time_is_over(
    seconds: float, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its first visit, images were decoded while the model was warming up: slow decoding was not seen on a machine
    that was so busy that nothing else fitted into the time."""
    clock, cells = SlowClock(seconds), [observe_own._Visited(CellAsked("local", 1, 4 + each)) for each in range(3)]

    def visit(meter: SlowClock, asked: Any, cell: Any, steps: int) -> list[Trace]:
        meter.order.append(cells.index(cell))
        meter.now += (4.0, 8.0, 4.0)[meter.order[-1]]
        return [Trace(0, 0.5, steps=[dict(STEP)])]

    monkeypatch.setattr(observe_own, "_visit", visit)
    monkeypatch.setattr(observe_own, "time", clock)
    meter: Any = clock
    assert observe_own._measure(meter, observe_own.RunAsked(), cells, lambda text: None)[0] == ""
    assert clock.order == order and 0 not in cells[0].turns
