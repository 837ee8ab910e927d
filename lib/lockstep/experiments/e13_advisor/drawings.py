"""What only notebook 13 draws: errors of predictions, by kind of cell, beside what one cell differs by from itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.advisor.errors import ANOTHER_BATCH, AS_CALIBRATED
from lockstep.analysis.figures.style import GREY, MARKERS, PALETTE, StoredFigure, empty, label, look, new_figure, panels
from lockstep.experiments.e13_advisor.tables import NOISE, model_name

NOTHING_TO_DRAW = "no cell was both measured and predicted"
FAMILIES = ("one worker", "a core each", "turns on a core", "several hosts")
"""Kinds of cells that share a colour, whatever their batch."""
_PAINTS = (GREY, *(PALETTE[place] for place in (0, 2, 1, 4)))
_COLOURS: dict[str, Any] = dict(zip((AS_CALIBRATED, *FAMILIES), _PAINTS, strict=True)) | {NOISE: GREY}
_WORDS = {
    AS_CALIBRATED: "a calibrated cell, measured again",
    NOISE: "what noise allows: a cell,\nmeasured twice in a round",
    "several hosts, turns on a core": "several hosts,\nturns on a core",
}


def family(kind: str) -> str:
    return next((name for name in _COLOURS if kind.startswith(name)), FAMILIES[-1])


def error_strips(table: pd.DataFrame, kinds: pd.DataFrame, title: str) -> StoredFigure:
    """By how much each measured step was longer or shorter than predicted (%), a row per kind of cell (`strips`): a
    mark per cell, its model by its shape, and a bar from the 5 % to the 95 % that a further cell stays
    within."""
    if table.empty:
        return empty(title, NOTHING_TO_DRAW)
    with look():
        figure, (axis,) = panels(1, len(kinds) * 1.3)
        figure.suptitle(title)
        markers = _markers(table)
        axis.use_sticky_edges = False  # a strip would end at the frame
        for y, row in enumerate(kinds.to_dict("records")):
            own = table[table["kind"] == row["kind"]]
            paint = _COLOURS[family(str(row["kind"]))]
            if np.isfinite(row.get("low", np.nan)):
                axis.barh(y, row["high"] - row["low"], left=row["low"], height=0.62, color=paint, alpha=0.22, zorder=1)
            for place, (name, cells) in enumerate(own.groupby("use_case", sort=False)):
                heights = y + 0.2 * (np.arange(len(cells)) % 3 - 1) + 0.02 * place
                values = 100 * np.expm1(cells["log_error"].to_numpy())
                axis.plot(values, heights, linestyle="none", marker=markers[name], color=paint, markersize=6,
                          markeredgecolor="white", markeredgewidth=0.6, zorder=3)  # fmt: skip
        axis.axvline(0, color="0.2", linewidth=1, zorder=2)
        axis.set_yticks(range(len(kinds)), [_label(row) for row in kinds.to_dict("records")])
        axis.set_ylim(len(kinds) - 0.4, -0.6)
        axis.set_xlabel("measured step, longer (+) or shorter (-) than predicted (%)")
        axis.grid(False, axis="y")
        handles: list[Any] = [*_model_handles(markers)]
        handles.append(Patch(facecolor=GREY, alpha=0.25, label="nine in ten further cells"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def parity_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Measured against predicted seconds of a step, both logarithmic, with the line on which they are equal and ± 10 %
    around it; each with its range and its interval (`judged`)."""
    shown = table[table["kind"] != AS_CALIBRATED] if len(table) else table
    if shown.empty:
        return empty(title, NOTHING_TO_DRAW)
    with look():
        figure = new_figure(7.4, 6.2)
        axis = figure.subplots()
        figure.suptitle(title)
        markers = _markers(shown)
        ends = np.array([0.8 * shown["predicted_seconds"].min(), 1.25 * shown["predicted_seconds"].max()])
        axis.fill_between(ends, ends * 0.9, ends * 1.1, color=GREY, alpha=0.18, linewidth=0, zorder=1)
        axis.plot(ends, ends, color="0.2", linewidth=1, zorder=2)
        for row in shown.to_dict("records"):
            paint = _COLOURS[family(str(row["kind"]))]
            axis.hlines(row["step_seconds"], row["range_low"], row["range_high"], color=paint, alpha=0.5, linewidth=1.4)
            axis.plot(row["predicted_seconds"], row["step_seconds"], linestyle="none", marker=markers[row["use_case"]],
                      color=paint, markersize=6.5, markeredgecolor="white", markeredgewidth=0.6, zorder=3)  # fmt: skip
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("predicted step (s); lines: its 90 % range")
        axis.set_ylabel("measured step (s)")
        present = dict.fromkeys(family(str(kind)) for kind in shown["kind"])
        handles: list[Any] = [Patch(facecolor=_COLOURS[name], label=name) for name in FAMILIES if name in present]
        handles += [*_model_handles(markers), Patch(facecolor=GREY, alpha=0.25, label="± 10 %")]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def coverage_line(table: pd.DataFrame, title: str) -> StoredFigure:
    """Which share of the cells lay within ranges that should hold a share of them (`coverage`)."""
    if table.empty:
        return empty(title, NOTHING_TO_DRAW)
    with look():
        figure = new_figure(6.4, 4.4)
        axis = figure.subplots()
        figure.suptitle(title)
        should, held = 100 * table["level"], 100 * table["held"]
        away = [held - 100 * table["low"], 100 * table["high"] - held]
        axis.plot([45, 100], [45, 100], color="0.2", linewidth=1)
        axis.errorbar(should, held, yerr=np.abs(away), color=PALETTE[0], marker="o", linewidth=1.6, capsize=3)
        axis.set_xlabel("share that the range should hold (%)")
        axis.set_ylabel("share of cells that it held (%)")
        handles = [
            Line2D([], [], color="0.2", linewidth=1, label="as promised"),
            Line2D([], [], color=PALETTE[0], marker="o", label="measured, with 95 % interval"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def pick_points(table: pd.DataFrame, most: float, title: str) -> StoredFigure:
    """How much faster the fastest way that was measured is than the one predicted quickest (%), a row per choice
    (`picks`): filled where the fastest is decided. A cross: the recommended way."""
    known = table[table["loss"].notna()] if len(table) else table
    if known.empty:
        return empty(title, "no two ways to train one global batch were measured")
    with look():
        figure, (axis,) = panels(1, 0.75 * len(known))
        figure.suptitle(title)
        axis.axvspan(0, 100 * most, color=GREY, alpha=0.18, linewidth=0)
        for y, row in enumerate(known.to_dict("records")):
            paint = PALETTE[0] if row["good"] else PALETTE[3]
            if np.isfinite(row["low"]):
                axis.hlines(y, 100 * row["low"], 100 * row["high"], color=paint, linewidth=1.4)
            face = paint if row["decided"] else "white"
            axis.plot(100 * row["loss"], y, marker="o", markersize=7, color=paint, markerfacecolor=face, zorder=3)
            axis.plot(100 * row["advised_loss"], y, marker="x", markersize=8, color="0.2", zorder=4)
        axis.set_yticks(range(len(known)), [_choice(row) for row in known.to_dict("records")])
        axis.set_ylim(len(known) - 0.4, -0.6)
        axis.set_xlabel("how much faster the fastest way is (%)")
        axis.grid(False, axis="y")
        round_mark: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 7, "color": PALETTE[0]}
        handles: list[Any] = [
            Line2D([], [], label="predicted quickest; fastest is decided", **round_mark),
            Line2D([], [], label="predicted quickest; fastest is not decided", markerfacecolor="white", **round_mark),
            Line2D([], [], label="recommended", linestyle="none", marker="x", markersize=8, color="0.2"),
            Patch(facecolor=GREY, alpha=0.25, label=f"as good as the fastest: {100 * most:.0f} %"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def memory_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Predicted over measured peak memory of a worker (%), a row per cell (`memories`), a mark per processor."""
    if table.empty:
        return empty(title, "no peak of memory was both measured and predicted")
    with look():
        cells = table.groupby(["use_case", "strategy", "batch"], sort=False).ngroup()
        figure, (axis,) = panels(1, 0.75 * (cells.max() + 1))
        figure.suptitle(title)
        axis.axvspan(-10, 10, color=GREY, alpha=0.18, linewidth=0)
        axis.axvline(0, color="0.2", linewidth=1)
        values = 100 * (table["ratio"].to_numpy() - 1)
        kinds = table["processor"] if "processor" in table else pd.Series("", index=table.index)
        for place, name in enumerate(dict.fromkeys(kinds)):
            style = {"marker": MARKERS[place], "color": PALETTE[place], "label": name}
            own = (kinds == name).to_numpy()
            axis.plot(values[own], cells[own], linestyle="none", markersize=7, zorder=3, **style)
        if kinds.nunique() > 1:
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
        first = table[~cells.duplicated()].to_dict("records")
        named = [(model_name(row["use_case"]), label(row["strategy"])) for row in first]
        axis.set_yticks(range(len(named)), [f"{model}, {way}" for model, way in named])
        axis.set_ylim(len(named) - 0.4, -0.6)
        axis.set_xlim(min(-12.0, values.min() - 2), max(12.0, values.max() + 2))
        axis.set_xlabel("predicted peak of a worker, more (+) or less (-) than measured (%); grey: ± 10 %")
        axis.grid(False, axis="y")
    return figure


def earlier_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Measured against predicted speedups over one core of the cells that other notebooks had stored
    (`earlier_speedups`); hollow: fewer rounds than an interval needs."""
    known = table[table["predicted_speedup"].notna()] if len(table) else table
    if known.empty:
        return empty(title, "no earlier record could be predicted")
    with look():
        figure = new_figure(7.0, 5.4)
        axis = figure.subplots()
        figure.suptitle(title)
        highest = 1.1 * max(known["predicted_speedup"].max(), known["speedup"].max())
        axis.fill_between([0, highest], [0, 0.9 * highest], [0, 1.1 * highest], color=GREY, alpha=0.18, linewidth=0)
        axis.plot([0, highest], [0, highest], color="0.2", linewidth=1)
        names = list(dict.fromkeys(known["notebook"]))
        for row in known.to_dict("records"):
            place = names.index(row["notebook"])
            paint = PALETTE[(0, 1, 2, 4, 3)[place % 5]]
            sure = np.isfinite(row["low"])
            if sure:
                axis.vlines(row["predicted_speedup"], row["low"], row["high"], color=paint, linewidth=1.4)
            axis.plot(row["predicted_speedup"], row["speedup"], linestyle="none", marker=MARKERS[place], color=paint,
                      markersize=7, markerfacecolor=paint if sure else "white", zorder=3)  # fmt: skip
        axis.set_xlim(0, highest)
        axis.set_ylim(0, highest)
        axis.set_xlabel("predicted speedup over one core")
        axis.set_ylabel("measured speedup over one core")
        handles: list[Any] = [
            Line2D([], [], linestyle="none", marker=MARKERS[place], color=PALETTE[(0, 1, 2, 4, 3)[place % 5]],
                   label=f"notebook {name[:2]}")
            for place, name in enumerate(names)
        ]  # fmt: skip
        handles.append(Line2D([], [], linestyle="none", marker="o", color=GREY, markerfacecolor="white",
                              label="no interval yet"))  # fmt: skip
        handles.append(Patch(facecolor=GREY, alpha=0.25, label="± 10 %"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _markers(table: pd.DataFrame) -> dict[str, str]:
    """A shape per model."""
    return dict(zip(dict.fromkeys(table["use_case"].astype(str)), MARKERS, strict=False))


def _model_handles(markers: dict[str, str]) -> list[Line2D]:
    return [
        Line2D([], [], linestyle="none", marker=shape, color="0.3", label=model_name(name))
        for name, shape in markers.items()
    ]


def _label(row: dict[Any, Any]) -> str:
    kind = str(row["kind"])
    text = _WORDS.get(kind, kind.replace(ANOTHER_BATCH, ",\nanother batch"))
    return f"{text} ({row['cells']})"


def _choice(row: dict[Any, Any]) -> str:
    return f"{model_name(row['use_case'])}, {row['global_batch_size']} per step, {row['ways']} ways"
