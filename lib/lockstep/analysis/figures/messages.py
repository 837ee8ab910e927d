"""The message of a figure: the first sentence of its finding as its title, and in words for those who can't see it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from lockstep.analysis.figures.style import GREY, StoredFigure, data_label, label, look
from lockstep.engine.job.strategies import STRATEGIES

LONGEST = 230
"""Letters of a title; what is longer ends with a clause that has its own number and interval."""
TITLE_POINTS, SUBJECT_POINTS = 10.5, 9.0
_LETTERS_PER_INCH = 11.8  # of a title, where most are wide
_LINE_INCHES = 0.19
_NO_BREAK = "\N{NO-BREAK SPACE}"
_UNITS = "%|s|ms|KiB|MiB|GiB|[GMk]?bit/s|times|points"
_REMARK = re.compile(r" \((?![^()]*(?:interval|round|trace|seed|profile|start|session|yet))[^()\[\]]*\)")
"""In parentheses, and neither an interval nor what lacks one: a title can do without it."""
_OF_NAMES = frozenset(
    f" ({part})"
    for name in STRATEGIES
    for part in (label(name).partition(", ")[2], *re.findall(r"\(([^()]*)\)", label(name)))
)
"""What tells strategies apart (`lockstep.analysis.sentences.way_name`): a name without it may be another one's."""
_UNANSWERED = ("not known yet", "is not known", "do not answer")


NETWORKS: Mapping[str, str] = {"SimpleBig": "AlexNet", "ComplexSmall": "VGG16", "Pneumonia": "the 50x50 network"}
"""Use cases whose network has a name of its own."""


def use_case_title(use_case: str, rows: pd.DataFrame) -> str:
    """Of a panel: the network, its use case, and what it was measured on."""
    network = NETWORKS.get(use_case, "")
    name = f"{network[:1].upper()}{network[1:]} ({use_case}; " if network else f"{use_case} ("
    return f"{name}{data_label(rows)})"


def headline(finding: str) -> str:
    """What a title says of a finding: its first sentence that says something, without the sessions' own numbers and
    without its period.

    A long sentence ends at a semicolon, so that each number keeps its interval; if that does not help, its remarks in
    parentheses are left out, but for those that belong to a name. Where nothing is known yet the first sentence says
    so.
    """
    text = re.sub(r" \(sessions differ: [^()]*\)", " (sessions differ)", " ".join(finding.split()))
    found = re.split(r"(?<=\.) (?=[A-Z])", text)
    first = next((each for each in found if not any(word in each for word in _UNANSWERED)), found[0])
    clauses = _clauses(first.removesuffix("."))
    kept = clauses[0]
    if len(kept) > LONGEST:
        kept = _REMARK.sub(lambda found: found[0] if found[0] in _OF_NAMES else "", kept)
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
    lines = _wrapped(message, max(20, int(_LETTERS_PER_INCH * (width - 0.2))))
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
        words = message if message.endswith(".") else f"{message}."
        figure.alternative = f"{subject}: {words}" if subject else words
    return figure


def _wrapped(text: str, letters: int) -> list[str]:
    """A text in as few lines as have room, of like length; no interval and no unit is torn apart."""
    whole = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", _NO_BREAK), text)
    whole = re.sub(rf"(?<=\d) (?=(?:{_UNITS})(?![\w]))", _NO_BREAK, whole)
    lines = textwrap.wrap(whole, letters, break_on_hyphens=False)
    for fewer in range(letters - 1, 19, -1):
        narrower = textwrap.wrap(whole, fewer, break_on_hyphens=False)
        if len(narrower) > len(lines):
            break
        lines = narrower
    return lines


def _title_of_axes(figure: Figure) -> str:
    """Of a figure without a title of its own: that of its only panel."""
    titles = [axis.get_title(loc=place) for axis in figure.axes for place in ("left", "center")]
    known = [title for title in titles if title]
    return known[0] if len(known) == 1 else ""
