"""What every verdict shares: an answer, the grade of the evidence behind it, and the choice of rows.

A verdict is computed, never typed in. Its answer is *supported*, *contradicted* or *undecided*; its grade says on what
it rests, from the paper's own pages to a measurement. Where nothing can speak to a claim on this machine it *needs
hardware*, which is then named, and what no notebook has measured is *not measured yet*.

A published number is supported if the whole interval lies within ± 10 % of it, contradicted if it lies outside, and
undecided otherwise: a wide interval helps neither side. A direction holds if the interval excludes 1, and the noise of
two runs of the same cell. `lockstep.analysis.judging` then corrects all verdicts for their number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.statistics import BASELINE, Conditions, select
from lockstep.analysis.stored import Stored

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
NEEDS_HARDWARE, NOT_YET = "needs hardware", "not measured yet"
ANSWERS = (SUPPORTED, CONTRADICTED, UNDECIDED, NEEDS_HARDWARE, NOT_YET)
DECIDED = (SUPPORTED, CONTRADICTED)
_WEAKEST_FIRST = (NOT_YET, NEEDS_HARDWARE, UNDECIDED, CONTRADICTED, SUPPORTED)

PAPER, BOUND, MODEL, EMULATED, MEASURED = "paper", "bound", "model", "emulated", "measured"
GRADES: Mapping[str, str] = {
    PAPER: "the paper against itself or its sources",
    BOUND: "arithmetic or physics allows no other answer",
    MODEL: "a calibrated model, with its error",
    EMULATED: "measured over emulated links or on emulated machines",
    MEASURED: "measured",
}
"""On what a verdict rests, from the weakest to the strongest."""

TOLERANCE = 0.10
"""How far from a published number an interval may reach that supports it."""
FULL_CPU_PERCENT = 90.0
"""Mean use of the budgeted cores that counts as fully used."""

USE_CASES = ("ComplexSmall", "SimpleBig")
TABLE1_PREFERRED: Mapping[str, Any] = {
    "input": "jpeg", "variant": "a", "precision": "float32", "environment": "tuned"
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What there is to say about a claim: the answer, the measured value with its interval (or ""), and why.

    `grade`: on what a decided or undecided answer rests (one of GRADES). `chance`: the anytime-valid p-value of a
    decided answer; 0 where no chance is involved. `rounds_more`: how many more rounds would decide an undecided one, or
    let a decided one stand among all claims; NaN where that is unknown, infinite if none would. `round_seconds`: what
    one such round takes. `numbers` are the values in the unit of the claim's own figure, each with what it is of ("" if
    there is only one).
    """

    answer: str
    measured: str = ""
    reason: str = ""
    numbers: tuple[tuple[str, Estimate], ...] = ()
    grade: str = MEASURED
    chance: float = 0.0
    rounds_more: float = math.nan
    round_seconds: float = math.nan

    @property
    def minutes_more(self) -> float:
        """How many more minutes of measuring would decide an undecided answer; NaN where that is unknown."""
        return self.rounds_more * self.round_seconds / 60


Claim = Mapping[str, Any]
"""A row of the claims ledger (`lockstep.analysis.published.read_claims`)."""
VerdictFunction = Callable[[Claim, Stored], Verdict]


class Verdicts(dict[str, VerdictFunction]):
    """Verdict functions under their own names, as the claims ledger writes them."""

    def add(self, function: VerdictFunction) -> VerdictFunction:
        """As a decorator: enters a function under its name."""
        self[function.__name__] = function
        return function


class NotNow(Exception):
    """Carries a verdict out of a computation that lacks its data."""

    def __init__(self, answer: str, reason: str, grade: str = MEASURED) -> None:
        super().__init__(reason)
        self.verdict = Verdict(answer, "", reason, grade=grade)


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
        raise NotNow(NEEDS_HARDWARE, reasons)
    raise NotNow(NOT_YET, f"{about} failed: {reasons}")


def use_cases(claim: Claim) -> tuple[str, ...]:
    return USE_CASES if claim["use_case"] in ("both", "") else (str(claim["use_case"]),)


