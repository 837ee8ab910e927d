"""Workers that train a model, measured in turns for so many seconds: real processes, warm, and none stays behind.

    round 1   A B C        the first visit of a team is repeated: it warms the team, and tells how long a step takes
    round 2   C B A        what drifts while it is measured hits all cells alike
    round 3   A B C

A visit builds the model anew, and discards its own first steps too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.advisor.calibration import CalibrationCell
from lockstep.advisor.measuring.asked_cells import CellAsked, Visits
from lockstep.advisor.measuring.meter import CellMeter
from lockstep.engine.usecases import UseCase

__all__ = ["CellAsked", "measure_cells", "measure_in_turns"]


def measure_cells(
    case: UseCase,
    cells: Sequence[CellAsked],
    rounds: int,
    budget_seconds: float,
    on_round: Callable[[int, Sequence[CalibrationCell]], None] | None = None,
    *,
    precision: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    failures: dict[CellAsked, str] | None = None,
) -> list[CalibrationCell]:
    """Measure these cells in turns, `rounds` times or until `budget_seconds` have passed; a result for each, in order.

    A cell that was not reached, or whose workers failed, has no rounds (its tuples are empty); `failures` then gets the
    reason. `on_round(number, cells so far)` is called after each round. Raises CalibrationError or JobError, before
    anything starts, for a cell that can't be.
    """
    for each in cells:
        each.job()
    with CellMeter(case, budget_seconds, precision=precision, device=device, seed=seed) as meter:
        meter.host(cells)
        found = [Visits(each) for each in cells]
        measure_in_turns(meter, found, rounds, on_round)
    if failures is not None:
        late = "the time was over"
        failures |= {each.asked: each.failure or late for each in found if each.failure or not each.step_seconds}
    return [each.cell for each in found]


def measure_in_turns(
    meter: CellMeter,
    found: Sequence[Visits],
    rounds: int,
    on_round: Callable[[int, Sequence[CalibrationCell]], None] | None = None,
) -> None:
    """Visit all cells that have not had so many rounds, round after round in turned order, as far as the next visit
    should end in time."""
    for number in range(1, rounds + 1):
        missing = [each for each in found if not each.failure and len(each.step_seconds) < number]
        for visits in missing if number % 2 else reversed(missing):
            if meter.left <= meter.expected_seconds(visits):
                return
            meter.visit(visits)
        if missing and on_round is not None:
            on_round(number, [each.cell for each in found])
