"""One look for all figures, and files that are the same byte for byte whenever they are drawn again.

Measured numbers are filled and coloured, published ones hollow grey diamonds, simulated ones dotted lines.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine

from lockstep.engine.files import write_atomically
from lockstep.engine.job.strategies import RUNGS, STRATEGIES

_COLOURS = "#0173b2 #de8f05 #029e73 #d55e00 #cc78bc #ca9161 #fbafe4 #949494 #ece133 #56b4e9"
PALETTE = tuple(to_rgb(each) for each in _COLOURS.split())
"""Seaborn's "colorblind", red, green and blue from 0 to 1. Written out, since many who import this module draw nothing,
and seaborn brings all of scipy's statistics."""
DECLARED = (*PALETTE, *map(to_rgb, ["#332288", "#882255", "#999933"]))
"""What a strategy's file may name: indigo, wine and olive of Paul Tol's "muted" behind them, where ten are too few."""
DOTS_PER_INCH = 110
GREY = "0.45"
PUBLISHED: dict[str, Any] = {
    "marker": "D", "linestyle": "none", "markerfacecolor": "white", "markeredgecolor": GREY, "markeredgewidth": 1.6,
    "markersize": 8, "zorder": 5,
}  # fmt: skip
SIMULATED: dict[str, Any] = {"linestyle": ":", "marker": "none"}
MEASURED: dict[str, Any] = {"linestyle": "-", "marker": "o"}
MARKERS = "os^vPX*<>p"
"""Of measured points: none is the diamond of what is published."""

GIB = 2.0**30
SPEEDUP = ("speedup", "low", "high")
ROW_INCHES = 0.42


class StoredFigure(Figure):
    """A figure without pyplot's global state, which shows itself in a notebook with the same bytes every time.

    `alternative` says in words what it shows, for those who can't see it: in the output's metadata, which some front
    ends make the picture's `alt` (nbconvert's classic template does, JupyterLab 4 does not), and as its plain text that
    stands where no picture is shown.
    """

    alternative: str = ""
    nothing: str = ""  # why there is nothing to draw: a notebook shows this sentence, and no picture

    def _repr_markdown_(self) -> str | None:
        return f"*{self.nothing}*" if self.nothing else None

    def _repr_png_(self) -> bytes | tuple[bytes, dict[str, str]] | None:
        if self.nothing:
            return None
        picture = render(self, "png")
        return (picture, {"alt": self.alternative}) if self.alternative else picture

    def __repr__(self) -> str:
        return self.alternative or super().__repr__()


@contextmanager
def look() -> Iterator[None]:
    """Seaborn's white grid, without touching the caller's settings."""
    with mpl.rc_context(_settings()):
        yield


@functools.cache
def _settings() -> dict[Any, Any]:
    import seaborn

    settings = {**seaborn.axes_style("whitegrid"), **seaborn.plotting_context("notebook", font_scale=0.8)}
    settings |= {"svg.hashsalt": "lockstep", "svg.fonttype": "path", "axes.titlesize": 10, "figure.titlesize": 11}
    # Matplotlib's own font, so that a machine with Arial draws the same.
    return settings | {"font.sans-serif": ["DejaVu Sans"]}


def new_figure(width: float, height: float) -> StoredFigure:
    figure = StoredFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    count: int, rows: float, width: float = 9.0, heights: Sequence[float] | None = None
) -> tuple[StoredFigure, list[Axes]]:
    """A figure of `count` panels, one above another, high enough for `rows` bars in all; `heights` of the panels, as
    parts of a whole, where they are not all alike."""
    figure = new_figure(width, 1.15 + ROW_INCHES * rows + 0.75 * count)
    axes = figure.subplots(count, 1, squeeze=False, height_ratios=heights)
    return figure, [axes[index][0] for index in range(count)]


def render(figure: Figure, kind: str) -> bytes:
    """The figure as PNG or SVG, without date or version, so that drawing it again gives the same bytes."""
    buffer = io.BytesIO()
    words = getattr(figure, "alternative", "")
    with look():
        engine = figure.get_layout_engine()
        if engine is not None and not isinstance(engine, PlaceHolderLayoutEngine):
            # The layout is computed once and then kept: computing it again would move everything a little.
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.set_dpi(DOTS_PER_INCH)
        # Not `savefig`, which draws everything twice: it would lay the figure out again.
        if kind == "png":
            about = {"Description": words} if words else {}
            FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None, **about})
        else:
            about = {"Title": words} if words else {}
            FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None, **about})
    return _with_plain_names(buffer.getvalue()) if kind == "svg" else buffer.getvalue()


def _with_plain_names(svg: bytes) -> bytes:
    """The clip paths of an SVG named by their order. Matplotlib names them by a hash of their exact position, whose
    last digit depends on what the same process drew before."""
    names = dict.fromkeys(re.findall(rb"\bp[0-9a-f]{10}\b", svg))
    plain = {name: b"clip%d" % number for number, name in enumerate(names)}
    return re.sub(rb"\bp[0-9a-f]{10}\b", lambda found: plain[found[0]], svg)


