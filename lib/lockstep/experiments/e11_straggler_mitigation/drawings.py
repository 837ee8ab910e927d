"""What figures of notebook 11 are made of: maps of policies and kinds, points with intervals, lines by workers.

Everything here is simulated, or arithmetic: titles say so. A policy has the colour of how it deals with stragglers, in
all figures; some that stand beside others of their way as lines or points are darker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from lockstep.analysis.figures.style import GREY, PALETTE, ROW_INCHES, StoredFigure, new_figure
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    BY_LAST_VALUE,
    DETECTED,
    DPRO_GRADIENT,
    DPRO_SHARES,
    DROP_ONE,
    DROP_QUARTER,
    NEVER_WAIT,
    OURS,
    WAIT,
    WAYS,
)

WAY_COLOURS: Mapping[str, Any] = dict(zip(
    ("waits", "leaves out", "copies", "forecasts", "shares", "never waits"), PALETTE, strict=False
))  # fmt: skip
_LINES: Mapping[str, tuple[float, str]] = {
    WAIT: (1.0, "o"), DROP_ONE: (1.0, "v"), DROP_QUARTER: (0.5, "<"), DETECTED: (0.45, "p"),
    DPRO_GRADIENT: (0.65, "s"), DPRO_SHARES: (0.35, "h"), BY_LAST_VALUE: (1.0, "P"), NEVER_WAIT: (1.0, "^"),
    "anytime": (0.5, ">"), OURS: (1.0, "X"),
}  # fmt: skip
"""How light a policy's colour is (1: that of its way) and its mark, of those that are drawn as lines."""
MAP_COLOURS = "cividis"
MEAN = "0.15"
"""Of points beside names whose colours say how a policy deals with stragglers."""


def way_colour(contender: str) -> Any:
    """Of how a policy deals with stragglers; grey for what is no policy."""
    return WAY_COLOURS.get(WAYS.get(contender, ""), GREY)


def policy_colour(contender: str) -> Any:
    """The same in every figure: that of its way, darker where another of its way stands beside it."""
    light, _ = _LINES.get(contender, (1.0, ""))
    return tuple(light * part for part in to_rgb(way_colour(contender)))


def line_style(contender: str) -> dict[str, Any]:
    """Colour and mark of a policy's line."""
    _, marker = _LINES.get(contender, (1.0, "*"))
    return {"color": policy_colour(contender), "marker": marker, "markersize": 6, "linewidth": 1.3}


def heat_map(
    axis: Axes, values: pd.DataFrame, ends: tuple[float, float], text: str = "{:z.0f}", framed: float | None = None,
    reversed_: bool = False, scale: str = "",
) -> None:  # fmt: skip
    """Numbers of `values` [rows x columns] in coloured fields, darkest at the first of `ends`; those of at least
    `framed` have a frame; `scale` stands beside the colours. What is not known has no field; infinite is what some
    seed never reached, and says `not always`."""
    shown = np.clip(values.to_numpy(dtype=float), *ends)
    colours = colormaps[MAP_COLOURS + ("_r" if reversed_ else "")]
    drawn = axis.imshow(np.ma.masked_invalid(shown), cmap=colours, vmin=ends[0], vmax=ends[1], aspect="auto", zorder=1)
    axis.figure.colorbar(drawn, ax=axis, extend="both", pad=0.01, fraction=0.03, label=scale)
    for (y, x), value in np.ndenumerate(values.to_numpy(dtype=float)):
        if np.isnan(value):
            continue
        red, green, blue, _ = colours((np.clip(value, *ends) - ends[0]) / (ends[1] - ends[0]))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        label = "not\nalways" if np.isinf(value) else text.format(value)
        axis.text(x, y, label, ha="center", va="center", fontsize=7, color="white" if dark else "black", zorder=3)
        if framed is not None and value >= framed:
            axis.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=PALETTE[3], linewidth=1.8,
                                     zorder=4))  # fmt: skip
    axis.set_xticks(range(values.shape[1]), [name.replace(" ", "\n", 1) for name in values.columns], fontsize=7.5)
    axis.xaxis.tick_top()
    axis.grid(False)


