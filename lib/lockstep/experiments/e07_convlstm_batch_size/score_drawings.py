"""What every image's score says, drawn: areas under curves first, then accuracy by thresholds that validation sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from lockstep.analysis.figures.style import (
    GREY,
    PALETTE,
    PUBLISHED,
    ROW_INCHES,
    StoredFigure,
    empty,
    look,
    new_figure,
    note,
)
from lockstep.analysis.stored import Stored
from lockstep.experiments.e07_convlstm_batch_size.accuracy_drawings import NETWORKS, NOTHING, published_accuracies
from lockstep.experiments.e07_convlstm_batch_size.tables.scores import AS_TRAINED, CORRECTED, OF_VALIDATION, score_table

_MARKS: Mapping[str, tuple[Any, str, float]] = {
    AS_TRAINED: (PALETTE[0], "o", -0.2),
    OF_VALIDATION: (PALETTE[1], "s", 0.0),
    CORRECTED: (PALETTE[2], "^", 0.2),
}
"""Rule: colour, marker, and how far from the middle of its row."""
_PANELS = {"auc": "area under the curve", "balanced": "balanced accuracy (%)", "accuracy": "accuracy (%)"}


def score_figure(stored: Stored) -> StoredFigure:
    """Notebook 07's figure `scores`, beside the abstract's two accuracies."""
    title = "Every test image's score: mean over seeds, 95 % interval over seeds and patients"
    return score_points(score_table(stored), title, published_accuracies())


def score_points(table: pd.DataFrame, title: str, published: Mapping[str, float]) -> StoredFigure:
    """`score_table` as a row for each network and setting. `published`: name -> accuracy (%), of which the paper says
    neither threshold nor class shares."""
    if table.empty:
        return empty(title, NOTHING)
    table = table.sort_values("network", kind="stable").assign(
        label=lambda rows: [_label(row) for row in rows.to_dict("records")]
    )
    labels = list(dict.fromkeys(table["label"]))
    with look():
        figure = new_figure(11.0, 1.9 + 1.5 * ROW_INCHES * len(labels))
        figure.suptitle(title)
        axes = figure.subplots(1, len(_PANELS), sharey=True)
        for axis, (name, unit) in zip(axes, _PANELS.items(), strict=True):
            for row in table.to_dict("records"):
                _point(axis, labels.index(row["label"]), row, name)
            axis.set_xlabel(unit)
            axis.grid(False, axis="y")
        if "Pneumonia" in set(table["use_case"]):
            for name, value in published.items():
                axes[-1].plot(value, len(labels), **PUBLISHED)
                below = {"xytext": (0, -7), "textcoords": "offset points", "ha": "center", "va": "top"}
                axes[-1].annotate(name.split()[0], (value, len(labels)), fontsize=7, color=GREY, **below)
            labels.append("published ConvLSTM\nthreshold and images not stated")
        axes[0].set_yticks(range(len(labels)), labels)
        axes[0].set_ylim(len(labels) - 0.4, -0.6)
        handles = [
            Line2D([], [], linestyle="-", marker=marker, color=colour, label=rule)
            for rule, (colour, marker, _) in _MARKS.items()
            if rule in set(table.get("rule", ()))
        ]
        handles.append(Line2D([], [], **PUBLISHED, label="published (data, model parallel)"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _label(row: Mapping[str, Any]) -> str:
    kept = [part for part in row["setting"].split(", ") if not part.startswith(("batch", "learning"))]
    return f"{NETWORKS.get(row['network'], row['network'])}\n{row['use_case']}, {', '.join(kept)}"


def _point(axis: Any, y: int, row: Mapping[str, Any], name: str) -> None:
    if row["status"] != "ok":
        note(axis, y, str(row["reason"]))
        return
    if name == "auc" and row["rule"] != AS_TRAINED:
        return  # no threshold changes how images are ranked
    colour, marker, offset = _MARKS[row["rule"]] if name != "auc" else ("0.25", "D", 0.0)
    error = [[row[name] - row[f"{name}_low"]], [row[f"{name}_high"] - row[name]]]
    axis.errorbar(row[name], y + offset, xerr=error, marker=marker, color=colour, capsize=3, zorder=3)
