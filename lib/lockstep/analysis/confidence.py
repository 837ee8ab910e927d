"""What rounds say of a quantity: a mean with an interval that holds whenever we look, alone and combined."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from lockstep.analysis.anytime import AMONG_MANY, MIN_ROUNDS, MISS, fewest_more, half_width, least_chance, rounds_needed
from lockstep.engine.units import digits

__all__ = ["MIN_ROUNDS", "MISS"]

_LARGEST = 700.0  # the largest logarithm of a float
_ROUNDING = 1e-12
_DIFFERING, _OTHERS = "sessions differ: ", "others: "
WIDEST = 100.0
"""A ratio whose interval ends more than so many times apart is not written with it."""


class AnalysisError(ValueError):
    """Records that can't answer a question; the message names the rows, what is wrong and the fix."""


@dataclass(frozen=True)
class Estimate:
    """What `rounds` paired rounds say of a ratio or of another quantity: its mean and an anytime-valid 95 % interval.

    Of ratios (`logarithmic`) the mean is the geometric one. Fewer than MIN_ROUNDS rounds leave the interval open.
    `apart`: where sessions differ, each one's number and what it says by itself; whoever writes the estimate down
    writes these beside it.
    """

    value: float
    low: float
    high: float
    rounds: int
    logarithmic: bool = True
    apart: Sessions = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{digits(self.value)} {self.interval}{self.differing}"

    @property
    def interval(self) -> str:
        """The interval as text, in its place that there is none yet, or of a ratio none that says anything."""
        if not math.isfinite(self.high):
            return "(no interval yet)" if self.open else f"(at least {digits(self.low)})"
        wide = self.logarithmic and self.high > WIDEST * self.low > 0
        return "(no useful interval yet)" if wide else self._ends

    @property
    def _ends(self) -> str:
        return f"[{digits(self.low)}, {digits(self.high)}]"

    @property
    def open(self) -> bool:
        """Whether the rounds leave everything possible."""
        least = 0.0 if self.logarithmic else -math.inf
        return not math.isfinite(self.high) and not self.low > least

    @property
    def differing(self) -> str:
        """The sessions' own intervals as text where they differ, and how many rounds are of sessions with too few for
        one, which the number counts all the same; else ""."""
        own = [f"session {name}: {digits(one.value)} {one._ends}" for name, one in self.apart]
        if own and (others := self._rounds_of_others) > 0:
            own.append(f"{_OTHERS}{others} {'round' if others == 1 else 'rounds'}, too few in each")
        return f" ({_DIFFERING}{'; '.join(own)})" if own else ""

    @property
    def _rounds_of_others(self) -> int:
        return self.rounds - sum(one.rounds for _, one in self.apart)

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

    def ends(self, miss: float = MISS, more: int = 0) -> tuple[float, float]:
        """The interval that misses with the chance `miss`, if `more` rounds come that are as those before."""
        deviation = self.deviation
        half = deviation * half_width(1.0, self.rounds + more, miss) if deviation else 0.0
        found = _around(self.value, math.inf if math.isnan(half) else half, self.rounds, self.logarithmic)
        return found.low, found.high

    def chance(self, against: float) -> float:
        """The anytime-valid p-value of the hypothesis that the true value is `against`: 1 / E_n, at most 1."""
        deviation, distance = self.deviation, self._scaled(self.value) - self._scaled(against)
        if math.isnan(deviation):
            return 1.0
        if deviation == 0:
            return 1.0 if distance == 0 else 0.0
        r = 1 / (1 + self.rounds)
        y = self.rounds * distance**2 / ((self.rounds - 1) * deviation**2)
        log_evidence = 0.5 * math.log(r) + 0.5 * self.rounds * (math.log1p(y) - math.log1p(r * y))
        return min(1.0, math.exp(-log_evidence))

    def rounds_until(self, against: float) -> float:
        """How many rounds in all would tell this value from `against` among many claims (AMONG_MANY), if the next ones
        are as those before; NaN where the interval is open, infinite where sessions differ, for rounds change that
        little."""
        if self.apart:
            return math.inf
        return rounds_needed(self.deviation, abs(self._scaled(self.value) - self._scaled(against)), AMONG_MANY)

    def times(self, factor: float) -> Estimate:
        """The same in another unit."""
        low, high = sorted((self.low * factor, self.high * factor))
        apart = tuple((name, own.times(factor)) for name, own in self.apart)
        return Estimate(self.value * factor, low, high, self.rounds, self.logarithmic, apart)

    def over(self, other: Estimate) -> Estimate:
        """This ratio over another one that was measured in rounds of its own. Both intervals are stretched so that both
        hold together (Bonferroni), and the quotient's is what they leave possible: with 95 %, and with any other chance
        that is asked for (`chance`)."""
        own, others = dict(self.apart), dict(other.apart)
        each = [(name, own.get(name, self).over(others.get(name, other))) for name in sorted({*own, *others})]
        apart = tuple((name, found) for name, found in each if not found.open)
        return _Quotient.of((self, other), self.value / other.value, min(self.rounds, other.rounds), apart)

    @property
    def _half(self) -> float:
        if not self.logarithmic:
            return (self.high - self.low) / 2
        return math.log(self.high / self.low) / 2 if self.low > 0 and self.high < math.inf else math.inf

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value


