"""From verdict functions to the verdicts on a whole ledger: quiet rounds alone, and corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lockstep.analysis.confidence import MISS
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import BOUND, COMMON, DECIDED, PAPER, UNDECIDED, Claim, Verdict, VerdictFunction, settle
from lockstep.records.reading import contended


def judge(claim: Claim, stored: Stored, rules: Mapping[str, VerdictFunction]) -> Verdict:
    """The verdict on a row of the claims ledger from what is stored of its notebook, by one of `rules` or of COMMON.

    Rounds that others disturbed are left out. Where they would change the answer, the reason says what it is with them.
    Raises KeyError for a verdict function that does not exist (`lockstep.experiments.registry.checked_claims` refuses
    such rows).
    """
    function = {**COMMON, **rules}[claim["verdict"]]
    quiet = stored.quiet
    found = settle(lambda: function(claim, quiet))
    if len(quiet.records) == len(stored.records):
        return found
    every = _as_if_quiet(stored)
    disturbed = settle(lambda: function(claim, every))
    if disturbed.answer == found.answer:
        return found
    beside = f"with the rounds that others disturbed: {disturbed.answer}, {disturbed.measured or disturbed.reason}"
    return replace(found, reason=f"{found.reason}; {beside}".strip("; "))


def _as_if_quiet(stored: Stored) -> Stored:
    """The same rows as if nobody had disturbed them, for whatever looks at a row's reason would leave them out."""

    def unmarked(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(reason=rows["reason"].mask(contended(rows), "")) if len(rows) else rows

    return replace(stored, records=unmarked(stored.records), traces=unmarked(stored.traces))


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Holm's correction over all verdicts that chance had a part in: with 95 % none of those that remain is wrong.

    Of m tested claims, undecided ones included, in the order of their chances, the k-th decided one stays if all before
    it do and its chance is at most 0.05 / (m - k + 1). The others become undecided (Holm 1979, "A simple sequentially
    rejective multiple test procedure"). What arithmetic or the paper itself decides (chance 0) is no test.
    """
    tested = [index for index, found in enumerate(verdicts) if _is_test(found)]
    decided = [index for index in tested if verdicts[index].answer in DECIDED]
    kept, left = {index for index, found in enumerate(verdicts) if not _is_test(found)}, len(tested)
    for index in sorted(decided, key=lambda index: verdicts[index].chance):
        if verdicts[index].chance > MISS / left:
            break
        kept.add(index)
        left -= 1
    return [
        found if index in kept or found.answer not in DECIDED else not_enough(found, len(tested))
        for index, found in enumerate(verdicts)
    ]


def _is_test(found: Verdict) -> bool:
    if found.answer == UNDECIDED:
        return found.grade not in (PAPER, BOUND)
    return found.answer in DECIDED and found.chance > 0


def not_enough(found: Verdict, claims: int) -> Verdict:
    """A verdict that the correction for so many claims leaves undecided."""
    together = f"not when the {claims} claims in which chance plays a part are judged together (Holm's correction)"
    why = f"{found.answer} by itself ({found.reason}), but {together}"
    return replace(found, answer=UNDECIDED, reason=why)
