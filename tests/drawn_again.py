"""Every figure of a notebook is written, and comes out as before when it is drawn again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lockstep.analysis.figures.recipes import Recipe, draw_all
from lockstep.analysis.figures.style import save_figure
from lockstep.analysis.stored import Stored


def check_figures(figures: Mapping[str, Recipe], stored: Stored, folder: Path, again: tuple[str, ...]) -> None:
    """All are written into `folder`. Those named in `again` are drawn a second time and compared; the others are not,
    for drawing takes seconds. Numbers of elements and dates, which did differ, are of the writer that all share."""
    paths = draw_all(figures, stored, folder)
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in figures for kind in ("png", "svg")]
    for name in again:
        drawn = save_figure(figures[name](stored), folder / "again", name)
        assert [path.read_bytes() for path in drawn] == [(folder / path.name).read_bytes() for path in drawn]
