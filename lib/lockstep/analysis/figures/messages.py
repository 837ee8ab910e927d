"""The message of a figure: the first sentence of its finding as its title, and in words for those who can't see it."""

from __future__ import annotations

import re
import textwrap

from matplotlib.figure import Figure
from matplotlib.text import Annotation

from lockstep.analysis.figures.style import GREY, StoredFigure, look

LONGEST = 190
"""Letters of a title; what is longer ends with a clause that has its own number and interval."""
TITLE_POINTS, SUBJECT_POINTS = 10.5, 9.0
_LETTERS_PER_INCH = 10.8  # of a title, where most are wide
_LINE_INCHES = 0.19
_UNANSWERED = ("not known yet", "is not known", "do not answer")


def headline(finding: str) -> str:
    """What a title says of a finding: its first sentence that says something, without the sessions' own numbers and
    without its period.

    A long sentence ends at a semicolon, so that each number keeps its interval. Where nothing is answered yet the first
    sentence says so.
    """
    text = re.sub(r" \(sessions differ: [^()]*\)", " (sessions differ)", " ".join(finding.split()))
    found = re.split(r"(?<=\.) (?=[A-Z])", text)
    first = next((each for each in found if not any(word in each for word in _UNANSWERED)), found[0])
    clauses = _clauses(first.removesuffix("."))
    kept = clauses[0]
    for clause in clauses[1:]:
        if len(kept) + 2 + len(clause) > LONGEST:
            break
        kept = f"{kept}; {clause}"
    return kept


def _clauses(sentence: str) -> list[str]:
    """A sentence's parts between semicolons, but for those in brackets."""
    clauses, depth = [""], 0
    for letter in sentence:
        depth += (letter in "([") - (letter in ")]")
        if letter == ";" and not depth:
            clauses.append("")
        else:
            clauses[-1] += letter
    return [clause.strip() for clause in clauses]


def with_message(figure: Figure, finding: str) -> Figure:
    """The figure with the finding's headline above its subject, which is the title it was drawn with, and with both as
    its alternative text. Makes it as much higher as they need."""
    old = figure.get_suptitle()
    subject = " ".join((old or _title_of_axes(figure)).split())
    message = headline(finding)
    width = figure.get_figwidth()
    lines = textwrap.wrap(message, max(20, int(_LETTERS_PER_INCH * (width - 0.2))))
    below = [each for line in old.split("\n") for each in textwrap.wrap(line, max(20, int(12.5 * (width - 0.2))))]
    with look():
        # Blank lines keep the room in which the subject stands, smaller: a text has one size.
        text = figure.suptitle(
            "\n".join([*lines, *[" "] * len(below)]), x=0.1 / width, ha="left", fontsize=TITLE_POINTS
        )
        if below:
            beneath = Annotation("\n".join(below), (0, 0), xycoords=text, va="bottom", ha="left", color=GREY,
                                 fontsize=SUBJECT_POINTS, annotation_clip=False)  # fmt: skip
            beneath.set_in_layout(False)
            figure.add_artist(beneath)
    more = len(lines) + len(below) - (old.count("\n") + 1 if old else 0)
    figure.set_figheight(figure.get_figheight() + _LINE_INCHES * more)
    if isinstance(figure, StoredFigure):
        figure.alternative = f"{subject}: {message}." if subject else f"{message}."
    return figure


def _title_of_axes(figure: Figure) -> str:
    """Of a figure without a title of its own: that of its only panel."""
    titles = [axis.get_title(loc=place) for axis in figure.axes for place in ("left", "center")]
    known = [title for title in titles if title]
    return known[0] if len(known) == 1 else ""