def name_rows(axis: Axes, names: Sequence[str], bold: Sequence[str] = ()) -> None:
    """The names of policies beside their rows, in the colours of their ways."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(False, axis="y")
    for label in axis.get_yticklabels():
        label.set_color(way_colour(label.get_text()))
        if label.get_text() in bold:
            label.set_fontweight("bold")


def points(axis: Axes, rows: pd.DataFrame, columns: tuple[str, str, str], aside: float = 0.0, **style: Any) -> None:
    """A point for each row at its place, with its interval where it has one; `columns`: value, low, high."""
    value, low, high = (rows[name].to_numpy(dtype=float) for name in columns)
    places = np.arange(len(rows)) + aside
    given = {"marker": "o", "linestyle": "none", "color": PALETTE[0], "capsize": 2, "zorder": 3, **style}
    known = np.isfinite(value)
    error = np.nan_to_num([value - low, high - value])[:, known]
    axis.errorbar(value[known], places[known], xerr=error, **given)


def way_legend(figure: StoredFigure, contenders: Sequence[str], *more: Line2D | Patch) -> None:
    """What the colours of these policies say."""
    ways = dict.fromkeys(WAYS[name] for name in contenders if name in WAYS)
    handles: list[Any] = [
        Line2D([], [], linestyle="none", marker="o", color=WAY_COLOURS[way], label=way) for way in ways
    ]
    figure.legend(handles=[*handles, *more], loc="outside lower center", ncols=4, frameon=False)


def rows_figure(count: float, width: float = 10.0, room: float = 1.6) -> StoredFigure:
    """A figure high enough for so many rows."""
    return new_figure(width, room + 0.62 * ROW_INCHES * count)


def lines_by(
    axis: Axes, table: pd.DataFrame, x: str, columns: tuple[str, str, str], contenders: Sequence[str],
    spread: float = 0.0, factor: bool = True,
) -> None:  # fmt: skip
    """A line for each policy over `x`, with intervals, broken where a value is missing; points of several stand side by
    side, `spread` apart in all, as a factor or a difference."""
    for place, contender in enumerate(contenders):
        own = table[table["contender"] == contender].sort_values(x)
        if own[columns[0]].isna().all():
            continue
        step = spread * (place - (len(contenders) - 1) / 2) / max(1, len(contenders) - 1)
        at = own[x].to_numpy(dtype=float) * (1 + step) if factor else own[x].to_numpy(dtype=float) + step
        middle, low, high = (own[name].to_numpy(dtype=float) for name in columns)
        error = np.nan_to_num([middle - low, high - middle])
        axis.errorbar(at, middle, yerr=error, capsize=2, zorder=3, label=contender, **line_style(contender))


_NARROW = 5.0


def plain_log(axis: Axes, which: str) -> None:
    """A logarithmic axis, "x" or "y", with numbers as one writes them; to be called when everything is drawn."""
    getattr(axis, f"set_{which}scale")("log")
    low, high = getattr(axis, f"get_{which}lim")()
    own = axis.xaxis if which == "x" else axis.yaxis
    own.set_major_locator(MaxNLocator(6) if high < _NARROW * low else LogLocator(subs=(1, 2, 5)))
    own.set_minor_locator(NullLocator())
    own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def line_legend(figure: StoredFigure, axes: Sequence[Axes], *more: Line2D) -> None:
    """Every line once, whichever panel it is in."""
    known = dict.fromkeys(label for axis in axes for label in axis.get_legend_handles_labels()[1])
    handles = [Line2D([], [], label=name, **line_style(name)) for name in known]
    figure.legend(handles=[*handles, *more], loc="outside lower center", ncols=4, frameon=False)
