"""What every verdict shares: its words, the choice of rows, and the rules that turn a ratio into a word.

A verdict is computed, never typed in. *reproduced* and *not reproduced* need at least `MIN_ROUNDS` paired rounds;
what this machine can't show is *not measurable here*, and what no notebook has measured is *not measured yet*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.statistics import (
    BASELINE,
    MIN_ROUNDS,
    AnalysisError,
    Conditions,
    Ratio,
    aa_or_none,
    is_difference,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
NOT_MEASURABLE, NOT_YET = "not measurable here", "not measured yet"
WORDS = (REPRODUCED, NOT_REPRODUCED, NOT_MEASURABLE, NOT_YET)
ORDER = (NOT_YET, NOT_MEASURABLE, NOT_REPRODUCED, REPRODUCED)  # the weakest part decides over a claim of several

TOLERANCE = 0.10
"""A published number counts as reproduced if the measured interval, widened by this share, holds it."""
FULL_CPU_PERCENT = 90.0
"""Mean use of the budgeted cores that counts as fully used."""

USE_CASES = ("ComplexSmall", "SimpleBig")
TABLE1_PREFERRED: Mapping[str, Any] = {
    "input": "jpeg", "variant": "a", "precision": "float32", "environment": "tuned"
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What records say about a claim: the word, the measured value with its interval (or ""), and why.

    `numbers` are the measured values in the unit of the claim's own figure, each with what it was measured on ("" if
    there is only one); empty where the claim has no figure, or nothing of its kind was measured.
    """

    verdict: str
    measured: str = ""
    reason: str = ""
    numbers: tuple[tuple[str, Ratio], ...] = ()


Claim = Mapping[str, Any]
"""A row of the claims ledger (`lockstep.analysis.published.read_claims`)."""
Function = Callable[[Claim, Stored], Verdict]


class Verdicts(dict[str, Function]):
    """Verdict functions under their own names, as the claims ledger writes them."""

    def add(self, function: Function) -> Function:
        """As a decorator: enters a function under its name."""
        self[function.__name__] = function
        return function


class NotNow(Exception):
    """Carries a verdict out of a computation that lacks its data."""

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(reason)
        self.verdict = Verdict(verdict, "", reason)


def judge(claim: Claim, stored: Stored, rules: Mapping[str, Function]) -> Verdict:
    """The verdict on a row of the claims ledger from what is stored of its notebook, by one of `rules` or of COMMON.

    Raises KeyError for a verdict function that does not exist (`lockstep.experiments.registry.checked_claims` refuses
    such rows).
    """
    function = {**COMMON, **rules}[claim["verdict"]]
    return settle(lambda: function(claim, stored))


# Choosing rows


def table1(records: pd.DataFrame, **conditions: Any) -> Conditions:
    """Conditions of the one cell of `table1` that is compared with the paper: JPEG input, float32, most workers.

    Raises NotNow if it holds no ok rows: with the reason of its skipped or failed rows where there are any.
    """
    wanted = dict(conditions)
    if len(records) and (records["experiment"] == "table1").any():
        wanted["experiment"] = "table1"  # rows of other experiments were not interleaved with these
    rows = select(records, wanted, status=None) if len(records) else records
    for name, value in TABLE1_PREFERRED.items():
        if name not in wanted and len(rows) and (rows[name] == value).any():
            rows, wanted[name] = rows[rows[name] == value], value
    good = ran(rows, " ".join(str(value) for value in conditions.values()))
    return {**wanted, "workers": int(good["workers"].max())}


def cell(records: pd.DataFrame, **conditions: Any) -> dict[str, Any]:
    """Conditions of the rows that fit, on the CPU, in float32 and the first of an A/A pair unless they say otherwise.

    Raises NotNow if none of them is ok, as `table1` does.
    """
    wanted = {"variant": "a", "device": "cpu", "precision": "float32", **conditions}
    about = " ".join(f"{value:g}" if isinstance(value, float) else str(value)
                     for value in conditions.values() if not isinstance(value, list))  # fmt: skip
    ran(select(records, wanted, status=None), about)
    return wanted


def ran(rows: pd.DataFrame, about: str) -> pd.DataFrame:
    """The ok rows. Raises NotNow where there are none, with the reason of skipped or failed rows."""
    good = rows[rows["status"] == "ok"] if len(rows) else rows
    if len(good):
        return good
    if not len(rows):
        raise NotNow(NOT_YET, f"no records of {about}")
    reasons = "; ".join(dict.fromkeys(rows["reason"].astype(str)))
    if (rows["status"] == "skipped").any():
        raise NotNow(NOT_MEASURABLE, reasons)
    raise NotNow(NOT_YET, f"{about} failed: {reasons}")


def use_cases(claim: Claim) -> tuple[str, ...]:
    return USE_CASES if claim["use_case"] in ("both", "") else (str(claim["use_case"]),)


def each(claim: Claim, one: Callable[[str], Verdict]) -> Verdict:
    """The verdict on a claim about several use cases: the weakest of theirs."""
    return join([(use_case, settle(partial(one, use_case))) for use_case in use_cases(claim)])


