"""Over all notebooks: how many claims each answer has, and published numbers beside measured ones."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from lockstep.analysis.figures.style import GREY, PALETTE, PUBLISHED, StoredFigure, empty, look, new_figure
from lockstep.analysis.verdicts import ANSWERS, CONTRADICTED, MEASURED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, UNDECIDED

ANSWER_COLOURS: dict[str, Any] = {
    SUPPORTED: PALETTE[2],
    CONTRADICTED: PALETTE[3],
    UNDECIDED: PALETTE[1],
    NEEDS_HARDWARE: PALETTE[7],
    NOT_YET: "white",
}
UNITS = {"times": "times (log scale)", "percent": "%"}
_LABEL_LETTERS = 62
_LARGE = 150.0
"""From which ratio or percentage on a claim stands in a panel of its own: it would squeeze the others together."""


def answer_bars(counts: pd.DataFrame, title: str) -> StoredFigure:
    """A bar per notebook, a part per answer (`Overview.counts`; its row `all` is left out)."""
    rows = counts.drop(index="all", errors="ignore")
    if rows.empty:
        return empty(title, "the ledger holds no claims")
    with look():
        figure = new_figure(9.0, 1.5 + 0.36 * len(rows))
        figure.suptitle(title)
        axis = figure.subplots()
        left = np.zeros(len(rows))
        for word in ANSWERS:
            width = rows[word].to_numpy(dtype=float)
            axis.barh(range(len(rows)), width, left=left, height=0.66, color=ANSWER_COLOURS[word],
                      edgecolor=GREY, linewidth=0.8, zorder=2)  # fmt: skip
            for y, (start, value) in enumerate(zip(left, width, strict=True)):
                if value:
                    axis.text(start + value / 2, y, f"{value:g}", ha="center", va="center", fontsize=8, zorder=3)
            left = left + width
        names = ["no notebook" if name == "none" else f"notebook {name}" for name in rows.index]
        axis.set_yticks(range(len(rows)), names)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("claims")
        handles = [Patch(facecolor=ANSWER_COLOURS[word], edgecolor=GREY, label=word) for word in ANSWERS]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(ANSWERS), frameon=False)
    return figure


def published_beside_measured(numbers: pd.DataFrame, title: str) -> StoredFigure:
    """A row per claim that has both numbers, a panel per unit (`Overview.numbers`), and one more for the largest:
    the published one a hollow diamond, ours before it, coloured by answer, filled if by measurement alone."""
    if numbers.empty:
        return empty(title, "no claim has both a published and a measured number yet")
    ends = numbers[["published", "measured"]].assign(high=numbers["high"].where(numbers["unit"] != "times"))
    large = (ends.max(axis=1) > _LARGE).groupby(numbers["claim"]).transform("any")
    groups = [(str(unit), rows) for (unit, _), rows in numbers.groupby([numbers["unit"], large], sort=False)]
    with look():
        heights = [0.6 * rows["claim"].nunique() + 0.45 for _, rows in groups]
        figure = new_figure(9.0, 1.0 + sum(heights) + 0.55 * len(groups))
        figure.suptitle(title)
        axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
        for axis, (unit, rows) in zip(axes[:, 0], groups, strict=True):
            _unit_panel(axis, rows, unit)
        words = [word for word in ANSWERS if word in set(numbers["answer"])]
        filled, hollow = "ours, judged by measurement alone", "ours, judged with a model, a bound, or an emulation"
        marks = {"published": PUBLISHED, filled: _mark("", MEASURED), hollow: _mark("", "")}
        handles: list[Any] = [Line2D([], [], **{"linestyle": "none", **marks[text]}, label=text) for text in marks]
        handles += [Patch(facecolor=ANSWER_COLOURS[word], label=word) for word in words]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _mark(word: str, evidence: str) -> dict[str, Any]:
    colour = ANSWER_COLOURS.get(word, "0.2")
    return {"marker": "o", "color": colour, "mew": 1.6, "mfc": colour if evidence == MEASURED else "white"}


def _unit_panel(axis: Axes, rows: pd.DataFrame, unit: str) -> None:
    labels = []
    for y, (_, claim) in enumerate(rows.groupby("claim", sort=False)):
        first = claim.iloc[0]
        labels.append(_label(first))
        axis.plot(first["published"], y, **PUBLISHED | {"markersize": 10, "zorder": 3})
        apart = np.linspace(-0.33, 0.33, len(claim)) if len(claim) > 1 else [0.0]
        for offset, (_, row) in zip(apart, claim.iterrows(), strict=True):
            error = None
            if np.isfinite(row["low"]):
                error = [[row["measured"] - row["low"]], [row["high"] - row["measured"]]]
            axis.errorbar(row["measured"], y + offset, xerr=error, **_mark(row["answer"], row["evidence"]),
                          ecolor="0.2", elinewidth=1.2, capsize=2.5, zorder=4)  # fmt: skip
            number = f"{row['measured']:{',.0f' if abs(row['measured']) >= 1000 else '.3g'}}"
            text = number + (f"  ({row['of']})" if row["of"] else "")
            axis.text(1.01, y + offset, text, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.45, -0.6)
    axis.set_xlabel(UNITS.get(unit, unit))
    _scale(axis, rows, unit)


def _scale(axis: Axes, rows: pd.DataFrame, unit: str) -> None:
    drawn = rows[["published", "measured", "low", "high"]].to_numpy(dtype=float)
    drawn = drawn[np.isfinite(drawn)]  # too few rounds have no interval
    first, last = min(0.0, float(drawn.min())), float(drawn.max())
    if drawn.min() <= 0 or (unit != "times" and last < _LARGE * drawn.min()):
        axis.set_xlim(first - 0.06 * (last - first), last + 0.12 * (last - first))  # with room for half a diamond
        return
    axis.set_xscale("log", base=2)
    axis.set_xlim(min(0.8, float(drawn.min()) * 0.8), last * 3)
    axis.xaxis.set_major_locator(LogLocator(base=2, numticks=5))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:{',.0f' if value >= 1000 else 'g'}}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel(f"{unit} (log scale)")
    if unit == "times":
        axis.axvline(1, color="0.2", linewidth=1, zorder=1)


def _label(row: pd.Series) -> str:
    about = f", {row['use_case']}" if row["use_case"] not in ("both", "other", "") else ""
    statement = textwrap.shorten(str(row["statement"]), 2 * _LABEL_LETTERS, placeholder=" …")
    place = f"{row['place']}{about} ({row['notebook']}): {row['published']:g} published"
    return f"{place}\n{textwrap.fill(statement, _LABEL_LETTERS)}"
