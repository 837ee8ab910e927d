"""The titles of the reference's figures, and what they say where nothing is stored."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from matplotlib.text import Annotation, Text

from lockstep.analysis.figures.recipes import draw
from lockstep.analysis.figures.style import StoredFigure, render
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import every
from lockstep.records.places import REFERENCE, repository_root
from stored_reference import stored_reference

MEASURING = [own for own in every() if own.grid is not None]
FIGURES = [(own, name) for own in MEASURING for name in own.figures]
QUICK = ("ladder", "weak", "table3", "bounds")
"""Figures that are drawn here, one of every kind of layout; `lockstep figures` draws all of them."""


@functools.cache
def reference(name: str) -> Stored:
    return stored_reference(repository_root() / Path(REFERENCE) / name)


@pytest.mark.parametrize(
    ("own", "name"), [(own, name) for own, name in FIGURES if name in QUICK],
    ids=[f"{own.number}-{name}" for own, name in FIGURES if name in QUICK],
)  # fmt: skip
def test_titles_of_the_reference_lie_within_their_figures(own: Experiment, name: str) -> None:
    stored = reference(own.name).shown
    figure = draw(name, own.figures, own.findings, stored)
    render(figure, "png")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    message = next(text for text in figure.findobj(Text) if text.get_text() == figure.get_suptitle())
    for text in (message, *(each for each in figure.artists if isinstance(each, Annotation))):
        box = text.get_window_extent(renderer)
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text.get_text()
    assert isinstance(figure, StoredFigure) and len(figure.alternative) > 30


def test_a_figure_of_nothing_says_so_in_its_title_and_in_words() -> None:
    own = next(each for each in MEASURING if each.number == "02")
    figure = draw("speedup", own.figures, own.findings, no_records())
    assert isinstance(figure, StoredFigure)
    assert figure.get_suptitle().startswith("Nothing is stored yet")
    assert figure.alternative.startswith("Speedup of data parallelism on one node: Nothing is stored yet")
