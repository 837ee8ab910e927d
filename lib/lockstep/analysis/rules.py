"""The rules of verdicts: from an interval to an answer, the same for every claim.

the interval of a ratio      |---x---|                          1 or another limit
against a direction                       |--x--|  contradicted  |  supported  |--x--|      |--x-|-| undecided
against a number n               outside n ± 10 %: contradicted; inside: supported; across an end: undecided
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.statistics import Conditions, median_or_nan, ratio_with_interval, select
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    MEASURED,
    NOT_YET,
    SUPPORTED,
    TOLERANCE,
    UNDECIDED,
    Claim,
    NotNow,
    Verdict,
    cores_given,
    each,
    opposite,
    table1,
)

UNKNOWN_NOISE = f"the noise of two runs of the same cell is not known: no A/A pair has {MIN_ROUNDS} rounds"


def enough(rounds: int, grade: str = MEASURED, seen: str = "") -> None:
    """Raises NotNow for fewer rounds than an interval needs; `grade`: of what they decide, `seen` in them."""
    if rounds < MIN_ROUNDS:
        many = "1 round" if rounds == 1 else f"{rounds} rounds"
        raise NotNow(UNDECIDED, f"only {many}{seen}; an interval needs {MIN_ROUNDS}", grade)


def above_one(ratio: Estimate, noise: float, text: str) -> Verdict:
    """Whether a ratio is above 1: by its whole interval, beyond `noise` (`lockstep.analysis.noise.aa_noise`)."""
    enough(ratio.rounds)
    if ratio.open:  # such as a quotient of two ratios that have hardly enough rounds each
        raise NotNow(UNDECIDED, "too few rounds for an interval")
    if math.isinf(noise):
        return undecided(f"{ratio} {text}".strip(), UNKNOWN_NOISE, math.nan)
    return above(ratio, math.exp(noise), math.exp(-noise), text, one_and_noise(noise))


def one_and_noise(noise: float) -> str:
    """What a reason calls 1 and what lies within the noise of it: 1 and the A/A noise of 2.1%."""
    return "1" if not noise else f"1 and the A/A noise of {math.expm1(noise):.1%}"


def above(value: Estimate, high: float, low: float, text: str, limit: str) -> Verdict:
    """Supported if the interval lies above `high`, contradicted if it lies below `low`: the two sides of a limit."""
    measured = f"{value} {text}".strip()
    if value.low > high:
        return decided(SUPPORTED, measured, f"the interval is above {limit}", value, [high])
    if value.high < low:
        return decided(CONTRADICTED, measured, f"the interval is below {limit}", value, [low])
    if low <= value.low and value.high <= high:  # a difference as small as noise: more rounds would not show it
        return undecided(measured, f"the interval lies within {limit}", math.inf)
    holds = "holds" if value.low <= low and high <= value.high else "reaches into"
    nearer = high if value.value >= (low + high) / 2 else low
    # A value between the limits stays there: its interval will lie within them one day.
    more = math.inf if low < value.value < high else value.rounds_until(nearer) - value.rounds
    return undecided(measured, f"the interval {holds} {limit}", more)


def below(value: Estimate, limit: float, unit: str, of: str) -> Verdict:
    """Whether a value is below `limit`, both in `unit`."""
    enough(value.rounds)
    return opposite(above(value, limit, limit, f"{unit} {of}", f"{limit:g} {unit}"))


def not_below(value: Estimate, limit: float, unit: str, of: str) -> Verdict:
    """Whether a value is at least `limit`, both in `unit`."""
    enough(value.rounds)
    return above(value, limit, limit, f"{unit} {of}", f"{limit:g} {unit}")


def within(published: float, ratio: Estimate, measured: str) -> Verdict:
    """Supported if the whole interval lies within TOLERANCE of a published number, contradicted if it lies outside."""
    low, high = sorted((published * (1 - TOLERANCE), published * (1 + TOLERANCE)))
    found = between(low, high, ratio, measured, f"{published:g} ± {TOLERANCE:.0%}")
    return replace(found, numbers=(("", ratio),))


def between(low: float, high: float, value: Estimate, measured: str, around: str) -> Verdict:
    """Supported if the whole interval lies between two numbers, contradicted if all of it lies outside, else undecided.

    `around` is what the reason calls the two.
    """
    enough(value.rounds)
    if low <= value.low and value.high <= high:
        return decided(SUPPORTED, measured, f"the interval lies within {around}", value, [low, high])
    if value.high < low or value.low > high:
        nearer = low if value.high < low else high
        return decided(CONTRADICTED, measured, f"the interval lies outside {around}", value, [nearer])
    more = max(value.rounds_until(edge) for edge in (low, high)) if low < value.value < high else 0.0
    more = more or value.rounds_until(low if value.value <= low else high)
    return undecided(measured, f"the interval crosses an end of {around}", more - value.rounds)


def alike(ratio: Estimate, measured: str, tolerance: float = TOLERANCE) -> Verdict:
    """Whether two quantities are alike: their ratio's whole interval within 1 ± `tolerance`."""
    return replace(within(1.0, ratio, measured), numbers=())


