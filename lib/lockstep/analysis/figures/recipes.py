"""What every figure of an experiment is: a function of what is stored, drawn into files by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from lockstep.analysis.figures.style import save_figure
from lockstep.analysis.stored import Stored

Recipe = Callable[[Stored], Figure]


def draw_all(figures: Mapping[str, Recipe], stored: Stored, folder: str | Path) -> list[Path]:
    """Draws every figure into `folder` as PNG and SVG; returns the paths. Raises WriteError for one not writable."""
    paths: list[Path] = []
    for name, draw in figures.items():
        paths += save_figure(draw(stored), folder, name)
    return paths
