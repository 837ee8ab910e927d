"""Notebook 00's figures, by name: each from what all notebooks have stored."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.stored import Stored
from lockstep.experiments.e00_overview.drawings import answer_bars, published_beside_measured
from lockstep.experiments.e00_overview.tables import overview


def verdicts(stored: Stored) -> Figure:
    return answer_bars(overview(stored).counts(), "Answers to the papers' claims")


def numbers(stored: Stored) -> Figure:
    return published_beside_measured(overview(stored).numbers(), "Published and measured")


FIGURES: Mapping[str, Recipe] = {"verdicts": verdicts, "numbers": numbers}
