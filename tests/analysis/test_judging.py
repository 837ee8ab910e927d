"""From single verdicts to a ledger: corrected for their number, and without the rounds that others disturbed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lockstep.analysis.confidence import estimate
from lockstep.analysis.judging import corrected, judge
from lockstep.analysis.rules import above_one
from lockstep.analysis.statistics import mean_of, per_round
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    DECIDED,
    NOT_YET,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    Claim,
    Verdict,
)
from lockstep.engine.job import Job
from lockstep.records import COLUMNS, CONTENDED, make_row


def test_what_stands_by_itself_may_not_stand_among_many() -> None:
    strong, weak = Verdict(SUPPORTED, chance=0.0001), Verdict(CONTRADICTED, chance=0.03, reason="why", rounds_more=7.0)
    assert corrected([weak]) == [weak]
    kept, lost = corrected([strong, weak, Verdict(UNDECIDED)])[:2]
    assert kept == strong and lost.answer == UNDECIDED and lost.rounds_more == 7.0
    assert "contradicted by itself (why), but not among 3 claims" in lost.reason


def test_what_is_no_test_is_not_counted() -> None:
    """Arithmetic, the paper against itself, and what was not measured leave the others as they are."""
    weak = Verdict(SUPPORTED, chance=0.03)
    sure = [Verdict(CONTRADICTED, grade=BOUND), Verdict(UNDECIDED, grade=PAPER), Verdict(NOT_YET)]
    assert corrected([*sure, weak]) == [*sure, weak]


def test_no_verdict_on_a_hundred_equal_pairs_remains() -> None:
    """In at most one of twenty ledgers, watched until each pair looks decided or has 30 rounds."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(40):
        verdicts = []
        for _ in range(100):
            ratios = np.exp(0.05 * rng.standard_normal(30))
            found = [above_one(estimate(ratios[:rounds]), 0.0, "") for rounds in (8, 12, 20, 30)]
            verdicts.append(next((each for each in found if each.answer in DECIDED), found[-1]))
        wrong += any(each.answer in DECIDED for each in corrected(verdicts))
    assert wrong <= 2, "of 40 ledgers at most one in twenty"


def rows(speeds: list[float], reasons: list[str]) -> pd.DataFrame:
    made = [
        make_row(Job.of("threads", workers=1, round=number), {"images_per_second": speed}, reason=reason)
        for number, (speed, reason) in enumerate(zip(speeds, reasons, strict=True))
    ]
    return pd.DataFrame(made, columns=list(COLUMNS))


@pytest.mark.parametrize("disturbed_speed", [100.0, 10.0])
def test_disturbed_rounds_decide_nothing_beside_quiet_ones(disturbed_speed: float) -> None:
    frame = rows([10.0, 10.1, 9.9, 10.0, 10.1, disturbed_speed], ["", "", "", "", "", CONTENDED])

    def slow(claim: Claim, stored: Stored) -> Verdict:
        mean = mean_of(per_round(stored.records, {"strategy": "threads"}, "images_per_second"))
        return Verdict(SUPPORTED if mean.value < 12 else CONTRADICTED, str(mean.rounds), "of all rounds")

    claim: dict[str, Any] = {"verdict": "slow"}
    found = judge(claim, Stored(frame), {"slow": slow})
    assert (found.answer, found.measured) == (SUPPORTED, "5")
    assert found.reason == "of all rounds"
    noisy = judge(claim, Stored(rows([100.0] * 6, [CONTENDED] * 6)), {"slow": slow})
    assert noisy.answer not in (SUPPORTED, CONTRADICTED)
    assert "with the rounds that others disturbed: contradicted, 6" in noisy.reason, "where there are no others"
