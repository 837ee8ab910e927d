"""A model whose time depends on its data: its steps differ, and so the range of every way grows. By made-up clocks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lockstep.advisor.advice import Span
from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.calibration_file import parse_calibration, read_calibration, write_calibration
from lockstep.advisor.errors import KindError
from lockstep.advisor.measuring.asked_cells import CellAsked, Visits
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.spreads import ORDINARY, spread_beyond_ordinary, spread_of
from lockstep.engine.data.drawn import DrawnSamples, ModelInput
from lockstep.engine.training.loop import Trace
from made_up_calibration import Truth, made_up, predicted_step_seconds

ERRORS = {"one worker": KindError(12, 0.05, -0.1, 0.1), "a core each": KindError(12, 0.05, -0.1, 0.1)}
ROUNDS, STEPS, BATCH = 3, 21, 4


def measured(depends: float) -> Calibration:
    """A calibration whose one worker took a step of 16 samples twice `depends` longer, the larger their first number:
    the steps of a clock that is read off the random samples, as a visit would have found them."""
    base = made_up(Truth(gradient=4))
    samples = DrawnSamples((ModelInput("float32", (6,)),), 2, 0, ROUNDS * STEPS * BATCH, 0, "own")
    visits = Visits(CellAsked("local", 1, 16))
    typical = base.cells[0].step_seconds[0]
    for number in range(ROUNDS):
        first = number * STEPS * BATCH
        numbers = samples.load(np.arange(first, first + STEPS * BATCH), 0, 0).reshape(STEPS, BATCH, -1)[:, :, 0]
        late = np.argsort(np.argsort(numbers.mean(axis=1))) / (STEPS - 1) - 0.5  # by rank, from -1/2 to 1/2
        parts = {"exchange_seconds": 0.0, "wait_seconds": 0.0, "update_seconds": 0.004}
        steps = [
            {"step_seconds": each, "compute_seconds": each - 0.004, **parts}
            for each in (typical * np.exp(depends * late)).tolist()
        ]
        visits.note([Trace(0, steps=steps)], discarded=False)
    return replace(base, cells=(visits.cell, *base.cells[1:]))


def width(span: Span) -> float:
    return math.log(span.high / span.low)


def test_steps_that_differ_within_a_visit_widen_the_range_though_rounds_agree() -> None:
    steady, uneven = measured(0.0), measured(2.0)
    assert np.ptp(uneven.cells[0].step_seconds) < 1e-9, "the medians of the rounds say nothing of it"
    assert steady.cells[0].step_spread == (0.0, 0.0, 0.0)
    assert uneven.cells[0].step_spread == pytest.approx((0.9, 0.9, 0.9), rel=0.02), "5 % to 95 % of a spread of 2"
    for asked in (("local", 1, 1, 16), ("shared_memory", 2, 1, 16)):
        before, after = (predicted_step_seconds(one, *asked, errors=ERRORS) for one in (steady, uneven))
        assert width(after) > 5 * width(before) and after.middle == pytest.approx(before.middle)
        assert after.low < after.middle * math.exp(-0.88) and after.high > after.middle * math.exp(0.88)
    assert "batch 16 differ from each other" in " ".join(advise(uneven, Question()).scope)
    assert "differ from each other" not in " ".join(advise(steady, Question()).scope)


def test_ordinary_steps_widen_nothing() -> None:
    ordinary = measured(2 * ORDINARY)
    assert 0 < ordinary.cells[0].step_spread[0] < ORDINARY and spread_beyond_ordinary(ordinary, 16) == 0.0
    asked = ("local", 1, 1, 16)
    spans = [predicted_step_seconds(one, *asked, errors=ERRORS) for one in (measured(0.0), ordinary)]
    assert width(spans[0]) == pytest.approx(width(spans[1]))
    assert spread_beyond_ordinary(measured(2.0), 64) == 0.0, "those of the nearest batch count"


def test_the_spread_of_a_visit() -> None:
    assert spread_of([]) == spread_of([1.0]) == spread_of([1.0, 0.0]) == 0.0
    assert spread_of([2.0, 1.0]) == pytest.approx(math.log(1.95 / 1.05) / 2)
    assert spread_of([1.0] * 19 + [1000.0]) < math.log(51) / 2, "one outlier does not decide"


def test_the_file_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "uneven.json"
    write_calibration(path, measured(2.0))
    assert read_calibration(path) == measured(2.0)
    missing = replace(measured(2.0).cells[0], step_spread=(0.1,))
    write_calibration(path, replace(measured(2.0), cells=(missing,)))
    with pytest.raises(CalibrationError, match="lists of different rounds"):
        parse_calibration(path.read_text())
