"""Figures of notebook 10 on recorded runs, on what forecasting costs, and on what makes workers slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.figures.bars import ERROR, side_texts
from lockstep.analysis.figures.style import PALETTE, ROW_INCHES, StoredFigure, empty, interval_points, look, new_figure
from lockstep.engine.forecasts.scores import FACTOR
from lockstep.experiments.e10_straggler_forecasts.drawings import MARKS
from lockstep.experiments.e10_straggler_forecasts.forecasters import BASE, CAUSAL, LABELS

_COMPARED = tuple(name for name in CAUSAL if name != BASE)
_PARTS = {"decode": PALETTE[0], "read": PALETTE[9], "scale": PALETTE[1], "normalise": PALETTE[2]}
_NETWORKS = {"cnn": "CNN", "convlstm": "ConvLSTM"}


def trace_rows(table: pd.DataFrame, title: str) -> StoredFigure:
    """Error over the last value's on recorded runs, a panel per trace and unit (`tables.trace_table`)."""
    known = table[table["relative"].notna()] if len(table) else table
    if known.empty:
        return empty(title, "no recorded run was in the data folder")
    panels = [(keys, own) for keys, own in known.groupby(["trace", "unit"], sort=False)]
    with look():
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure = new_figure(3.4 * columns + 1.6, 1.0 + 2.6 * rows)
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        figure.suptitle(f"{title}\n(recorded; geometric mean over pipeline stages)")
        order = sorted(panels, key=lambda panel: panel[0][1])
        for axis, (keys, own) in zip(axes.flat, order, strict=False):
            _trace_panel(axis, own)
            memory, rate = own["memory"].iloc[0], own["base_rate"].iloc[0]
            axis.set_title(f"{keys[0]}, {keys[1]}\nmemory {memory:.2f}, stragglers {rate:.0%}", loc="left")
        for axis in list(axes.flat)[len(panels) :]:
            axis.set_axis_off()
        for axis in axes[-1]:
            axis.set_xlabel("error / the last value's")
    return figure


def _trace_panel(axis: Axes, own: pd.DataFrame) -> None:
    found = own.drop_duplicates("forecaster").set_index("forecaster")
    for y, name in enumerate(_COMPARED):
        if name in found.index:
            row = found.loc[name]
            error = [[row["relative"] - row["relative_low"]], [row["relative_high"] - row["relative"]]]
            known = error if np.isfinite(error).all() else None
            axis.errorbar(row["relative"], y, xerr=known, linestyle="none", **MARKS[name])
    axis.axvline(1, color="0.2", linewidth=1, zorder=1)
    axis.set_yticks(range(len(_COMPARED)), [LABELS[name] for name in _COMPARED])
    axis.set_ylim(len(_COMPARED) - 0.5, -0.5)


