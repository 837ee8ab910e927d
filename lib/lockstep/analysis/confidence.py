"""Intervals that hold however long we measure, and whenever we look: the statistics of every comparison.

Measuring goes on until an interval is narrow enough, so the number of rounds depends on what was seen. An ordinary
95 % interval that is looked at after every round misses the truth far more often than once in twenty. These intervals
are a confidence sequence: the chance that *any* of them, after 5, 6, 7 ... rounds, misses the mean is 5 %.

    rounds           5      8     12     20     30     60
    half-width     3.8    1.5    1.1   0.77   0.61   0.43    standard deviations of a round

The sequence is Lai's for a normal mean of unknown variance ("On confidence sequences", Annals of Statistics 4, 1976),
in the form of Perez-Ortiz, Lardy, de Heide and Grünwald ("E-statistics, group invariance and anytime-valid testing",
2024): after n rounds with mean m and standard deviation s, the likelihood of the t statistic, averaged over a standard
normal effect size, against that under the mean x,

    E_n(x) = sqrt(r) * ((1 + y) / (1 + r y)) ** (n / 2),    y = n (m - x)**2 / ((n - 1) s**2),    r = 1 / (1 + n),

exceeds 1 / 0.05 with a chance of at most 0.05 for any n. The interval holds every x for which it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

MISS = 0.05
"""The chance that an interval misses: these are 95 % intervals."""
AMONG_MANY = 0.001
"""What is measured for a verdict among some fifty shall miss as rarely as this, to stand after Holm's correction."""
MIN_ROUNDS = 5
"""The fewest rounds that have an interval: of fewer, no finite one holds with this chance."""
_MOST_ROUNDS = 1_000_000
_ROUNDING = 1e-12
_LARGEST = 700.0  # the largest logarithm of a float


class AnalysisError(ValueError):
    """Records that can't answer a question; the message names the rows, what is wrong and the fix."""


@dataclass(frozen=True)
class Estimate:
    """What `rounds` paired rounds say of a ratio or of another quantity: its mean and an anytime-valid 95 % interval.

    Of ratios (`logarithmic`) the mean is the geometric one. Fewer than MIN_ROUNDS rounds leave the interval open.
    """

    value: float
    low: float
    high: float
    rounds: int
    logarithmic: bool = True

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"{self.value:.3g} (no interval yet)"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def columns(self) -> tuple[float, float, float]:
        """Value, low and high for a table, NaN where there is no interval yet."""
        return (self.value, math.nan, math.nan) if math.isinf(self.high) else (self.value, self.low, self.high)

    @property
    def half_width(self) -> float:
        """Half the interval, of a ratio relative to it: 0.05 is ± 5 %. Infinite where the interval is open."""
        half = self._half
        return math.expm1(half) if self.logarithmic and half < _LARGEST else half

    @property
    def deviation(self) -> float:
        """The standard deviation of a round, of a ratio that of its logarithm; NaN where the interval is open."""
        unit, half = half_width(1.0, self.rounds), self._half
        return half / unit if math.isfinite(unit) and math.isfinite(half) else math.nan

    def chance(self, against: float) -> float:
        """The anytime-valid p-value of the hypothesis that the true value is `against`: 1 / E_n, at most 1."""
        unit = half_width(1.0, self.rounds)
        side = self.low if against < self.value else self.high  # of the highest of several the two halves differ
        if not math.isfinite(unit) or not math.isfinite(side) or (self.logarithmic and side <= 0):
            return 1.0
        deviation = abs(self._scaled(self.value) - self._scaled(side)) / unit
        distance = self._scaled(self.value) - self._scaled(against)
        if deviation == 0:
            return 1.0 if distance == 0 else 0.0
        r = 1 / (1 + self.rounds)
        y = self.rounds * distance**2 / ((self.rounds - 1) * deviation**2)
        log_evidence = 0.5 * math.log(r) + 0.5 * self.rounds * (math.log1p(y) - math.log1p(r * y))
        return min(1.0, math.exp(-log_evidence))

    def rounds_until(self, against: float) -> float:
        """How many rounds in all would tell this value from `against` among many claims (AMONG_MANY), if the next ones
        are as those before; NaN where the interval is open."""
        return rounds_needed(self.deviation, abs(self._scaled(self.value) - self._scaled(against)), AMONG_MANY)

    def times(self, factor: float) -> Estimate:
        """The same in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Estimate(self.value * factor, low, high, self.rounds, self.logarithmic)

    def over(self, other: Estimate) -> Estimate:
        """This ratio over another one that was measured in rounds of its own. Both intervals are stretched so that both
        hold with 95 %, and the quotient's is what they leave possible."""
        rounds = min(self.rounds, other.rounds)
        value = self.value / other.value
        stretched = (each.deviation * half_width(1.0, each.rounds, MISS / 2) for each in (self, other))
        half = sum(stretched)
        return _around(value, half, rounds) if math.isfinite(half) else _around(value, math.inf, rounds)

    @property
    def _half(self) -> float:
        if not self.logarithmic:
            return (self.high - self.low) / 2
        return math.log(self.high / self.low) / 2 if self.low > 0 and self.high < math.inf else math.inf

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value


