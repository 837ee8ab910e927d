"""All figures of a run folder on one sheet, to be looked at together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.image import imread

from lockstep.analysis.figures.style import StoredFigure, look, new_figure, save_figure

COLUMNS = 4
INCHES = 4.2  # of a figure's place, wide and high


def contact_sheet(pictures: Sequence[Path], folder: Path) -> Path:
    """Write `<folder>/contact_sheet.png` with all `pictures` (PNG), each under its notebook's number and its name.

    Raises WriteError if it can't be written, ValueError without a picture.
    """
    if not pictures:
        raise ValueError(f"{folder} holds no figures; draw them first with `lockstep figures`")
    return save_figure(_sheet(pictures), folder, "contact_sheet", ("png",))[0]


def _sheet(pictures: Sequence[Path]) -> StoredFigure:
    rows = -(-len(pictures) // COLUMNS)
    with look():
        figure = new_figure(INCHES * COLUMNS, INCHES * rows)
        for axis in figure.subplots(rows, COLUMNS, squeeze=False).flat:
            axis.set_axis_off()
        for axis, picture in zip(figure.axes, pictures, strict=False):
            axis.imshow(imread(picture))
            axis.set_title(f"{picture.parents[1].name[:2]} {picture.stem}", fontsize=9)
    return figure
