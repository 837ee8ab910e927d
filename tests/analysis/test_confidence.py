"""The intervals: worked examples, the mixture behind them, and how often they miss when looked at each round."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import nct, norm, t

from lockstep.analysis.anytime import AMONG_MANY, MIN_ROUNDS, half_width, rounds_needed
from lockstep.analysis.confidence import AnalysisError, Estimate, estimate, highest, told_apart


def test_a_worked_example() -> None:
    """Five rounds around 2: mean of logs 0.6931, deviation 0.1; half-width 3.78 deviations, as the docstring says."""
    logs = np.log(2) + 0.1 * np.array([-1.0, -1.0, 0.0, 1.0, 1.0])
    found = estimate(np.exp(logs))
    assert found.value == pytest.approx(2.0) and found.deviation == pytest.approx(0.1) and found.rounds == 5
    assert math.log(found.high / 2) == pytest.approx(0.1 * 3.78, rel=0.002)
    assert math.log(2 / found.low) == pytest.approx(0.1 * 3.78, rel=0.002)


@pytest.mark.parametrize(("rounds", "wanted"), [(5, 3.78), (8, 1.50), (12, 1.06), (20, 0.77), (30, 0.61), (60, 0.43)])
def test_half_widths_of_the_docstring(rounds: int, wanted: float) -> None:
    assert half_width(1.0, rounds) == pytest.approx(wanted, abs=0.006)


def test_fewer_rounds_have_no_interval() -> None:
    assert [half_width(1.0, rounds) for rounds in range(1, MIN_ROUNDS)] == [math.inf] * (MIN_ROUNDS - 1)
    found = estimate([2.0, 2.1, 1.9])
    assert (found.low, found.high, found.half_width) == (0.0, math.inf, math.inf)


def test_an_interval_without_an_upper_end_says_at_least() -> None:
    """Bug: the ledger of claims said "1.83 [1.73, inf]"."""
    assert str(Estimate(1.83, 1.73, math.inf, 9)) == "1.83 (at least 1.73)"
    assert str(Estimate(1.83, -1.73, math.inf, 9, logarithmic=False)) == "1.83 (at least -1.73)"
    assert str(Estimate(1.83, 0.0, math.inf, 3)) == "1.83 (no interval yet)"


@pytest.mark.parametrize("rounds", [5, 9, 40])
def test_the_interval_ends_where_the_mixture_of_likelihoods_reaches_twenty(rounds: int) -> None:
    """E_n from its definition: the t statistic's density, averaged over effects from N(0, 1), over that under 0."""

    def log_evidence(distance: float) -> float:
        statistic = math.sqrt(rounds) * distance
        density = quad(lambda d: nct.pdf(statistic, rounds - 1, math.sqrt(rounds) * d) * norm.pdf(d), -8, 8)[0]
        return math.log(density / t.pdf(statistic, rounds - 1))

    edge = brentq(lambda distance: log_evidence(distance) - math.log(20), 1e-6, 6.0)
    assert half_width(1.0, rounds) == pytest.approx(edge, rel=1e-3)


@given(st.floats(0.01, 1.0), st.integers(MIN_ROUNDS, 200), st.floats(0.2, 5.0))
def test_the_chance_is_five_percent_at_the_ends_of_the_interval(deviation: float, rounds: int, value: float) -> None:
    half = half_width(deviation, rounds)
    found = Estimate(value, value * math.exp(-half), value * math.exp(half), rounds)
    assert found.chance(found.high) == pytest.approx(0.05, rel=1e-6)
    assert found.chance(found.low) == pytest.approx(0.05, rel=1e-6)
    assert found.chance(found.value) == 1.0


@given(st.floats(0.001, 0.5), st.floats(0.01, 0.5))
def test_rounds_needed_is_the_first_number_that_is_enough(deviation: float, half: float) -> None:
    needed = rounds_needed(deviation, half)
    assert half_width(deviation, int(needed)) <= half
    assert needed == MIN_ROUNDS or half_width(deviation, int(needed) - 1) > half


def test_what_can_never_be_told_apart_says_so() -> None:
    assert rounds_needed(0.1, 0.0) == math.inf
    assert estimate([1.0, 1.1, 0.9, 1.05, 0.95]).rounds_until(1.0) > 1000


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf], [1.0, 0.0], [1.0, -1.0]])
def test_nothing_to_estimate_is_refused(values: list[float]) -> None:
    with pytest.raises(AnalysisError, match="give at least one value"):
        estimate(values)


