"""Where published numbers stand in a panel, those beyond its axis included."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.text import Annotation


def published_marks(axis: Axes) -> dict[int, float]:
    """Row -> the number written beside its hollow mark, a diamond or an arrow."""
    rows = [int(line.get_ydata()[0]) for line in axis.lines if line.get_markerfacecolor() == "white"]  # type: ignore[arg-type, index]
    told = {int(text.xy[1]): float(text.get_text()) for text in axis.texts if isinstance(text, Annotation)}
    assert set(told) == set(rows), "every mark has its number, every number its mark"
    return told
