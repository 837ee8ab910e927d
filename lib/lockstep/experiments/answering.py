"""The answer to a notebook's title: the box on its first screen, and all of them side by side for the README."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from lockstep.analysis.figures.messages import headline
from lockstep.analysis.sentences import briefly, counted, with_lists
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import CONTRADICTED, DECIDED, SUPPORTED, UNDECIDED
from lockstep.experiments.registry import experiment
from lockstep.experiments.report import Answered, read_all, sources, tally

FOUND = ("02", "03", "06", "08", "11")
"""The notebooks whose answers the README tells first: what most readers ask, from one machine to many."""
DECIDED_ALONE = re.compile(f"({SUPPORTED}|{CONTRADICTED}) by itself ")
"""How the reason begins of what Holm's correction leaves undecided (`lockstep.analysis.judging`)."""
_DIFFERING = "Where sessions differ, the number is their mean; the appendix tells what each of them gave."


def answer_box(answered: Answered, stored: Stored) -> str:
    """The question, its answer, and on what it rests, as a Markdown quotation.

    > **Threads or processes: which trains faster on one machine?**
    >
    > Two processes train AlexNet 1.49 times as fast as one core [1.47, 1.51]; ...
    >
    > *Of 18 claims: 2 supported, 16 undecided (measured, model). A CPU, 2 cores. Data: real. ...*
    """
    parts = [f"**{answered.notebook.question}**", with_lists(answer_text(answered, stored))]
    if len(answered.stored.records):
        differing = [_DIFFERING] if "sessions differ" in parts[1] else []
        parts.append(f"*{' '.join([*differing, *_claims(answered), *_rests_on(answered)])}*")
    lines = "\n\n".join(parts).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def answer_text(answered: Answered, stored: Stored | None = None) -> str:
    """The computed answer to the notebook's question; what is missing, if its records can't answer. `stored`: with the
    parameters of an opened notebook."""
    answer = experiment(answered.notebook.name).answer
    if answer is None:
        return "Nobody has said yet how its records answer it."
    # What each session says by itself stands in tables; a first screen says that they differ.
    text = briefly(answer(answered.stored if stored is None else stored))
    if open_claim := left_open(answered):
        first = _beginning(text)
        return text.replace(first, f"{first.removesuffix('.')}{open_claim}.", 1)
    return text


def left_open(answered: Answered) -> str:
    """What the answer's first sentence must not be taken to say, since all claims are judged together; "" for none."""
    about, what = experiment(answered.notebook.name).answer_rests_on
    open_now = (found for claim, found in answered.judged if claim["id"] == about and found.answer == UNDECIDED)
    if not any(DECIDED_ALONE.match(found.reason) for found in open_now):
        return ""
    return f"; {what} would be decided if it were the only claim, but is not when all claims are judged together"


def _claims(answered: Answered) -> list[str]:
    answers = [found.answer for _, found in answered.judged]
    if not answers:
        return []
    grades = dict.fromkeys(found.grade for _, found in answered.judged if found.answer in (*DECIDED, UNDECIDED))
    evidence = f" (evidence: {', '.join(sorted(grades))})" if grades else ""
    return [f"Of {counted(len(answers), 'published claim')}: {tally(answers)}{evidence}."]


def _rests_on(answered: Answered) -> list[str]:
    machine = [f"{answered.machine_in_short}."] if answered.machine else []
    return [*machine, sources(answered.stored.records)]


def answers_list(everything: Iterable[Answered], link: Callable[[Answered, str], str]) -> str:
    """The question of every notebook that measures, as a link, and its answer's first sentence, as short as the title
    of a figure, as a Markdown list."""
    lines = []
    for each in everything:
        if each.notebook.built and experiment(each.notebook.name).grid is not None:
            title = link(each, f"{each.notebook.number} · {each.notebook.question}")
            lines.append(f"- **{title}** {_headline(each)}.")
    return "\n".join(lines)


def readme_findings(results_root: Path) -> str:
    """Five findings as a Markdown list: the beginning of the answers of five notebooks, each with its link."""
    lines = []
    for each in read_all(results_root):
        if each.notebook.number in FOUND:
            link = f"[{each.notebook.number}](notebooks/{each.notebook.name}.ipynb)"
            lines.append(f"- {_headline(each)} ({link}).")
    return "\n".join(lines)


def notebooks_table(results_root: Path) -> str:
    """A row for every notebook, as Markdown for `docs/`: its question, as a link, and how many of its claims are
    decided."""
    lines = ["| | asks | claims decided |", "| --- | --- | --- |"]
    for each in read_all(results_root):
        if each.notebook.built:
            link = f"[{each.notebook.number}](../notebooks/{each.notebook.name}.ipynb)"
            answers = [found.answer for _, found in each.judged]
            decided = f"{sum(answer in DECIDED for answer in answers)} of {len(answers)}" if answers else "has none"
            lines.append(f"| {link} | {each.notebook.question} | {decided} |")
    return "\n".join(lines)


def _headline(each: Answered) -> str:
    """The first sentence of an answer, as short as a title; what it leaves open stays, however long that is."""
    if experiment(each.notebook.name).grid is None:
        return "reads what the others stored"
    open_claim = left_open(each)
    return headline(_beginning(" ".join(answer_text(each).split())).replace(open_claim, "")) + open_claim


def _beginning(text: str) -> str:
    """The first sentence."""
    return re.split(r"(?<=[.\])]) (?=[A-Z])", text)[0]