def test_a_difference_may_be_negative() -> None:
    found = estimate([-1.0, 0.0, 1.0, -1.0, 1.0], logarithmic=False)
    assert found.value == 0.0 and found.low == -found.high and found.half_width == pytest.approx(3.78, abs=0.01)


def test_a_quotient_of_two_ratios_holds_what_both_leave_possible() -> None:
    spread = np.array([-1.0, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    above, below = estimate(3 * np.exp(0.02 * spread)), estimate(2 * np.exp(0.05 * spread))
    found = above.over(below)
    halves = [half_width(each.deviation, 8, 0.025) for each in (above, below)]
    assert found.value == pytest.approx(1.5)
    assert found.high == pytest.approx(1.5 * math.exp(sum(halves)))


def _missed(noise: np.ndarray, looks: range, runs: int, width: object) -> float:
    """The share of runs in which the interval misses 0 at any of the looks. `noise`: runs x rounds."""
    assert callable(width)
    missed = np.zeros(runs, dtype=bool)
    for rounds in looks:
        seen = noise[:, :rounds]
        missed |= np.abs(seen.mean(axis=1)) > width(rounds) * seen.std(axis=1, ddof=1)
    return float(missed.mean())


def test_a_ratio_that_says_nothing_is_written_without_its_interval() -> None:
    """A difference or a share has no ratio of ends: 0.001 to 0.2 is an interval of a share like any other."""
    wide, share = Estimate(1.29, 0.044, 1.27e13, 9), Estimate(0.05, 0.001, 0.2, 9, logarithmic=False)
    assert str(wide) == "1.29 (no useful interval yet)" and str(share) == "0.05 [0.001, 0.2]"
    assert str(Estimate(1.84, math.nan, math.nan, 1)) == "1.84 (no interval yet)", "seen: 1.84 [nan, nan]"
    assert str(Estimate(19_490.0, 5_490.0, 46_600.0, 9)) == "19500 [5490, 46600]"
    assert str(Estimate(1.0, 0.1, 10.0, 9)) == "1 [0.1, 10]" and str(Estimate(0.1, -0.2, 0.4, 9)) == "0.1 [-0.2, 0.4]"
    apart = Estimate(2.0, 1.0, 3.0, 18, apart=((0, wide), (1, Estimate(2.0, 1.9, 2.1, 9))))
    assert told_apart(str(apart)) == ["session 0: 1.29 [0.044, 1.27e+13]", "session 1: 2 [1.9, 2.1]"]


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.0, 0.5], ids=["steady", "drifting"])
def test_coverage_when_we_look_after_every_round(root: Path, drift: float) -> None:
    """10 000 runs of up to 60 A B B A rounds, with noise resampled from the steps that this repository measured, heavy
    tails included, and with a machine that becomes slower meanwhile."""
    noise = _of_our_own_steps(root)
    rng = np.random.default_rng(15)
    runs, rounds = 10_000, 60
    speed = drift * np.linspace(0, 1, 4 * rounds).reshape(rounds, 4)  # the log of a visit's time drifts with time
    visits = rng.choice(noise, size=(runs, rounds, 4)) + speed
    logs = (visits[..., 0] + visits[..., 3] - visits[..., 1] - visits[..., 2]) / 2
    looks = range(MIN_ROUNDS, rounds + 1)
    assert _missed(logs, looks, runs, lambda n: half_width(1.0, n)) <= 0.05
    # An ordinary interval, looked at as often, misses several times as often: the reason for all of this.
    assert _missed(logs, looks, runs, lambda n: 1.96 / math.sqrt(n)) > 0.2


def _of_our_own_steps(root: Path) -> np.ndarray:
    """Deviations of the log of a step's time from its cell's mean, from all stored records."""
    from lockstep.analysis.cells import cells
    from lockstep.records import read_records

    found = []
    for path in sorted((root / "results" / "reference").glob("*/records.csv")):
        records = read_records(path.parent)
        for _, rows in cells(records[records["status"] == "ok"]):
            logs = np.log(rows["step_seconds"].dropna().to_numpy(dtype=float))
            if len(logs) >= MIN_ROUNDS:
                found.append(logs - logs.mean())
    return np.concatenate(found)