def cores_given(rows: pd.DataFrame) -> int:
    """Cores that a cell was given: workers x cores_per_worker."""
    return int((rows["workers"] * rows["cores_per_worker"]).max())


def sequential(records: pd.DataFrame, use_case: str) -> Conditions:
    return table1(records, use_case=use_case, device="cpu", **BASELINE)


# Several parts


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
    """The verdict on a claim that all parts must support: one that contradicts it decides, whatever is missing.

    All parts hold together with the largest of their chances; that one of k contradicts has k times the smallest.
    """
    if len(parts) == 1:
        return parts[0][1]
    verdicts = [part for _, part in parts]
    against = [part for part in verdicts if part.answer == CONTRADICTED]
    weakest = min(verdicts, key=lambda part: _WEAKEST_FIRST.index(part.answer))
    if against:
        decisive, chance = against, min(1.0, len(parts) * min(part.chance for part in against))
    else:
        decisive = [part for part in verdicts if part.answer == weakest.answer]
        chance = max(part.chance for part in decisive)
    slowest = max(decisive, key=lambda part: part.minutes_more if part.minutes_more > 0 else 0.0)
    if against and slowest.rounds_more <= 1:  # rounds enough by itself; what they would take for k parts is not known
        slowest = replace(slowest, rounds_more=math.nan)
    grade = min((part.grade for part in decisive), key=list(GRADES).index)
    return replace(_texts(parts), answer=decisive[0].answer, grade=grade, chance=chance,
                   rounds_more=slowest.rounds_more, round_seconds=slowest.round_seconds)  # fmt: skip


def opposite(found: Verdict) -> Verdict:
    """The verdict on the contrary claim."""
    return replace(found, answer={SUPPORTED: CONTRADICTED, CONTRADICTED: SUPPORTED}.get(found.answer, found.answer))


def any_of(parts: list[tuple[str, Verdict]]) -> Verdict:
    """The verdict on a claim that can be read in several ways: one reading that supports it is enough, and it is
    contradicted if all of them do. The number of readings is paid for, as `join` does it for parts."""
    return opposite(join([(name, opposite(part)) for name, part in parts]))


def _texts(parts: list[tuple[str, Verdict]]) -> Verdict:
    """What all parts measured and why, each by its name."""
    measured = "; ".join(f"{name}: {part.measured}" for name, part in parts if part.measured)
    reasons = [part.reason for _, part in parts]
    why = reasons[0] if len(set(reasons)) == 1 else "; ".join(f"{n}: {p.reason}" for n, p in parts if p.reason)
    numbers = [(f"{name}, {of}" if of else name, ratio) for name, part in parts for of, ratio in part.numbers]
    return Verdict("", measured, why, tuple(numbers))


# Verdicts that no experiment owns


COMMON = Verdicts()
"""What any notebook's claim may name: what is still to be measured, and what no experiment can settle."""


@COMMON.add
def pending(claim: Claim, stored: Stored) -> Verdict:
    """The notebook that will measure it has no verdict function yet."""
    return Verdict(NOT_YET, "", f"notebook {claim['notebook']} will measure it")


@COMMON.add
def survey(claim: Claim, stored: Stored) -> Verdict:
    """A statement about the literature: its source is compared with it, as the ledger's note says how."""
    return Verdict(UNDECIDED, "", f"no experiment but {claim['note']}", grade=PAPER, rounds_more=math.inf)


@COMMON.add
def documentary(claim: Claim, stored: Stored) -> Verdict:
    """A statement about somebody else's text, which the ledger's note quotes: "supported: ... “the words”".

    Supported only by a quotation that holds the figure, if the claim has one. Raises NotNow for a note of another form.
    """
    answer, _, text = str(claim["note"]).partition(": ")
    quoted = " ".join(re.findall("“([^”]*)”", text))
    figures = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", quoted)]
    unfounded = answer == SUPPORTED and not pd.isna(claim["value"]) and float(claim["value"]) not in figures
    if answer not in DECIDED or not quoted or unfounded:
        raise NotNow(NOT_YET, f"the ledger's note quotes nothing that answers it: {claim['note']}")
    return Verdict(answer, "", text, grade=PAPER)