def _around(value: float, half: float, rounds: int) -> Estimate:
    """A ratio and the interval that reaches `half`, of the logarithm, to both sides."""
    if half >= _LARGEST:
        return Estimate(value, 0.0, math.inf, rounds)
    return Estimate(value, value * math.exp(-half), value * math.exp(half), rounds)


def estimate(values: Sequence[float] | np.ndarray | pd.Series, *, logarithmic: bool = True) -> Estimate:
    """Mean and anytime-valid 95 % interval of one value per round; `logarithmic` for ratios, rates and times.

    Raises AnalysisError for no values, for values that are not finite and for ratios that are not above 0.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size == 0 or not np.isfinite(sample).all() or (logarithmic and (sample <= 0).any()):
        wanted = "finite and above 0" if logarithmic else "finite"
        raise AnalysisError(f"no interval of {sample.tolist()}: give at least one value, all of them {wanted}")
    if sample.size >= MIN_ROUNDS and np.ptp(sample) <= _ROUNDING * abs(sample[0]):  # one value, not exp(log(value))
        only = float(sample[0])
        return Estimate(only, only, only, int(sample.size), logarithmic)
    scaled = np.log(sample) if logarithmic else sample
    mean, rounds = float(scaled.mean()), int(sample.size)
    deviation = float(scaled.std(ddof=1)) if rounds > 1 else math.nan
    half = half_width(deviation, rounds)
    if logarithmic:
        return _around(math.exp(mean), half, rounds)
    return Estimate(mean, mean - half, mean + half, rounds, logarithmic=False)


def highest(found: Sequence[Estimate]) -> Estimate:
    """The largest of several quantities, with an interval that pays for the choice: each one's own is stretched until
    all hold together with 95 % (Bonferroni), so none need be chosen before it is judged.

    Raises AnalysisError for none. Its value is that of the largest mean, which promises a little too much.
    """
    if not found:
        raise AnalysisError("the largest of nothing: give at least one estimate")
    if len(found) == 1:
        return found[0]
    each = [_stretched(one, MISS / len(found)) for one in found]
    best = max(each, key=lambda one: one.value)
    low, high = max(one.low for one in each), max(one.high for one in each)
    return Estimate(best.value, low, high, min(one.rounds for one in each), best.logarithmic)


def _stretched(one: Estimate, miss: float) -> Estimate:
    """The same with an interval that misses with another chance."""
    half = one.deviation * half_width(1.0, one.rounds, miss)
    if math.isnan(half):
        return one
    if one.logarithmic:
        return _around(one.value, half, one.rounds)
    return Estimate(one.value, one.value - half, one.value + half, one.rounds, logarithmic=False)


def half_width(deviation: float, rounds: int, miss: float = MISS) -> float:
    """Half the width of the interval of a mean; infinite for fewer than MIN_ROUNDS rounds."""
    if rounds < MIN_ROUNDS or math.isnan(deviation):
        return math.inf
    r = 1 / (1 + rounds)
    q = (1 / (miss**2 * r)) ** (1 / rounds)
    if r * q >= 1:
        return math.inf
    y = (q - 1) / (1 - r * q)
    return deviation * math.sqrt((rounds - 1) * y / rounds)


def rounds_needed(deviation: float, half: float, miss: float = MISS) -> float:
    """The fewest rounds whose interval is at most `half` wide to each side; infinite if a million are not enough."""
    if math.isnan(deviation):
        return math.nan
    if half_width(deviation, _MOST_ROUNDS, miss) > half:
        return math.inf
    low, high = MIN_ROUNDS, _MOST_ROUNDS  # the half-width falls with the rounds
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(deviation, middle, miss) <= half else (middle + 1, high)
    return low