def save_figure(figure: Figure, folder: str | Path, name: str, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Writes `<folder>/<name>.png` and `.svg`; returns the paths. Raises WriteError if they can't be written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in kinds:
        path = folder / f"{name}.{kind}"
        write_atomically(path, render(figure, kind))
        paths.append(path)
    return paths


def colour(strategy: str) -> Any:
    """The same colour for a strategy in every figure: its own, or that of its place among the strategies."""
    known = STRATEGIES.get(strategy)
    if known is not None and known.colour is not None:
        return DECLARED[known.colour % len(DECLARED)]
    names = list(STRATEGIES if known is not None else RUNGS)
    return PALETTE[names.index(strategy) % len(PALETTE)] if strategy in names else GREY


def label(strategy: str) -> str:
    """The name of a strategy in figures."""
    row = STRATEGIES.get(strategy)
    if row is not None:
        return row.short or row.label
    return RUNGS[strategy].label if strategy in RUNGS else strategy.replace("_", " ")


def marker(strategy: str) -> str:
    """The mark of a strategy's points: the one that its file declares, or that of its place among the strategies. Ten
    rows further on, where colours repeat, it is another one."""
    row = STRATEGIES.get(strategy)
    if row is None:
        return str(MEASURED["marker"])
    place = list(STRATEGIES).index(strategy)
    return row.marker or MARKERS[(place + place // len(PALETTE)) % len(MARKERS)]


def line_between(points: int) -> Literal["-", "none"]:
    """The line style of so many measured points: two points make no curve."""
    return "-" if points > 2 else "none"


DISTINGUISHING_COLUMNS = ("workers", "precision", "input", "replicas")


def row_labels(table: pd.DataFrame, also: Sequence[str] = DISTINGUISHING_COLUMNS) -> list[str]:
    """A label per row: its strategy, and whatever else distinguishes it from other rows of that strategy."""
    labels = []
    for _, row in table.iterrows():
        same = table[(table["strategy"] == row["strategy"]) & (table["device"] == row["device"])]
        parts = [label(row["strategy"])]
        parts += ["GPU"] if row["device"] == "cuda" else []
        for name in also:
            if _differ(same, name):
                parts.append(_column_text(name, row[name]))
        labels.append(", ".join(parts))
    return labels


def _differ(same: pd.DataFrame, name: str) -> bool:
    if name == "replicas" and name in same and (same[name] == same["workers"]).all():
        return False  # of one rank each: the number of workers says it all
    return name in same and same[name].nunique() > 1


def _column_text(name: str, value: object) -> str:
    return f"{value} {name[:-1]}{'' if value == 1 else 's'}" if name in ("replicas", "workers") else str(value)


def data_label(table: pd.DataFrame) -> str:
    """What was measured on: real or synthetic photos, and images per step. For titles."""
    ok = table[table["status"] == "ok"] if "status" in table else table
    ok = table if ok.empty else ok
    source = " and ".join(f"{name} photos" for name in sorted(ok["data_source"].unique()))
    batches = sorted(int(value) for value in ok["global_batch_size"].unique())
    text = str(batches[0]) if len(batches) == 1 else f"{batches[0]} to {batches[-1]}"
    return f"{source}, {text} images per step"


def interval_points(axis: Axes, x: pd.Series, rows: pd.DataFrame, columns: tuple[str, str, str], **style: Any) -> None:
    """Points of `rows` at `x`, each with its interval; `columns` name its middle, its lower and its upper end."""
    # Arrays: of a Series with a single row matplotlib takes the float that pandas warns of.
    middle, low, high = (rows[column].to_numpy(dtype=float) for column in columns)
    axis.errorbar(x.to_numpy(dtype=float), middle, yerr=[middle - low, high - middle], **{"capsize": 3, **style})


def note(axis: Axes, y: float, text: str, x: float = 0.01) -> None:
    """Why a row has no bar, where its bar would be."""
    short = text if len(text) <= 90 else text[:87] + "..."
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axis.text(x, y, short, transform=axis.get_yaxis_transform(), va="center", style="italic", color=GREY, fontsize=8,
              bbox=box, zorder=3.5)  # fmt: skip


def strip(axis: Axes, left: float, text: str) -> None:
    """The part of an axis from `left` on in grey, with `text`: what stands there has no place on the axis."""
    axis.axvspan(left, axis.get_xlim()[1], color="0.93", zorder=0)
    axis.annotate(text, (left, 0.03), xycoords=axis.get_xaxis_transform(), xytext=(4, 0), textcoords="offset points",
                  fontsize=7, color=GREY)  # fmt: skip


def empty(title: str, why: str) -> StoredFigure:
    """A figure that says why there is nothing to draw: a gap would look like an oversight."""
    with look():
        figure = new_figure(7, 1.6)
        axis = figure.subplots()
        axis.set_axis_off()
        axis.text(0.5, 0.5, why, ha="center", va="center", style="italic", color=GREY, wrap=True)
        figure.suptitle(title)
    figure.nothing = f"{title}: {why}."
    return figure


KIND_COLOURS = dict(zip(
    ("convolution", "matrix product", "pooling", "ReLU", "copies and casts", "other"), PALETTE, strict=False
))  # fmt: skip


def batches_label(table: pd.DataFrame) -> str:
    return f"{' or '.join(str(size) for size in sorted(table['global_batch_size'].unique()))} images per step"
