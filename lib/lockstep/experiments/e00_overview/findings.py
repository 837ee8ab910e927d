"""What notebook 00 says in sentences: how many claims stand, by paper, and how far numbers are apart."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.analysis.sentences import Finding, listed
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import ANSWERS
from lockstep.experiments.answering import answers_list
from lockstep.experiments.catalogue import PAPERS
from lockstep.experiments.e00_overview.tables import overview
from lockstep.experiments.report import tally


def answer(stored: Stored) -> str:
    """How many claims of each paper our evidence supports and contradicts, and how many it can't decide."""
    parts, every = [], []
    for paper, name in PAPERS.items():
        own = [
            found.answer for one in overview(stored).answered for claim, found in one.judged if claim["paper"] == paper
        ]
        every += own
        if own:
            parts.append(f"of {len(own)} claims of *{name}* {tally(own)}")
    return f"All papers together: {tally(every)}, of {len(every)} claims. By paper: {'; '.join(parts)}."


def verdicts(stored: Stored) -> str:
    """The notebooks with the most decided claims."""
    counts = overview(stored).counts().drop(index="all")
    decided = counts[list(ANSWERS[:2])].sum(axis=1)
    first = decided[decided > 0].nlargest(3)
    if first.empty:
        return "No claim is decided yet."
    most = [f"notebook {name} ({count} of {counts.loc[name, 'claims']})" for name, count in first.items()]
    return f"The most decided claims have {listed(most)}."


def numbers(stored: Stored) -> str:
    """How often a published number lies within our interval, below it and above it."""
    table = overview(stored).numbers().dropna(subset=["low", "high"])
    if table.empty:
        return "No published number has a measured one with an interval beside it yet."
    above = int((table["published"] > table["high"]).sum())
    below = int((table["published"] < table["low"]).sum())
    return (
        f"{table['claim'].nunique()} published numbers have {len(table)} measured ones of the same unit beside them: "
        f"in {above} the published one is above our interval, in {below} below it, in {len(table) - above - below} "
        "within it."
    )


def answers(stored: Stored) -> str:
    """Every other notebook's question, linked, and its answer."""
    view = overview(stored)
    return answers_list(view.answered, view.link)


FINDINGS: Mapping[str, Finding] = {"verdicts": verdicts, "numbers": numbers}
