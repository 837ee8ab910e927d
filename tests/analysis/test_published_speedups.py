"""Published speedups against ours: how many cores they imply, and ratios in which cores and base cancel."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest

from lockstep.analysis.confidence import Estimate, estimate
from lockstep.analysis.published import PublishedError
from lockstep.analysis.published_speedups import (
    Expectation,
    beside,
    core_free_ratio,
    implied_cores,
    printed,
    same_on_any_cores,
    serial_loss,
)
from lockstep.analysis.verdicts import CONTRADICTED, MODEL, SUPPORTED, UNDECIDED, NotNow
from lockstep.engine.job import Job
from lockstep.records import COLUMNS, Row, make_row

ANY = "on any number of cores"


def around(value: float, deviation: float = 0.01, rounds: int = 12) -> Estimate:
    """An estimate of rounds that lie evenly around `value`."""
    return estimate(value * np.exp(deviation * np.tile([-1.0, 1.0], rounds // 2)))


def test_a_speedup_implies_at_least_as_many_cores() -> None:
    assert [implied_cores(value) for value in (0.53, 1.0, 4.0, 6.15, 15.57)] == [1, 1, 4, 7, 16]


def test_what_a_published_table_prints() -> None:
    assert printed("SimpleBig", "CPU multi-process") == 15.57
    assert printed("SimpleBig", "MPI", table="table3") == 26.62
    assert printed("SimpleBig", "MPI", "cuda", "table3") == 11.79


@pytest.mark.parametrize("cell", [("SimpleBig", "MPI"), ("Pneumonia", "CPU multi-process")])
def test_a_cell_that_no_table_prints(cell: tuple[str, str]) -> None:
    with pytest.raises(PublishedError, match="prints no speedup"):
        printed(*cell)


def test_a_dash_is_no_speedup() -> None:
    with pytest.raises(PublishedError, match="prints no speedup"):
        printed("SimpleBig", "Spark", "cuda", "table3")


@pytest.mark.parametrize(
    ("ratio", "answer"),
    [(1.0, SUPPORTED), (1.05, SUPPORTED), (0.95, SUPPORTED), (1.3, CONTRADICTED), (0.8, CONTRADICTED)],
)
def test_a_core_free_ratio_is_ours_or_not(ratio: float, answer: str) -> None:
    found = core_free_ratio(15.57, 6.15, around(ratio * 15.57 / 6.15), "times threads")
    assert (found.answer, found.grade, found.numbers) == (answer, MODEL, ())
    told = "the published 15.57 / 6.15 ± 10% lets one expect 2.28 to 2.78"
    assert told in found.reason and "times threads" in found.measured
    assert found.chance < 0.05


def test_a_wide_interval_helps_neither_side() -> None:
    found = core_free_ratio(3.0, 2.0, around(1.5, deviation=0.3), "")
    assert found.answer == UNDECIDED and 1 <= found.rounds_more < math.inf


def test_a_ratio_near_the_tolerances_end_tells_how_many_rounds_it_needs() -> None:
    found = core_free_ratio(3.0, 2.0, around(1.25, deviation=0.15), "")
    assert found.answer == UNDECIDED and 1 <= found.rounds_more < math.inf


def test_too_few_rounds_have_no_answer() -> None:
    with pytest.raises(NotNow):
        core_free_ratio(3.0, 2.0, around(1.5, rounds=4), "")


def on_gpus(name: str, speeds: list[float]) -> list[Row]:
    return [make_row(Job.of("allreduce", workers=2, device="cuda", round=number), {"images_per_second": speed})
            | {"strategy": name} for number, speed in enumerate(speeds)]  # fmt: skip


def test_a_published_speedup_stands_beside_the_fastest_of_ours_which_pays_for_the_choice() -> None:
    swing = [1.0, 1.03] * 5
    ways = {name: on_gpus(name, [1.9 * each for each in swing]) for name in ("allreduce", "parameter_server")}
    rows = [*ways["allreduce"], *ways["parameter_server"], *on_gpus("sequential", [1.0] * 10)]
    frame, base = pd.DataFrame(rows, columns=list(COLUMNS)), {"strategy": "sequential"}
    alone = beside({"value": 1.9}, frame, [{"strategy": "allreduce"}], base, None)
    both = beside({"value": 1.9}, frame, [{"strategy": name} for name in ways], base, None)
    assert alone.answer == both.answer == SUPPORTED and "the fastest of 2: " in both.measured
    (_, one), (_, best) = alone.numbers[0], both.numbers[0]
    assert best.low < one.low < one.high < best.high and both.chance > alone.chance


# What is lost behind a lock weighs more on more cores


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 12)


def test_a_serial_loss_by_hand() -> None:
    # 10 cores at least; threads lose x of one core's time: 1 / 5 = 1 / 10 + x (1 - 1 / 10), so x = 1 / 9.
    # On two cores, where processes reach 1.8: 1 / threads = 1 / 1.8 + (1 / 9) / 2, so the ratio is 1 + 1.8 / 18 = 1.1.
    assert serial_loss(10.0, exactly(1.8), 2).here(10.0 / 5.0, 1.8) == pytest.approx(1.1)
    assert serial_loss(10.0, exactly(1.8), 2).text(10.0 / 5.0) == "1.08 to 1.12"  # of 2 ± 10 %


def test_a_serial_loss_is_the_published_one_on_the_same_cores_and_nothing_on_one() -> None:
    assert serial_loss(16.0, exactly(16.0), 16).here(2.53, 16.0) == pytest.approx(2.53)
    assert serial_loss(16.0, exactly(1.0), 1).text(2.53) == "1 to 1"


def test_our_own_speedup_moves_what_may_be_expected_within_its_interval() -> None:
    """By hand as above: 1 + 1.5 / 18 = 1.083 and 1 + 2.1 / 18 = 1.117, and ± 10 % of the published ratio besides."""
    wide = Estimate(1.8, 1.5, 1.8**2 / 1.5, 12)
    found = serial_loss(10.0, wide, 2)
    band = found.band(2.0, 0.05, 0)
    assert band.outer == pytest.approx((1 + 1.5 * 0.8 / 18, 1 + 2.16 * 1.2 / 18))
    assert band.inner == pytest.approx((1 + 2.16 * 0.8 / 18, 1 + 1.5 * 1.2 / 18))


def readings_with(ours: Estimate) -> dict[str, Expectation]:
    return {ANY: same_on_any_cores(), "if it is serial": serial_loss(15.57, ours, 2)}


@pytest.mark.parametrize(
    ("ratio", "answer"),
    [(0.98, CONTRADICTED), (1.1, UNDECIDED), (1.5, UNDECIDED), (2.53, UNDECIDED), (3.0, CONTRADICTED)],
)
def test_readings_that_differ_leave_what_lies_between_them_undecided(ratio: float, answer: str) -> None:
    found = core_free_ratio(15.57, 6.15, around(ratio), "", readings_with(around(1.9)))
    assert found.answer == answer
    pattern = r"expect 2\.28 to 2\.78 on any number of cores or ([\d.]+) to ([\d.]+) if it is serial"
    told = re.search(pattern, found.reason)
    assert told and 1 < float(told[1]) < 1.1 < float(told[2]) < 2.28, "seen: 0.99 [0.97, 1.01] 'outside' 1.08 ± 10 %"


def test_an_uncertain_speedup_of_ours_makes_the_same_ratio_undecided() -> None:
    """Just below what the serial reading allows: decided by a sure speedup of ours, and by a vague one not."""
    sure, vague = (readings_with(around(1.9, deviation)) for deviation in (0.001, 0.4))
    decided = core_free_ratio(15.57, 6.15, around(1.05), "", sure)
    assert decided.answer == CONTRADICTED
    assert core_free_ratio(15.57, 6.15, around(1.05), "", vague).answer == UNDECIDED
    less_sure = core_free_ratio(15.57, 6.15, around(1.05), "", readings_with(around(1.9, 0.1)))
    assert less_sure.answer == CONTRADICTED and less_sure.chance > 10 * decided.chance


def test_the_chance_is_that_with_which_all_intervals_together_still_decide() -> None:
    ratio = around(1.05)
    exact = core_free_ratio(15.57, 6.15, ratio, "")
    assert exact.chance == pytest.approx(ratio.chance(0.9 * 15.57 / 6.15), rel=1e-4)
    both = core_free_ratio(15.57, 6.15, ratio, "", readings_with(exactly(1.9)))
    edge = 1 + 1.9 * (0.9 * 15.57 / 6.15 - 1) / 15.57 * 0.5 / (1 - 1 / 16)
    assert both.chance == pytest.approx(2 * ratio.chance(edge), rel=1e-4), "half of what may miss is the other's"


def test_no_rounds_decide_between_readings_but_rounds_tell_an_end_of_them() -> None:
    readings = readings_with(around(1.9))
    assert core_free_ratio(15.57, 6.15, around(1.5), "", readings).rounds_more == math.inf
    assert core_free_ratio(15.57, 6.15, around(1.0, 0.2), "", readings).rounds_more < math.inf


def test_readings_that_agree_support() -> None:
    readings = {ANY: same_on_any_cores(), "if it is serial": serial_loss(2.0, around(2.0), 2)}
    assert core_free_ratio(2.0, 1.9, around(2.0 / 1.9), "", readings).answer == SUPPORTED