def cost_bars(table: pd.DataFrame, title: str, limit: float) -> StoredFigure:
    """Milliseconds of a core for each step (`tables.costs_table`); dashed: the aim."""
    known = table[table["forecaster"].isin(CAUSAL)].reset_index(drop=True) if len(table) else table
    if known.empty:
        return empty(title, "no cost was measured yet")
    with look():
        figure = new_figure(8.2, 1.4 + ROW_INCHES * len(known))
        axis = figure.subplots()
        figure.suptitle(f"{title}\n(measured; intervals over rounds)")
        left = np.zeros(len(known))
        for place, (column, name) in enumerate(_SPENT.items()):
            width = known[column].to_numpy(dtype=float)
            axis.barh(range(len(known)), width, left=left, height=0.6, color=PALETTE[place], zorder=2, label=name)
            left += width
        for y, row in known.iterrows():
            error = [[row["milliseconds"] - row["milliseconds_low"]], [row["milliseconds_high"] - row["milliseconds"]]]
            if np.isfinite(error).all():
                axis.errorbar(row["milliseconds"], y, xerr=error, fmt="none", zorder=4, **ERROR)
        side_texts(axis, known["milliseconds"], [f"{value:.2f} ms" for value in known["milliseconds"]])
        axis.axvline(limit, color="0.1", linestyle="--", linewidth=1.4, label=f"2 % of a step of 100 ms: {limit:g} ms")
        axis.set_yticks(range(len(known)), [LABELS[name] for name in known["forecaster"]])
        axis.set_ylim(len(known) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.set_xlabel("milliseconds of a core for each step of eight workers")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


_SPENT = {"asking_milliseconds": "observing and forecasting", "training_milliseconds": "training"}


def loading_points(table: pd.DataFrame, shares: pd.Series, title: str) -> StoredFigure:
    """How much slower a step and its mean worker are, against input's share of the work (`slow_loading_table`)."""
    if table.empty:
        return empty(title, "nothing of the kind was simulated yet")
    with look():
        figure = new_figure(6.6, 3.6)
        axis = figure.subplots()
        figure.suptitle(f"{title}\n(simulated; intervals over seeds)")
        for place, (name, label) in enumerate(_SLOWED.items()):
            columns = (f"{name}_slowdown", f"{name}_slowdown_low", f"{name}_slowdown_high")
            known = table[columns[0]].notna()
            interval_points(axis, shares[known] + 0.006 * (2 * place - 1), table[known], columns, linestyle="none",
                            marker="os"[place], color=PALETTE[3 * place], label=label)  # fmt: skip
        axis.axhline(1, color="0.2", linewidth=1)
        axis.set_xticks(sorted(shares))
        axis.set_xlim(0, max(shares) + 0.1)
        axis.set_xlabel("input's share of the work, three times as slow at times")
        axis.set_ylabel("times as long as without delays")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


_SLOWED = {"worker": "the mean worker", "step": "the step, which waits for all"}


def vanishing_panels(
    scales: pd.DataFrame, networks: pd.DataFrame, waits: Mapping[str, pd.DataFrame], denormal: int, title: str
) -> StoredFigure:
    """Left: a backward pass by the size of its gradients. Middle: what reaches the first of so many sigmoids. Right:
    how long the backward pass takes then, and how far the slowest worker is behind. Processors that differ have marks
    of their own (`by_processor`)."""
    if scales.empty or networks.empty:
        return empty(title, "no backward pass was timed yet")
    with look():
        figure = new_figure(12.0, 4.8)
        left, middle, right = figure.subplots(1, 3)
        figure.suptitle(f"{title}\n(measured; intervals over rounds)")
        for place, (flushed, label) in enumerate(((False, "as they are"), (True, "flushed to zero"))):
            own = scales[(scales["flushed"] == flushed) & scales["slowdown"].notna()].sort_values(
                "exponent", kind="stable"
            )
            _by_processor(left, own, "exponent", "slowdown", ("os", "PX")[place], (0.3 * (2 * place - 1), 0.0),
                          [PALETTE[each] for each in ((3, 1), (0, 9))[place]], f"denormal numbers {label}")  # fmt: skip
        left.axvspan(min(scales["exponent"]) - 1, denormal, color="0.93", zorder=0)
        left.set_yscale("log")
        left.set_xlabel("gradients of the size 10 to the power of")
        left.set_ylabel("backward pass, times as long")
        left.set_title("one convolution", loc="left")
        _first_gradients(middle, networks)
        _depths(right, waits)
        handles, labels = left.get_legend_handles_labels()
        more, names = right.get_legend_handles_labels()
        band = Patch(facecolor="0.93", label="denormal in float32")
        figure.legend([*handles, *more, band], [*labels, *names, "denormal in float32"], loc="outside lower center",
                      ncols=3, frameon=False)  # fmt: skip
    return figure


def _by_processor(axis: Axes, rows: pd.DataFrame, x: str, value: str, markers: str, aside: tuple[float, float],
                  colours: list[Any], label: str) -> None:  # fmt: skip
    """A series of points for each processor of `rows`, moved aside so that none hides another."""
    for place, (processor, own) in enumerate(rows.groupby("processor", sort=False)):
        columns, paint = (value, "low", "high"), colours[place % len(colours)]
        interval_points(axis, own[x] + aside[0] + place * aside[1], _whole(own, columns), columns,
                        marker=markers[place % len(markers)], color=paint,
                        label=f"{label}, {processor}" if processor else label)  # fmt: skip


def _whole(own: pd.DataFrame, columns: tuple[str, str, str]) -> pd.DataFrame:
    """With an interval of no width where there is none yet."""
    value = own[columns[0]]
    return own.assign(**{name: own[name].fillna(value) for name in columns[1:]})


_SLOW = {"slowdown": "all workers, over flushed", "behind": "slowest of 8 workers, over its peers"}


def _first_gradients(middle: Axes, networks: pd.DataFrame) -> None:
    deep = networks[networks["depth"] > 0].sort_values("depth")
    reached = deep[deep["first_gradient"] > 0]
    middle.plot(reached["depth"], reached["first_gradient"], marker="o", color=PALETTE[0], label="sigmoids")
    own = networks[networks["depth"] == 0]
    for place, row in enumerate(own.itertuples()):
        middle.axhline(row.first_gradient, color=PALETTE[1 + place], linestyle="--", linewidth=1.2)
        text = f"the use case's {_NETWORKS.get(str(row.name), row.name)}"
        middle.annotate(text, (1.0, row.first_gradient), xycoords=("axes fraction", "data"),
                        xytext=(-3, -11 if place else 4), textcoords="offset points", ha="right",
                        fontsize=8)  # fmt: skip
    middle.axhspan(1e-46, 1.2e-38, color="0.93", zorder=0)
    middle.set_yscale("log")
    middle.set_ylim(1e-46, 1e2)
    middle.set_xlabel("convolutions with a sigmoid behind each")
    middle.set_ylabel("mean gradient of the first layer's weights")
    middle.set_title("what reaches the first layer", loc="left")


def _depths(right: Axes, waits: Mapping[str, pd.DataFrame]) -> None:
    for place, (name, label) in enumerate(_SLOW.items()):
        own = waits[name]
        deep = own[own["depth"] > 0].sort_values("depth", kind="stable")
        _by_processor(right, deep, "depth", name, ("Dd", "^v")[place], (1.0 * place - 0.8, 0.5),
                      [PALETTE[each] for each in ((4, 6), (2, 5))[place]], label)  # fmt: skip
    text = f"a straggler: {FACTOR:g} times its peers (of the triangles only)"
    right.axhline(FACTOR, color="0.2", linestyle="--", linewidth=1, label=text)
    right.set_yscale("log")
    right.set_xlabel("convolutions with a sigmoid behind each")
    right.set_ylabel("backward pass, times as long")
    right.set_title("who is slow then", loc="left")


def part_bars(table: pd.DataFrame, title: str, published: float) -> StoredFigure:
    """The parts of the input's time in per cent (`input_parts_table`); dashed: the published share of decoding."""
    if table.empty:
        return empty(title, "no input was timed yet")
    with look():
        figure = new_figure(8.6, 1.5 + 1.15 * ROW_INCHES * len(table))
        axis = figure.subplots()
        figure.suptitle(f"{title}\n(measured; time of one core, files in memory)")
        whole = table[list(_PARTS)].sum(axis=1).to_numpy(dtype=float)
        left = np.zeros(len(table))
        for part in _PARTS:  # decoding first: its end is its share
            width = 100 * table[part].to_numpy(dtype=float) / whole
            axis.barh(range(len(table)), width, left=left, height=0.6, color=_PARTS[part], zorder=2)
            left += width
        names = [f"{row.use_case}, {row.way}\n{row.megapixels:.2g} megapixels" for row in table.itertuples()]
        axis.set_yticks(range(len(table)), names)
        axis.set_ylim(len(table) - 0.5, -0.5)
        axis.grid(False, axis="y")
        side_texts(axis, table["decode"], [f"{value:.2f} ms per image" for value in whole])
        axis.axvline(published, color="0.1", linestyle="--", linewidth=1.4, zorder=4)
        axis.set_xlim(0, 100)
        axis.set_xlabel("share of the input's time (%)")
        handles: list[Any] = [Patch(facecolor=paint, label=part) for part, paint in _PARTS.items()]
        handles.append(Line2D([], [], color="0.1", linestyle="--", label=f"published: {published:g} % decoding"))
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure
