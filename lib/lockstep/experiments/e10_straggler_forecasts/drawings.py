"""Figures of notebook 10 on forecasts. A forecaster has the same colour and mark in all of them.

What is simulated is drawn with marks and the interval over seeds, each figure says so in its title.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from lockstep.analysis.figures.style import GREY, PALETTE, StoredFigure, empty, look, new_figure
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BASE,
    BEST,
    DRAWN,
    LABELS,
    LEARNING_CURVES,
    LSTM,
    QUANTILES,
    SIMULATED,
    TRAINED,
)
from lockstep.experiments.e10_straggler_forecasts.grid import KINDS

MARKS: dict[str, dict[str, Any]] = {
    "last": {"color": GREY, "marker": "X"},
    "mean": {"color": PALETTE[5], "marker": "<"},
    "median": {"color": PALETTE[2], "marker": "s"},
    "smoothing": {"color": PALETTE[4], "marker": "v"},
    "ar": {"color": PALETTE[1], "marker": "p"},
    "linear": {"color": PALETTE[9], "marker": "P"},
    "best": {"color": PALETTE[3], "marker": "^"},
    "lstm": {"color": PALETTE[0], "marker": "o"},
    "trained": {"color": "0.1", "marker": "*", "markersize": 8, "markeredgewidth": 0.9},
}
COMPARED = tuple(name for name in SIMULATED if name != BASE)
NOTHING = "nothing of the kind was simulated yet"
_SIMULATED = "simulated; intervals over seeds"
_PERIODS = {"early": "steps 5 to 60", "later": "from step 60 on"}
_SPREAD = 0.72  # of a row, which its marks share


def error_rows(table: pd.DataFrame, title: str) -> StoredFigure:
    """Error over the last value's, a row per kind and a panel per period (`tables.errors_table`)."""
    known = table[table["kind"].isin(KINDS)] if len(table) else table
    if known.empty:
        return empty(title, NOTHING)
    kinds = [kind for kind in KINDS if (known["kind"] == kind).any()]
    with look():
        figure = new_figure(10.5, 1.7 + 0.62 * len(kinds))
        axes = figure.subplots(1, 2, sharey=True, sharex=True)
        figure.suptitle(f"{title}\n({_SIMULATED})")
        for axis, (period, name) in zip(axes, _PERIODS.items(), strict=True):
            own = known[known["period"] == period]
            _row_marks(axis, own[own["state"] == "none"], kinds, COMPARED, "relative")
            _row_marks(axis, own[own["state"] != "none"], kinds, COMPARED, "relative", markerfacecolor="white")
            axis.axvline(1, color="0.2", linewidth=1, zorder=1)
            axis.set_title(name, loc="left")
            axis.set_xlabel("mean absolute error / the last value's")
            _log_axis(axis, [*own["relative_low"], *own["relative_high"], *own["relative"]])
        figure.legend(handles=[*_handles(COMPARED), _TOLD], loc="outside lower center", ncols=5, frameon=False)
    return figure


_TOLD = Line2D([], [], linestyle="none", marker="o", color=GREY, markerfacecolor="white", label="told the balance")


def _row_marks(
    axis: Axes, table: pd.DataFrame, kinds: Sequence[str], names: Sequence[str], value: str, **style: Any
) -> None:
    """A row per kind; the forecasters' marks stand one below another within it."""
    for y, kind in enumerate(kinds):
        own = table[table["kind"] == kind].drop_duplicates("forecaster").set_index("forecaster")
        for place, name in enumerate(names):
            if name in own.index:
                shift = _SPREAD * ((place + 0.5) / len(names) - 0.5)
                _mark(axis, own.loc[name], value, y + shift, name, **style)
    axis.set_yticks(range(len(kinds)), kinds)
    axis.set_ylim(len(kinds) - 0.45, -0.55)
    axis.grid(False, axis="y")
    for y in range(len(kinds) - 1):
        axis.axhline(y + 0.5, color="0.92", linewidth=0.8, zorder=0)


def _mark(axis: Axes, row: pd.Series, value: str, y: float, name: str, **style: Any) -> None:
    """A point with its interval; nothing where the value is not defined or, as of an error of 0, can't be drawn."""
    middle = float(row[value])
    if not np.isfinite(middle):
        return
    low, high = (float(row.get(f"{value}_{end}", np.nan)) for end in ("low", "high"))
    error = [[middle - low], [high - middle]] if np.isfinite(low) and np.isfinite(high) else None
    look_of = {"linestyle": "none", "markersize": 5, "elinewidth": 1.2, "zorder": 3, **MARKS[name], **style}
    axis.errorbar(middle, y, xerr=error, **look_of)


_TICKS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 8.0)


def _log_axis(axis: Axes, values: Iterable[float]) -> None:
    known = [float(value) for value in values if np.isfinite(value) and value > 0]
    axis.set_xscale("log")
    axis.set_xlim(min([0.5, *known]) / 1.08, max([1.25, *known]) * 1.08)
    low, high = axis.get_xlim()
    axis.set_xticks([tick for tick in _TICKS if low <= tick <= high])
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _handles(names: Iterable[str]) -> list[Line2D]:
    return [Line2D([], [], linestyle="none", **MARKS[name], label=LABELS[name]) for name in names]


NAMED_BEFORE = (BASE, "ar", "linear", BEST, LSTM, TRAINED)


def onset_rows(table: pd.DataFrame, title: str) -> StoredFigure:
    """Which share of onsets was forecast, a row per kind that has any; hollow: told the state of the system; a bar: how
    often the LSTM says the same where no onset follows (`tables.errors_table`)."""
    known = table[(table["period"] == "later") & table["kind"].isin(KINDS)] if len(table) else table
    known = known[known["onset_recall"].notna()] if len(known) else known
    if known.empty:
        return empty(title, NOTHING)
    kinds = [kind for kind in KINDS if (known["kind"] == kind).any()]
    with look():
        figure = new_figure(8.6, 1.8 + 0.55 * len(kinds))
        axis = figure.subplots()
        figure.suptitle(f"{title}\n({_SIMULATED})")
        _row_marks(axis, known[known["state"] == "none"], kinds, NAMED_BEFORE, "onset_recall")
        told = known[known["state"] != "none"]
        _row_marks(axis, told, kinds, NAMED_BEFORE, "onset_recall", markerfacecolor="white")
        for y, kind in enumerate(kinds):
            own = known[known["kind"] == kind]
            chance = own[(own["forecaster"] == LSTM) & (own["state"] == "none")]["chance"]
            if len(chance) and np.isfinite(chance.iloc[0]):
                axis.barh(y, float(chance.iloc[0]), height=0.85, color="0.88", zorder=1)
        axis.set_xlim(-0.03, 1.03)
        axis.set_xlabel("share of onsets for whose step the worker was forecast to be a straggler")
        handles: list[Any] = [*_handles(NAMED_BEFORE), _TOLD]
        handles.append(Patch(facecolor="0.88", label="chance: the LSTM's false alarms"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def example_lines(table: pd.DataFrame, name_of: Callable[[str], str], title: str) -> StoredFigure:
    """One worker's times, and what was forecast for them, a panel per kind (the traced table `examples`)."""
    drawn = [(kind, table[table["delays"] == KINDS[kind]]) for kind in DRAWN if len(table)]
    drawn = [(kind, own) for kind, own in drawn if len(own)]
    if not drawn:
        return empty(title, NOTHING)
    with look():
        figure = new_figure(9.5, 0.9 + 2.3 * len(drawn))
        axes = figure.subplots(len(drawn), 1, squeeze=False, sharex=True)[:, 0]
        figure.suptitle(f"{title}\n(simulated, worker 0, seed 0)")
        for axis, (kind, own) in zip(axes, drawn, strict=True):
            seen = own[own["forecaster"] == "seen"].sort_values("task")
            axis.bar(seen["task"], seen["seconds"], width=0.9, color="0.85", zorder=1)
            for place, name in enumerate((BASE, "ar", LSTM)):
                said = own[own["forecaster"] == name].sort_values("task")
                aside = said["task"] + 0.24 * (place - 1)
                axis.plot(aside, said["seconds"], linestyle="none", markersize=3.6, zorder=3, **MARKS[name])
            axis.set_title(f"{kind} ({name_of(kind)})", loc="left")
            axis.set_ylabel("seconds of a task")
        axes[-1].set_xlabel("step")
        handles: list[Any] = [Patch(facecolor="0.85", label="what it took"), *_handles((BASE, "ar", LSTM))]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def calibration_rows(table: pd.DataFrame, title: str) -> StoredFigure:
    """The share of times below each forecast quantile, a row per kind; dashed: what it should be."""
    known = table[table["kind"].isin(KINDS) & (table["state"] == "none")] if len(table) else table
    known = known[known["period"] == "later"] if len(known) else known
    if known.empty:
        return empty(title, NOTHING)
    kinds = [kind for kind in KINDS if (known["kind"] == kind).any()]
    names = [name for name in LEARNING_CURVES if (known["forecaster"] == name).any()]
    with look():
        figure = new_figure(8.6, 1.7 + 0.5 * len(kinds))
        axis = figure.subplots()
        figure.suptitle(f"{title}\n(simulated, means over seeds, from step 60 on)")
        for quantile in QUANTILES:
            _row_marks(axis, known, kinds, names, f"below_{quantile:g}")
            axis.axvline(quantile, color="0.3", linestyle="--", linewidth=1, zorder=1)
        axis.set_xlim(-0.02, 1.02)
        axis.set_xticks([0, *QUANTILES, 1])
        axis.set_xlabel("share of times below the forecast quantiles 0.1, 0.5 and 0.9")
        figure.legend(handles=_handles(names), loc="outside lower center", ncols=3, frameon=False)
    return figure


_COARSE = (0.25, 0.5, 1.0, 2.0, 4.0)


def history_lines(table: pd.DataFrame, ends: Sequence[int], title: str) -> StoredFigure:
    """Error over the last value's against the steps seen, a panel per kind (`tables.history_table`)."""
    kinds = [kind for kind in KINDS if len(table) and (table["kind"] == kind).any()]
    if not kinds:
        return empty(title, NOTHING)
    with look():
        rows = -(-len(kinds) // 5)
        figure = new_figure(11.0, 1.2 + 2.3 * rows)
        axes = figure.subplots(rows, 5, squeeze=False, sharex=True, sharey=True)
        figure.suptitle(f"{title}\n(simulated; means over seeds)")
        names = [name for name in LEARNING_CURVES if name != BASE]
        for place, axis in enumerate(axes.flat):
            if place >= len(kinds):
                axis.set_axis_off()
                continue
            own = table[table["kind"] == kinds[place]]
            axis.axvspan(ends[0] / 1.3, 10, color="0.93", zorder=0)
            axis.axhline(1, color="0.2", linewidth=1, zorder=1)
            for name in names:
                line = own[own["forecaster"] == name].sort_values("seen_rounds")
                axis.plot(line["seen_rounds"], line["relative"], linewidth=1.2, **{"markersize": 4, **MARKS[name]})
            axis.set_title(kinds[place], loc="left")
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(list(ends), [str(end) for end in ends])
            axis.set_xticks([], minor=True)
            axis.set_yticks(_COARSE, [f"{tick:g}" for tick in _COARSE])
            axis.set_yticks([], minor=True)
        for axis in axes[-1]:
            axis.set_xlabel("steps seen, from")
        for row in axes:
            row[0].set_ylabel("error / last value's")
        handles: list[Any] = [*_handles(names), Patch(facecolor="0.93", label="fewer than ten")]
        figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    return figure