def decided(answer: str, measured: str, reason: str, value: Estimate, limits: Sequence[float]) -> Verdict:
    """The verdict of an interval that holds none of `limits`: with the chance that it is wrong, and how many more
    rounds it would take to stand among many claims."""
    more = max(1.0, max(value.rounds_until(limit) for limit in limits) - value.rounds)
    return Verdict(answer, measured, reason, chance=max(map(value.chance, limits)), rounds_more=more)


def undecided(
    measured: str, reason: str, rounds_more: float, numbers: tuple[tuple[str, Estimate], ...] = ()
) -> Verdict:
    more = max(1.0, rounds_more) if not math.isnan(rounds_more) else math.nan
    return Verdict(UNDECIDED, measured, reason, numbers, rounds_more=more)


def graded(found: Verdict, grade: str, *more: str) -> Verdict:
    """The same verdict on another grade of evidence, with further reasons."""
    return replace(found, grade=grade, reason="; ".join(part for part in (found.reason, *more) if part))


def with_seconds(found: Verdict, records: pd.DataFrame, sides: Iterable[Conditions]) -> Verdict:
    """With what a round of the compared cells takes: the median over their rows, summed over the sides; of a cell whose
    rows are all older than that column, its training alone."""
    names = ["measuring_seconds", "training_seconds"]
    known = [select(records, side)[names].dropna(how="all", axis=1) for side in sides]
    medians = [median_or_nan(own.iloc[:, 0]) if own.size else math.nan for own in known]
    return replace(found, round_seconds=float(sum(medians)))


def has_more(
    records: pd.DataFrame, above: Conditions, under: Conditions, text: str, measure: str = "images_per_second"
) -> Verdict:
    """Whether `above` has more of `measure` than `under`."""
    ratio = ratio_with_interval(records, above, under, measure)
    return with_seconds(above_one(ratio, aa_noise(records, measure), text), records, (above, under))


def compare(claim: Claim, records: pd.DataFrame, over: str, under: str, measure: str, text: str) -> Verdict:
    """Whether `over` has more of `measure` than `under`, at the same workers and cores, in each use case."""

    def one(use_case: str) -> Verdict:
        above = table1(records, use_case=use_case, strategy=over, device="cpu")
        below = table1(records, use_case=use_case, strategy=under, device="cpu")
        budgets = [cores_given(select(records, cell)) for cell in (above, below)]
        if budgets[0] != budgets[1]:
            raise NotNow(NOT_YET, f"{over} ran on {budgets[0]} cores, {under} on {budgets[1]}: no fair comparison")
        return has_more(records, above, below, text, measure)

    return each(claim, one)
