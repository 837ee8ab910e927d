"""What notebook 00 says in sentences: how many claims are decided, where, and how far numbers are apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lockstep.analysis.sentences import Finding, listed
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    ANSWERS,
    BOUND,
    CONTRADICTED,
    EMULATED,
    GRADES,
    MEASURED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.answering import DECIDED_ALONE, answers_list
from lockstep.experiments.catalogue import PAPERS
from lockstep.experiments.e00_overview.tables import overview
from lockstep.experiments.report import tally

_BY: Mapping[str, str] = {
    PAPER: "from the paper or its sources",
    BOUND: "by arithmetic or physics",
    MODEL: "modelled",
    EMULATED: "on emulated machines or links",
    MEASURED: "measured",
}


def answer(stored: Stored) -> str:
    """How many claims our evidence supports and contradicts, and how many it can't decide; how numbers compare."""
    counts = overview(stored).counts().loc["all"]
    decided = counts[SUPPORTED] + counts[CONTRADICTED]
    lacking = counts[NEEDS_HARDWARE]
    parts = {
        UNDECIDED: _are(counts[UNDECIDED], UNDECIDED) + _decided_alone(stored),
        NEEDS_HARDWARE: f"{lacking} {'needs' if lacking == 1 else 'need'} hardware that is missing here",
        NOT_YET: _are(counts[NOT_YET], NOT_YET),
    }
    rest = "".join(f"; {text}" for word, text in parts.items() if counts[word])
    split = " and ".join(f"{counts[word]} {word}{_on_what(stored, word)}" for word in (SUPPORTED, CONTRADICTED))
    whole = f"{counts['claims']} claims {_are(decided, 'decided')} and {counts['claims'] - decided} open"
    return f"Of {whole}: {split}{rest}. {numbers(stored)}"


def _are(count: int, what: str) -> str:
    return f"{count} {'is' if count == 1 else 'are'} {what}"


def _found(stored: Stored, *words: str) -> list[Verdict]:
    return [found for one in overview(stored).answered for _, found in one.judged if found.answer in words]


def _on_what(stored: Stored, word: str) -> str:
    """On what evidence so many claims have this answer, in parentheses: most of them are not measured."""
    grades = Counter(found.grade for found in _found(stored, word))
    told = [f"{grades[grade]} {_BY[grade]}" for grade in GRADES if grades[grade]]
    return f" ({', '.join(told)})" if told else ""


def _decided_alone(stored: Stored) -> str:
    """How many of the undecided claims only the number of claims leaves undecided."""
    alone = sum(DECIDED_ALONE.match(found.reason) is not None for found in _found(stored, UNDECIDED))
    if not alone:
        return ""
    return f" ({alone} of them {'is' if alone == 1 else 'are'} decided taken alone, not when all are judged together)"


def _by_paper(stored: Stored) -> str:
    parts = []
    for paper, name in PAPERS.items():
        own = [
            found.answer for one in overview(stored).answered for claim, found in one.judged if claim["paper"] == paper
        ]
        if own:
            parts.append(f"of {len(own)} claims of *{name}* {tally(own)}")
    return f"By paper: {'; '.join(parts)}."


def verdicts(stored: Stored) -> str:
    """How many claims are decided, in which notebooks most, and the answers by paper."""
    everything = overview(stored).counts()
    counts, whole = everything.drop(index="all"), everything.loc["all"]
    decided = counts[list(ANSWERS[:2])].sum(axis=1)
    first = decided[decided > 0].nlargest(3)
    if first.empty:
        return f"No claim is decided yet. {_by_paper(stored)}"
    most = listed(f"{name} ({count} of {counts.loc[name, 'claims']})" for name, count in first.items())
    ours = listed(f"{whole[answer]} {answer}" for answer in ANSWERS[:2])
    measured = sum(found.grade == MEASURED for found in _found(stored, SUPPORTED, CONTRADICTED))
    told = f"{int(decided.sum())} of {whole['claims']} claims are decided, {ours} ({measured} of these measured)"
    return f"{told}; most of them in {'notebook' if len(first) == 1 else 'notebooks'} {most}. {_by_paper(stored)}"


def numbers(stored: Stored) -> str:
    """How often a published number lies within our interval, below it and above it."""
    table = overview(stored).numbers().dropna(subset=["low", "high"])
    if table.empty:
        return "No published number has a measured one with an interval beside it yet."
    above = int((table["published"] > table["high"]).sum())
    below = int((table["published"] < table["low"]).sum())
    return (
        f"Of {len(table)} comparisons of {table['claim'].nunique()} published numbers with measured ones, in {above} "
        f"the published one is above our interval, in {below} below it, in {len(table) - above - below} within it."
    )


def answers(stored: Stored) -> str:
    """Every other notebook's question, linked, and its answer."""
    view = overview(stored)
    return answers_list(view.answered, view.link)


FINDINGS: Mapping[str, Finding] = {"verdicts": verdicts, "numbers": numbers}