Sessions = tuple[tuple[int, Estimate], ...]
"""Numbers of sessions, and what each says by itself."""


@dataclass(frozen=True)
class _Combined(Estimate):
    """What several estimates leave possible together. Its chances are those of its own intervals at any level."""

    parts: tuple[Estimate, ...] = field(default=(), compare=False, repr=False)
    _rounds_of_others: ClassVar[int] = 0  # its rounds are those of one part

    @classmethod
    def of(cls, parts: tuple[Estimate, ...], value: float, rounds: int, apart: Sessions) -> Estimate:
        found = cls(value, 0.0, math.inf, rounds, parts[0].logarithmic, apart, parts)
        low, high = found.ends()
        return replace(found, low=low, high=high)

    def chance(self, against: float) -> float:
        """The least chance to miss with which the interval leaves `against` out: Bonferroni at whatever level the
        correction for many claims asks for."""
        return least_chance(lambda miss: not self._holds(against, miss))

    def rounds_until(self, against: float) -> float:
        if any(math.isnan(part.deviation) for part in self.parts):
            return math.nan
        if self.apart:
            return math.inf
        return self.rounds + fewest_more(lambda more: not self._holds(against, AMONG_MANY, more))

    def _holds(self, against: float, miss: float, more: int = 0) -> bool:
        low, high = self.ends(miss, more)
        return low <= against <= high


@dataclass(frozen=True)
class _Quotient(_Combined):
    def ends(self, miss: float = MISS, more: int = 0) -> tuple[float, float]:
        above, below = (part.ends(miss / 2, more) for part in self.parts)
        return above[0] / below[1], above[1] / below[0] if below[0] > 0 else math.inf

    def times(self, factor: float) -> Estimate:
        return self.parts[0].times(factor).over(self.parts[1])


@dataclass(frozen=True)
class _Highest(_Combined):
    pick: ClassVar[Callable[[Iterable[float]], float]] = max

    def ends(self, miss: float = MISS, more: int = 0) -> tuple[float, float]:
        low, high = zip(*(part.ends(miss / len(self.parts), more) for part in self.parts), strict=True)
        return type(self).pick(low), type(self).pick(high)

    def times(self, factor: float) -> Estimate:
        return type(self).among([part.times(factor) for part in self.parts])

    @classmethod
    def among(cls, found: Sequence[Estimate]) -> Estimate:
        if not found:
            raise AnalysisError("the largest of nothing: give at least one estimate")
        if len(found) == 1:
            return found[0]
        wanted = cls.pick(one.value for one in found)
        best = next(one for one in found if one.value == wanted)
        return cls.of(tuple(found), best.value, best.rounds, best.apart)


@dataclass(frozen=True)
class _Lowest(_Highest):
    pick: ClassVar[Callable[[Iterable[float]], float]] = min


def _around(value: float, half: float, rounds: int, logarithmic: bool = True) -> Estimate:
    """A value and the interval that reaches `half`, of a ratio's logarithm, to both sides."""
    if not logarithmic:
        return Estimate(value, value - half, value + half, rounds, logarithmic=False)
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
    deviation = float(scaled.std(ddof=1)) if sample.size > 1 else math.nan
    return estimated(float(scaled.mean()), deviation, int(sample.size), logarithmic)


def estimated(mean: float, deviation: float, rounds: int, logarithmic: bool = True) -> Estimate:
    """The estimate of so many rounds with a mean and a standard deviation, of ratios those of their logarithms."""
    return _around(math.exp(mean) if logarithmic else mean, half_width(deviation, rounds), rounds, logarithmic)


def told_apart(text: str) -> list[str]:
    """What each session gave, of all estimates in a text whose sessions differ (`Estimate.differing`), one by one."""
    parts = re.findall(rf"\({_DIFFERING}([^)]*)\)", text)
    return [own for part in parts for own in part.split("; ") if not own.startswith(_OTHERS)]


def highest(found: Sequence[Estimate]) -> Estimate:
    """The largest of several quantities, with an interval that pays for the choice: each one's own is stretched until
    all hold together (Bonferroni), so none need be chosen before it is judged, at 95 % or at any other level.

    Value and rounds are those of the largest mean, which promises a little too much; one of too few rounds leaves the
    upper end open. Raises AnalysisError for none.
    """
    return _Highest.among(found)


def lowest(found: Sequence[Estimate]) -> Estimate:
    """The smallest of several quantities; as `highest`."""
    return _Lowest.among(found)
