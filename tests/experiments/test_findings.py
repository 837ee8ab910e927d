"""What holds for the findings and the answer of every notebook that measures, whatever they say."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import fake_distribution
import fake_pipelines
import fake_scaling
import fake_spark
from lockstep.analysis.figures.messages import LONGEST, headline
from lockstep.analysis.sentences import Finding
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.registry import every
from stored_reference import stored_reference

SAYS: dict[tuple[str, str], Finding] = {
    (own.number, name): say
    for own in every()
    if own.grid is not None
    for name, say in {**own.findings, "answer": own.answer}.items()
    if say is not None
}
NAMES = {own.number: own.name for own in every()}
NUMBERED = ("01", "03", "04", "07", "10")
"""Notebooks each of whose findings the reference records answer with a number."""
MADE_UP: dict[str, Callable[[], Stored]] = {
    "03": lambda: Stored(fake_pipelines.records(), fake_pipelines.tables()),
    "04": lambda: Stored(
        fake_pipelines.hybrid_records(),
        {"layers": fake_pipelines.layers(), "resources": fake_pipelines.resources("hybrid", ("1f1b",))},
    ),
    "05": lambda: Stored(fake_distribution.records(), {"resources": fake_distribution.resources(6)}),
    "06": lambda: Stored(fake_spark.records(), {"spark": fake_spark.spark(), "resources": fake_spark.resources(6)}),
    "08": lambda: Stored(fake_scaling.records(), {"flops": fake_scaling.flops()}),
}
"""Records of those whose own tests make none up for this."""
every_one = pytest.mark.parametrize(("number", "name"), SAYS)


@functools.cache
def made_up(number: str) -> Stored:
    return MADE_UP[number]()


def check_sentences(text: str) -> None:
    assert text[0].isupper() and text.endswith(".") and "nan" not in text
    assert "inf" not in text.split() and "inf]" not in text


@pytest.mark.parametrize("own", [own for own in every() if own.grid is not None], ids=lambda own: own.number)
def test_there_is_an_answer_and_a_finding_for_every_figure(own: object) -> None:
    assert own.answer is not None and set(own.findings) == set(own.figures)  # type: ignore[attr-defined]


@every_one
def test_those_of_the_reference_are_sentences(root: Path, number: str, name: str) -> None:
    text = SAYS[number, name](stored_reference(root / "results" / "reference" / NAMES[number]))
    check_sentences(text)
    if number in NUMBERED:
        assert re.search(r"\d", text)
        assert "do not answer" not in text
    if name != "answer":
        check_title(headline(text), text)


def check_title(title: str, finding: str) -> None:
    """The title of its figure is short and no stronger than it."""
    plain = " ".join(re.sub(r" \(sessions differ: [^()]*\)", " (sessions differ)", finding).split())
    bare = [re.sub(r" \([^()]*\)", "", text) for text in (title, plain)]
    assert bare[0] in bare[1], "not a word that the finding does not have"
    assert len(title) <= 1.1 * LONGEST
    assert title.count("[") == title.count("]") and title.count("(") == title.count(")"), "no interval is cut"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [key for key in SAYS if key[0] in MADE_UP])
def test_those_of_made_up_records_are_sentences(number: str, name: str) -> None:
    text = SAYS[number, name](made_up(number))
    check_sentences(text)
    if number in NUMBERED:
        assert re.search(r"\d", text) and "do not answer" not in text


@every_one
def test_a_notebook_that_never_ran_says_so(number: str, name: str) -> None:
    if (number, name) == ("11", "bounds"):
        return  # arithmetic, which needs no records
    assert "Nothing is stored" in SAYS[number, name](no_records())
