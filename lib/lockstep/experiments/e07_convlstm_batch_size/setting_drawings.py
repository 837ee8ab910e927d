"""Settings beside each other: accuracies, paired differences, ratios of step times, and confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.figures.style import (
    KIND_COLOURS,
    PALETTE,
    ROW_INCHES,
    StoredFigure,
    empty,
    label,
    look,
    new_figure,
    note,
)
from lockstep.analysis.seeds import MARGIN, SETTING
from lockstep.experiments.e07_convlstm_batch_size.accuracy_drawings import NETWORKS, NOTHING
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import setting_text
from lockstep.experiments.e07_convlstm_batch_size.tables.heads import CALLED
from lockstep.records import ADDED

Marks = Sequence[tuple[str, str, Any, str]]
"""Column of the middle (its interval in column_low and column_high), name, colour, marker."""


def _forest(axis: Axes, rows: pd.DataFrame, labels: Sequence[str], marks: Marks) -> None:
    """A row of points with intervals per row of the table; a row without any says why."""
    apart = np.linspace(-0.16, 0.16, len(marks)) if len(marks) > 1 else [0.0]
    for y, (_, row) in enumerate(rows.iterrows()):
        for offset, (name, _, mark_colour, marker) in zip(apart, marks, strict=True):
            if pd.notna(row[name]):
                error = [[row[name] - row[f"{name}_low"]], [row[f"{name}_high"] - row[name]]]
                axis.errorbar(row[name], y + offset, xerr=error, marker=marker, color=mark_colour, capsize=3, zorder=3)
        if all(pd.isna(row[name]) for name, *_ in marks):
            note(axis, y, f"{row['status']}: {row['reason']}")
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.grid(False, axis="y")


def _mark_handles(marks: Marks) -> list[Line2D]:
    return [Line2D([], [], linestyle="-", marker=marker, color=shade, label=name) for _, name, shade, marker in marks]


def setting_points(table: pd.DataFrame, title: str, chosen: Sequence[tuple[str, str]] = ()) -> StoredFigure:
    """Accuracy of settings on test and on held-out images, where each was scored (`seed_accuracy_table`), by use case
    and network. `chosen`: settings (`setting_text`) that are chosen by validation, as (network, setting)."""
    if table.empty:
        return empty(title, NOTHING)
    marks: list[tuple[str, str, Any, str]] = [("validation", "held-out training images", PALETTE[1], "s")]
    marks.append(("accuracy", "test split", PALETTE[0], "o"))
    marks = [mark for mark in marks if table[mark[0]].notna().any()] or marks[1:]
    groups = list(table.groupby(["use_case", "network"], sort=False))
    parts = [setting_text(row).split(", ") for _, row in table.iterrows()]
    common = [part for part in parts[0] if all(part in others for others in parts)]
    with look():
        figure = new_figure(9.5, 1.4 + 1.2 * ROW_INCHES * len(table) + 0.7 * len(groups))
        figure.suptitle(f"{title}\n(all of them: {', '.join(common)})" if common and len(table) > 1 else title)
        axes = figure.subplots(
            len(groups), 1, squeeze=False, sharex=True, height_ratios=[len(g) + 1 for _, g in groups]
        )
        for axis, ((case, network), rows) in zip(axes[:, 0], groups, strict=True):
            texts = [setting_text(row) for _, row in rows.iterrows()]
            labels = [
                fill(_unlike(text, common if len(table) > 1 else []), _LETTERS)
                + ("  ← chosen" if (network, text) in chosen else "")
                for text in texts
            ]
            _forest(axis, rows, labels, marks)
            source = " and ".join(sorted(rows["data_source"].unique()))
            axis.set_title(f"{NETWORKS.get(str(network), str(network))}, {case}, {source} images", loc="left")
        low, high = axes[0, 0].get_xlim()
        axes[0, 0].set_xlim(max(low, -1.0), min(high, 101.0))  # no share lies beyond; an end at 0 or 100 is seen
        axes[-1, 0].set_xlabel("accuracy (%), mean over seeds, 95 % interval")
        figure.legend(handles=_mark_handles(marks), loc="outside lower center", ncols=2, frameon=False)
    return figure


_LETTERS = 40
"""Of a line of a setting's label."""


def _unlike(setting: str, common: Sequence[str]) -> str:
    """What of a setting the others do not have."""
    return ", ".join(part for part in setting.split(", ") if part not in common) or "nothing else"


