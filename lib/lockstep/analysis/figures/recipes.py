"""What every figure of an experiment is: a function of what is stored, drawn into files by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from lockstep.analysis.figures.messages import with_message
from lockstep.analysis.figures.style import save_figure
from lockstep.analysis.stored import Stored

Recipe = Callable[[Stored], Figure]
Findings = Mapping[str, Callable[[Stored], str]]
NO_FINDINGS: Findings = MappingProxyType({})


def draw(name: str, figures: Mapping[str, Recipe], findings: Findings, stored: Stored) -> Figure:
    """The figure of this name, with the message of its finding as its title. Raises KeyError for an unknown one."""
    figure = figures[name](stored)
    return with_message(figure, findings[name](stored)) if name in findings else figure


def draw_all(
    figures: Mapping[str, Recipe], stored: Stored, folder: str | Path, findings: Findings = NO_FINDINGS
) -> list[Path]:
    """Draws every figure into `folder` as PNG and SVG; returns the paths. Raises WriteError for one not writable."""
    paths: list[Path] = []
    for name in figures:
        paths += save_figure(draw(name, figures, findings, stored), folder, name)
    return paths