def test_the_highest_of_several_pays_for_the_choice() -> None:
    """The fastest of six was chosen and judged on the same rounds, as if it had been the only one."""
    random = np.random.default_rng(3)
    alike = [np.exp(random.normal(0.0, 0.1, 12)) for _ in range(6)]
    found = highest([estimate(values) for values in alike])
    best = max((estimate(values) for values in alike), key=lambda each: each.value)
    assert found.value == best.value and found.half_width > best.half_width and found.low < 1 < found.high
    assert highest([best]) is best
    with pytest.raises(AnalysisError, match="the largest of nothing"):
        highest([])
    few = highest([best, estimate([1.0, 2.0])])
    assert few.high == math.inf and math.isnan(few.deviation) and math.isnan(few.rounds_until(2.0))


def test_the_highest_holds_the_largest_true_value() -> None:
    random = np.random.default_rng(0)
    true = np.array([0.0, 0.02, -0.1, 0.05])
    held = 0
    for _ in range(500):
        found = highest([estimate(random.normal(mean, 0.1, 10), logarithmic=False) for mean in true])
        held += found.low <= true.max() <= found.high
    assert held / 500 >= 0.95


def _quotient_and_highest() -> list[Estimate]:
    random = np.random.default_rng(8)
    four = [estimate(np.exp(random.normal(0.05 * place, 0.1, 14))) for place in range(4)]
    return [highest(four), four[3].over(four[0]), highest([four[1].over(four[0]), four[2]])]


@pytest.mark.parametrize("miss", [0.05, 0.01, 0.001, 1e-5])
def test_the_chance_of_what_was_combined_is_that_of_its_interval_at_every_level(miss: float) -> None:
    """Holm's correction asks for levels far below 5 %: there the interval that pays for the choice decides, too."""
    for found in _quotient_and_highest():
        low, high = found.ends(miss)
        assert [found.chance(end) for end in (low, high)] == pytest.approx([miss, miss], rel=1e-4)
        assert found.chance(found.value) == 1.0
    best = [estimate(np.exp(np.tile([0.0, 0.1], 7))) for _ in range(6)]
    assert highest(best).chance(1.0) == pytest.approx(6 * best[0].chance(1.0), rel=1e-4), "Bonferroni"


def test_rounds_until_what_was_combined_is_told_apart_are_the_fewest() -> None:
    for found in _quotient_and_highest():
        more = int(found.rounds_until(1.02)) - found.rounds
        assert more > 0 and found.ends(AMONG_MANY, more)[0] > 1.02 >= found.ends(AMONG_MANY, more - 1)[0]
        assert found.rounds_until(found.value) == math.inf


def test_the_unit_of_what_was_combined_changes_none_of_its_chances() -> None:
    for found in _quotient_and_highest():
        scaled = found.times(3.0)
        assert (scaled.value, scaled.low) == pytest.approx((3 * found.value, 3 * found.low))
        assert scaled.chance(3.0) == pytest.approx(found.chance(1.0), rel=1e-4)


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_the_highest_of_equal_alternatives_is_seldom_called_higher(level: float) -> None:
    """Six alternatives that are as fast as their base, chosen and judged on the same rounds, looked at on the way."""
    random, runs, false = np.random.default_rng(12), 1000, 0
    for _ in range(runs):
        noise = np.exp(0.1 * random.standard_normal((6, 40)))
        for rounds in (10, 20, 40):
            found = highest([estimate(one[:rounds]) for one in noise])
            if found.low > 1 and found.chance(1.0) <= level:
                false += 1
                break
    assert false / runs <= level


def test_the_highest_is_open_upwards_where_one_has_too_few_rounds() -> None:
    fast = estimate(np.exp(np.tile([0.60, 0.70], 6)))
    found = highest([fast, estimate([1.0, 1.1])])
    assert found.low > 1.5 and found.high == math.inf and found.chance(1.0) < 0.001 and found.chance(9.0) == 1.0
    assert not found.open and str(found) == "1.92 (at least 1.8)"


def test_what_cannot_be_stretched_is_open() -> None:
    assert estimate([1.0, 1.2, 1.1]).ends() == (0.0, math.inf)
    exact = estimate([2.0] * 6)
    assert exact.ends(1e-9) == (2.0, 2.0) and exact.over(exact).chance(1.01) == 0.0