def paired_difference_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Distributed minus sequential accuracy by seed (`paired_table`), the band that counts as alike shaded."""
    if table.empty:
        return empty(title, NOTHING)
    labels = [
        f"{NETWORKS.get(row.network, row.network)}, {label(row.strategy)}, {row.workers} workers"
        for row in table.itertuples()
    ]
    with look():
        figure = new_figure(9.0, 1.7 + ROW_INCHES * len(table))
        axis = figure.subplots()
        axis.axvspan(-MARGIN, MARGIN, color="0.92", zorder=0)
        axis.axvline(0, color="0.3", linewidth=1, zorder=1)
        _forest(axis, table, labels, [("points", "", PALETTE[0], "o")])
        ends = table[["points_low", "points_high"]].abs().to_numpy(dtype=float)
        most = max(float(np.nanmax(ends)) if np.isfinite(ends).any() else 0.0, MARGIN)
        axis.set_xlim(-1.25 * most, 1.25 * most)
        axis.set_xlabel(f"distributed minus sequential test accuracy (points; shaded: ± {MARGIN:g})")
        axis.set_title(f"{title}\n({_origin(table)}; mean over seeds, 95 % interval)", loc="left")
    return figure


def head_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """The LSTM's accuracy minus that of each other head (`head_table`), by how they were trained."""
    others = table[table["head"] != "lstm"] if len(table) else table
    if others.empty:
        return empty(title, NOTHING)
    groups = list(others.groupby(["use_case", "training"], sort=False))
    with look():
        figure = new_figure(9.5, 1.4 + ROW_INCHES * len(others) + 0.7 * len(groups))
        figure.suptitle(title)
        heights = [len(rows) + 1 for _, rows in groups]
        axes = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=heights)
        for axis, ((case, training), rows) in zip(axes[:, 0], groups, strict=True):
            axis.axvline(0, color="0.3", linewidth=1, zorder=1)
            labels = [f"{CALLED[row.head]} ({row.head_parameters:,})" for row in rows.itertuples()]
            _forest(axis, rows, labels, [("points", "", PALETTE[0], "o")])
            axis.set_title(f"{case}, {training}", loc="left")
        axes[-1, 0].set_xlabel("test accuracy of the LSTM minus that of this head (points; mean, 95 % interval)")
    return figure


def ratio_points(table: pd.DataFrame, title: str, unit: str, sides: tuple[str, str]) -> StoredFigure:
    """Ratios of step times with their intervals (`framework_table`, `price_table`): 1 is no difference. `sides`: what
    a ratio below 1 and one above it say."""
    known = table[table["ratio"].notna()] if len(table) else table
    if table.empty:
        return empty(title, NOTHING)
    rows = table.rename(columns={"low": "ratio_low", "high": "ratio_high"})
    labels = [_ratio_label(row) for row in table.to_dict("records")]
    with look():
        figure = new_figure(9.0, 1.7 + ROW_INCHES * len(table))
        axis = figure.subplots()
        axis.axvline(1, color="0.3", linewidth=1, zorder=1)
        _forest(axis, rows, labels, [("ratio", "", PALETTE[0], "o")])
        drawn = known[["ratio", "low", "high"]].to_numpy(dtype=float)
        most = max(0.1, float(np.nanmax(np.abs(drawn - 1), initial=0.0)))
        axis.set_xlim(1 - 1.15 * most, 1 + 1.15 * most)  # as far to either side: no side is the usual one
        axis.set_xlabel(f"← {sides[0]}        {sides[1]} →\n{unit} (paired per round, mean, 95 % interval)")
        axis.set_title(f"{title}\n({_origin(table)})", loc="left")
    return figure


def _ratio_label(row: dict[str, Any]) -> str:
    """The label of a row of `framework_table` (its strategy) or of `price_table` (its setting)."""
    extra = label(row["strategy"]) if "strategy" in row else row["setting"]
    framework = f", {row['framework']}" if "framework" in row else ""
    text = f"{NETWORKS.get(row['network'], row['network'])}{framework}, batch {row['global_batch_size']}"
    return f"{text}, {extra}" if extra else text


