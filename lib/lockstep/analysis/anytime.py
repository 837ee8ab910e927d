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
from collections.abc import Callable

MISS = 0.05
"""The chance that an interval misses: these are 95 % intervals."""
AMONG_MANY = 0.00035
"""What is measured for a verdict shall miss as rarely as this: with Holm's correction it stands even if it has to be
the first of all claims of the ledger, to whose number a test holds it."""
MIN_ROUNDS = 5
"""The fewest rounds that have an interval: of fewer, no finite one holds with this chance."""
_MOST_ROUNDS = 1_000_000
_LEAST = 1e-140  # of the chances that are told apart: the square of a hundredth of it is still a float
_ROUNDING_OF_CHANCES = 1e-6


def least_chance(decides: Callable[[float], bool]) -> float:
    """The least chance to miss with which intervals still decide something, 1 if none does; `decides` tells it of a
    chance, and intervals that miss more often decide more. 0 where no interval is too wide: without any noise."""
    if not decides(1.0):
        return 1.0
    if decides(_LEAST):
        return 0.0
    low, high = math.log(_LEAST), 0.0
    while high - low > _ROUNDING_OF_CHANCES:
        middle = (low + high) / 2
        low, high = (low, middle) if decides(math.exp(middle)) else (middle, high)
    return math.exp(high)


def fewest_more(decides: Callable[[int], bool]) -> float:
    """With how many more rounds intervals decide something, infinite if a million are not enough; `decides` tells it of
    a number of rounds, and more rounds decide more."""
    if not decides(_MOST_ROUNDS):
        return math.inf
    low, high = 0, _MOST_ROUNDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle + 1, high)
    return low


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
    return MIN_ROUNDS + fewest_more(lambda more: half_width(deviation, MIN_ROUNDS + more, miss) <= half)
