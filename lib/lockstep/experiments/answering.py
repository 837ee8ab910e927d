"""The answer to a notebook's title: the box on its first screen, and all of them side by side for the README."""

from __future__ import annotations

from pathlib import Path

from lockstep.analysis.verdicts import DECIDED, UNDECIDED
from lockstep.experiments.registry import experiment
from lockstep.experiments.report import Answered, read_all, sources, tally


def answer_box(answered: Answered) -> str:
    """The question, its answer, and on what it rests, as a Markdown quotation.

    > **Threads or processes: which trains faster on one machine?**
    >
    > Two processes train AlexNet 1.49 times as fast as one core [1.47, 1.51]; ...
    >
    > *Of 18 claims: 2 supported, 16 undecided (measured, model). A CPU, 2 cores. Data: real. ...*
    """
    parts = [f"**{answered.notebook.question}**", answer_text(answered)]
    parts.append(f"*{' '.join([*_claims(answered), *_rests_on(answered)])}*")
    lines = "\n\n".join(parts).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def answer_text(answered: Answered) -> str:
    """The computed answer to the notebook's question; what is missing, if its records can't answer."""
    answer = experiment(answered.notebook.name).answer
    return answer(answered.stored) if answer is not None else "Nobody has said yet how its records answer it."


def _claims(answered: Answered) -> list[str]:
    answers = [found.answer for _, found in answered.judged]
    if not answers:
        return []
    grades = dict.fromkeys(found.grade for _, found in answered.judged if found.answer in (*DECIDED, UNDECIDED))
    evidence = f" (evidence: {', '.join(sorted(grades))})" if grades else ""
    return [f"Of {len(answers)} published claims: {tally(answers)}{evidence}."]


def _rests_on(answered: Answered) -> list[str]:
    machine = [f"{answered.machine}."] if answered.machine else []
    return [*machine, sources(answered.stored.records)]


def answers_list(results_root: Path) -> str:
    """Every notebook's question, linked, and its answer, as a Markdown list."""
    built = [answered for answered in read_all(results_root) if answered.notebook.built]
    return "\n".join(
        f"- **[{each.notebook.number} {each.notebook.question}](notebooks/{each.notebook.name}.ipynb)** "
        f"{' '.join(answer_text(each).split())}"
        for each in built
        if experiment(each.notebook.name).answer is not None
    )
