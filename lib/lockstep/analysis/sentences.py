"""Findings: the sentence or two that a figure shows, computed from what is stored.

A finding states a number with its 95 % interval, or that no difference can be shown, or what is missing. It never says
more than its interval does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.figures.style import label
from lockstep.analysis.statistics import is_difference
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow

Finding = Callable[[Stored], str]

NETWORKS: Mapping[str, str] = {"SimpleBig": "AlexNet", "ComplexSmall": "VGG16", "Pneumonia": "the 50x50 network"}
"""Use cases whose network has a name of its own."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_PLURALS: Mapping[str, str] = {"process": "processes"}


def network_name(use_case: str) -> str:
    """What a sentence calls the network of a use case."""
    return NETWORKS.get(use_case, f"the network of {use_case}")


def way_name(strategy: str) -> str:
    """What a sentence calls a strategy: its label in figures, without the comma that a list would take for its own."""
    name, _, detail = label(strategy).partition(", ")
    return f"{name} ({detail})" if detail else name


def counted(number: int, noun: str) -> str:
    """A number and its noun, singular or plural; in words up to ten: one process, two processes, 16 cores."""
    word = _NUMBERS[number] if 0 <= number < len(_NUMBERS) else str(number)
    return f"{word} {noun if number == 1 else _PLURALS.get(noun, noun + 's')}"


def listed(parts: Iterable[str]) -> str:
    """Parts of a sentence as a list: a; a and b; a, b, and c."""
    found = list(parts)
    if len(found) < 3:
        return " and ".join(found)
    return f"{', '.join(found[:-1])}, and {found[-1]}"


def sentence(text: str) -> str:
    """`text` with a capital at its beginning and a period at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def times(ratio: Estimate, what: str) -> str:
    """A ratio, of what, and its interval: 1.92 times as fast as one core [1.77, 2.37]."""
    return f"{ratio.value:.3g} times {what} {interval_text(ratio)}"


def measure_of(ratio: Estimate, unit: str) -> str:
    """A measured quantity with its interval and unit: 94.1 % [93.8, 94.6]."""
    return f"{ratio.value:.3g} {unit} {interval_text(ratio)}"


def interval_text(ratio: Estimate) -> str:
    """The interval alone, where the number already stands; says so where there is none yet."""
    return "(no interval yet)" if ratio.open else f"[{ratio.low:.3g}, {ratio.high:.3g}]{ratio.differing}"


def estimate_in(row: Mapping[str, Any], name: str, low: str = "low", high: str = "high") -> Estimate:
    """The estimate that a row of a table holds in its columns, open where there is no interval. Raises NotNow for a row
    without the number."""
    if math.isnan(row[name]):
        raise NotNow("", str(row.get("reason") or "") or "it was not measured")
    ends = (0.0, math.inf) if math.isnan(row[low]) else (row[low], row[high])
    return Estimate(row[name], ends[0], ends[1], int(row["rounds"]))


def faster(ratio: Estimate, noise: float, subject: str, rival: str) -> str:
    """Whether `subject` or `rival` is faster, by the ratio of their images per second; never more than the interval and
    the noise of the A/A pairs allow.

    `subject` and `rival` are plural. Raises NotNow for too few rounds.
    """
    require_rounds(ratio)
    if not is_difference(ratio, noise):
        why = ""
        if not ratio.low <= 1 <= ratio.high:
            why = ", and two runs of one cell may differ by as much"
            if math.isinf(noise):
                why = ", and how far two runs of one cell lie apart is not known yet"
        return f"{subject} and {rival} cannot be told apart ({times(ratio, 'as fast')}{why})"
    if ratio.value > 1:
        return f"{subject} are {times(ratio, f'as fast as {rival}')}"
    return f"{subject} are slower than {rival}, {times(ratio, 'as fast')}"


def require_rounds(ratio: Estimate) -> None:
    """Raises NotNow where a ratio rests on fewer rounds than an interval needs."""
    if ratio.rounds < MIN_ROUNDS:
        raise NotNow(
            "", f"{counted(ratio.rounds, 'round')} stored, and an interval needs {counted(MIN_ROUNDS, 'round')}"
        )


def finding(compute: Finding) -> Finding:
    """As a decorator: where the records can't answer, the finding says so, with the reason, in place of an error."""

    @wraps(compute)
    def found(stored: Stored) -> str:
        if stored.records.empty:
            return "Nothing is stored yet, so there is nothing to find: measure it first."
        try:
            return compute(stored.shown)
        except (NotNow, AnalysisError) as error:
            return sentence(f"These records do not answer this yet: {error}")

    return found


def settle_each(say: Callable[[str], str], names: Iterable[str]) -> list[str]:
    """What `say` says about each name, and the reason where data are missing."""
    found = []
    for name in names:
        try:
            found.append(say(name))
        except (NotNow, AnalysisError) as error:
            found.append(f"{name}: not known yet ({error}).")
    return found