def settle(compute: Callable[[], Verdict]) -> Verdict:
    """What `compute` gives, or the verdict on data that it lacks."""
    try:
        return compute()
    except NotNow as stop:
        return stop.verdict
    except AnalysisError as error:
        return Verdict(NOT_YET, "", str(error))


def join(parts: list[tuple[str, Verdict]]) -> Verdict:
    """The verdict on a claim that all parts must support: one that contradicts it decides, whatever is missing."""
    words = [part.verdict for _, part in parts]
    return _joined(NOT_REPRODUCED if NOT_REPRODUCED in words else min(words, key=ORDER.index), parts)


def _joined(word: str, parts: list[tuple[str, Verdict]]) -> Verdict:
    if len(parts) == 1:
        return parts[0][1]
    measured = "; ".join(f"{name}: {part.measured}" for name, part in parts if part.measured)
    reasons = [part.reason for _, part in parts]
    why = reasons[0] if len(set(reasons)) == 1 else "; ".join(f"{n}: {p.reason}" for n, p in parts if p.reason)
    numbers = [(f"{name}, {of}" if of else name, ratio) for name, part in parts for of, ratio in part.numbers]
    return Verdict(word, measured, why, tuple(numbers))


# Rules


def enough(rounds: int) -> None:
    if rounds < MIN_ROUNDS:
        raise NotNow(NOT_YET, f"only {rounds} paired round(s); a verdict needs {MIN_ROUNDS}")


def above_one(ratio: Ratio, aa: Ratio | None, text: str) -> Verdict:
    """Reproduced if a ratio is a difference, and above 1."""
    enough(ratio.rounds)
    measured = f"{ratio} {text}"
    if ratio.low <= 1 <= ratio.high:
        return Verdict(NOT_REPRODUCED, measured, "no difference: the interval holds 1")
    if not is_difference(ratio, aa):
        return Verdict(NOT_REPRODUCED, measured, "no difference: the median lies within the A/A pair's interval")
    if ratio.median < 1:
        return Verdict(NOT_REPRODUCED, measured, "the difference is the other way round")
    beyond = " and the median lies outside the A/A pair's interval" if aa else ""
    return Verdict(REPRODUCED, measured, f"the interval excludes 1{beyond}")


def within(published: float, ratio: Ratio, measured: str) -> Verdict:
    """Reproduced if a ratio's interval, widened by TOLERANCE, holds the published figure."""
    enough(ratio.rounds)
    inside = ratio.low * (1 - TOLERANCE) <= published <= ratio.high * (1 + TOLERANCE)
    why = f"the interval ± {TOLERANCE:.0%} {'holds' if inside else 'does not hold'} {published:g}"
    return Verdict(REPRODUCED if inside else NOT_REPRODUCED, measured, why, (("", ratio),))


def below(share: Ratio, limit: float, unit: str, of: str) -> Verdict:
    """Reproduced if an interval lies wholly below `limit`, both in `unit`."""
    enough(share.rounds)
    under = share.high < limit
    why = f"the interval is {'below' if under else 'not below'} {limit:g} {unit}"
    return Verdict(REPRODUCED if under else NOT_REPRODUCED, f"{share} {unit} {of}", why)


def noise(records: pd.DataFrame, like: Conditions, measure: str = "images_per_second") -> Ratio | None:
    """The A/A pair of sequential training on the CPU in the same experiment, where it was measured."""
    base = {
        name: like[name] for name in ("experiment", "use_case", "precision", "environment", "input") if name in like
    }
    return aa_or_none(records, {**base, "strategy": "sequential", "device": "cpu"}, measure)


def compare(claim: Claim, records: pd.DataFrame, over: str, under: str, measure: str, text: str) -> Verdict:
    """Whether `over` has more of `measure` than `under`, at the same workers and cores, in each use case."""

    def one(use_case: str) -> Verdict:
        above = table1(records, use_case=use_case, strategy=over, device="cpu")
        below = table1(records, use_case=use_case, strategy=under, device="cpu")
        budgets = [cores_given(select(records, cell)) for cell in (above, below)]
        if budgets[0] != budgets[1]:
            raise NotNow(NOT_YET, f"{over} ran on {budgets[0]} cores, {under} on {budgets[1]}: no fair comparison")
        ratio = ratio_with_interval(records, above, below, measure)
        return above_one(ratio, noise(records, above, measure), text)

    return each(claim, one)


def cores_given(rows: pd.DataFrame) -> int:
    """Cores that a cell was given: workers x cores_per_worker."""
    return int((rows["workers"] * rows["cores_per_worker"]).max())


def sequential(records: pd.DataFrame, use_case: str) -> Conditions:
    return table1(records, use_case=use_case, device="cpu", **BASELINE)


# Verdicts that no experiment owns


COMMON = Verdicts()
"""What any notebook's claim may name: what is still to be measured, and what no experiment can settle."""


@COMMON.add
def pending(claim: Claim, stored: Stored) -> Verdict:
    """The notebook that will measure it has no verdict function yet."""
    return Verdict(NOT_YET, "", f"notebook {claim['notebook']} will measure it")


@COMMON.add
def survey(claim: Claim, stored: Stored) -> Verdict:
    """A statement about the literature, not about training."""
    return Verdict(NOT_MEASURABLE, "", f"no experiment but {claim['note']}")