def operator_stacks(table: pd.DataFrame, title: str) -> StoredFigure:
    """Milliseconds of a forward and backward pass by kind of operator (`framework_operator_table`), a bar per cell.

    A mark with its number stands where the whole step was timed without a profiler; without one the number is the
    bar's. A cell that was not profiled says why.
    """
    if table.empty:
        return empty(title, NOTHING)
    table = table.replace({"framework": {"tensorflow": "TensorFlow"}})
    groups = [rows for _, rows in table.groupby(["use_case", "network", "global_batch_size", "framework"], sort=False)]
    kinds = [kind for kind in KIND_COLOURS if (table["operators"] == kind).any()]
    with look():
        figure = new_figure(9.0, 1.9 + ROW_INCHES * len(groups))
        axis = figure.subplots()
        for y, rows in enumerate(groups):
            _stack(axis, y, rows)
        names = [f"{NETWORKS.get(first['network'], first['network'])}, {first['framework']}, batch "
                 f"{first['global_batch_size']}" for first in (rows.iloc[0] for rows in groups)]  # fmt: skip
        axis.set_yticks(range(len(groups)), names)
        axis.set_ylim(len(groups) - 0.4, -0.6)
        axis.set_xlim(0, 1.12 * axis.get_xlim()[1])  # room for the numbers
        axis.grid(False, axis="y")
        axis.set_xlabel("milliseconds on one core (medians)")
        axis.set_title(f"{title}\n({_origin(table)})", loc="left")
        handles: list[Artist] = [Patch(color=KIND_COLOURS[kind], label=kind) for kind in kinds]
        handles.append(Line2D([], [], **_TIMED, label="a whole step, timed without a profiler"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


_TIMED: dict[str, Any] = {
    "marker": "|",
    "markersize": 16,
    "markeredgewidth": 2.5,
    "color": "black",
    "linestyle": "none",
}


def _stack(axis: Axes, y: int, rows: pd.DataFrame) -> None:
    first, left = rows.iloc[0], 0.0
    for kind, seconds in zip(rows["operators"], rows["seconds"], strict=True):
        if pd.notna(seconds):
            axis.barh(y, 1e3 * seconds, left=left, height=0.6, color=KIND_COLOURS[kind], zorder=2)
            left += 1e3 * seconds
    if not left:
        note(axis, y, f"{first['status']}: {first['reason']}")
        return
    step = 1e3 * first["step_seconds"]
    axis.plot(step, y, zorder=3, **_TIMED)
    text = f"step {step:.0f} ms" if pd.notna(step) else f"{left:.0f} ms"
    axis.annotate(text, (max(left, step) if pd.notna(step) else left, y), xytext=(6, 0), textcoords="offset points",
                  va="center", fontsize=8)  # fmt: skip


def _origin(table: pd.DataFrame) -> str:
    """Pneumonia, real images"""
    source = " and ".join(sorted(table["data_source"].unique()))
    return f"{', '.join(dict.fromkeys(table['use_case']))}, {source} images"


def confusion_maps(table: pd.DataFrame, title: str) -> StoredFigure:
    """A confusion matrix per cell of `matrix_table`: predictions in % of the actual class, and numbers of images."""
    if table.empty:
        return empty(title, "no confusion matrix to show")
    keys = [name for name in table.columns if name not in ("actual", "predicted", "images", "share")]
    groups = [rows for _, rows in table.groupby(keys, sort=False, dropna=False)]
    columns = min(len(groups), 3)
    lines = -(-len(groups) // columns)
    with look():
        width = 3.7 * max(columns, 2)
        figure = new_figure(width, 0.9 + 3.5 * lines)
        figure.suptitle(fill(title, int(8 * width)))  # some eight letters an inch
        axes = figure.subplots(lines, columns, squeeze=False)
        for axis in axes.flat[len(groups) :]:
            axis.set_axis_off()
        for axis, rows in zip(axes.flat, groups, strict=False):
            _map(axis, rows)
    return figure


def _map(axis: Axes, rows: pd.DataFrame) -> None:
    classes = list(dict.fromkeys(rows["actual"]))
    names = list(dict.fromkeys([*classes, *rows["predicted"]]))  # no class: what a network that diverged predicts
    share, images = (
        rows.pivot_table(index="actual", columns="predicted", values=value).reindex(index=classes, columns=names)
        for value in ("share", "images")
    )
    axis.imshow(share.to_numpy(dtype=float), cmap="Blues", vmin=0, vmax=100)
    for y, actual in enumerate(classes):
        for x, predicted in enumerate(names):
            value = share.loc[actual, predicted]
            text = f"{value:.0f} %\n{images.loc[actual, predicted]:.0f}"
            axis.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if value > 60 else "black")
    axis.set_xticks(
        range(len(names)), names, rotation=30 if len(names) > 2 else 0, ha="right" if len(names) > 2 else "center"
    )
    axis.set_yticks(range(len(classes)), classes)
    axis.grid(False)
    axis.set_xlabel("predicted")
    axis.set_ylabel("actual")
    first = rows.iloc[0]
    setting = fill(setting_text(first), 44) if set(SETTING) <= {*rows.columns, *ADDED} else ""
    name = f"{NETWORKS.get(first['network'], first['network'])}, {first['use_case']}"
    axis.set_title(f"{name}\n{setting}".rstrip(), loc="left", fontsize=8)
