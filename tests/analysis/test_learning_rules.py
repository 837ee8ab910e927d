"""Rules for accuracies in points, and for claims that can be read in several ways: three answers each."""

from __future__ import annotations

import pytest

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.learning_rules import gained, within_points
from lockstep.analysis.verdicts import CONTRADICTED, NOT_YET, SUPPORTED, UNDECIDED, NotNow, Verdict, any_of


def points(low: float, high: float, rounds: int = 10) -> Estimate:
    return Estimate((low + high) / 2, low, high, rounds, logarithmic=False)


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(89, 91, SUPPORTED), (84, 87, CONTRADICTED), (93, 95, CONTRADICTED), (80, 100, UNDECIDED), (87, 91, UNDECIDED)],
)
def test_a_wide_interval_is_near_nothing(low: float, high: float, answer: str) -> None:
    """It was near whatever it held, widened by the margin: a noisier run reproduced more."""
    found = within_points(90.0, points(low, high), "")
    assert found.answer == answer and found.numbers[0][1].low == low
    assert found.rounds_more >= 1, "until it is decided, or stands among many claims"


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(0.1, 0.5, SUPPORTED), (1, 9, SUPPORTED), (-9, -1, CONTRADICTED), (-1, 1, CONTRADICTED), (-3, 1, UNDECIDED),
     (-1, 3, UNDECIDED)],
)  # fmt: skip
def test_no_gain_is_shown_by_an_interval_within_two_points(low: float, high: float, answer: str) -> None:
    assert gained(points(low, high), "").answer == answer


def test_few_seeds_are_undecided() -> None:
    with pytest.raises(NotNow) as stop:
        within_points(90.0, points(89, 91, rounds=4), "")
    assert stop.value.verdict.answer == UNDECIDED


def test_one_reading_that_supports_a_claim_is_enough_and_all_must_contradict_it() -> None:
    yes, no = Verdict(SUPPORTED, chance=0.01), Verdict(CONTRADICTED, chance=0.02)
    open_one, missing = Verdict(UNDECIDED, rounds_more=3), Verdict(NOT_YET)
    assert any_of([("a", yes), ("b", no)]).answer == SUPPORTED
    assert any_of([("a", yes), ("b", no)]).chance == pytest.approx(0.02), "two readings: twice the chance"
    assert any_of([("a", no), ("b", no)]).answer == CONTRADICTED and any_of([("a", no), ("b", no)]).chance == 0.02
    assert any_of([("a", no), ("b", open_one)]).answer == UNDECIDED
    assert any_of([("a", no), ("b", missing)]).answer == NOT_YET
