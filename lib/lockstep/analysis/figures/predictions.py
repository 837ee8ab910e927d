"""Bars of measured step times with predicted ones across them: shared by notebooks 03 and 04."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.figures.bars import side_texts
from lockstep.analysis.figures.messages import use_case_title
from lockstep.analysis.figures.style import SIMULATED, StoredFigure, colour, empty, label, look, note, panels


def prediction_bars(table: pd.DataFrame, title: str, names: list[str] | None = None) -> StoredFigure:
    """Measured step times (medians) as bars, and dotted lines at so many times them as predictions are of the step of
    their own round (`prediction_table`, `cost_table`). `names`: each row's label; None: schedule, ranks, micro-batches.
    """
    if not len(table) or not (table["step_seconds"].notna() & (table["variant"] == "a")).any():
        return empty(title, "no records of this experiment")
    table = table.assign(text=names if names is not None else [cell_name(row) for row in table.to_dict("records")])
    shown = table[table["step_seconds"].notna() & (table["variant"] == "a")]
    shown = shown.drop_duplicates(["use_case", "text"])  # of cells that several experiments hold, the first one's
    with look():
        use_cases = list(dict.fromkeys(shown["use_case"]))
        figure, axes = panels(len(use_cases), len(shown))
        figure.suptitle(title)
        for axis, name in zip(axes, use_cases, strict=True):
            own = shown[shown["use_case"] == name].reset_index(drop=True)
            _prediction_panel(axis, own)
            axis.set_title(use_case_title(name, own), loc="left")
        axes[-1].set_xlabel("seconds per step")
        handles: list[Any] = [Patch(facecolor="0.75", label="measured (in its strategy's colour)")]
        predicted = "predicted (times the measured step, paired by round)"
        handles.append(Line2D([], [], color="0.1", linewidth=2, label=predicted, **SIMULATED))
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _prediction_panel(axis: Axes, own: pd.DataFrame) -> None:
    axis.barh(
        range(len(own)), own["step_seconds"], height=0.6, color=[colour(name) for name in own["strategy"]], zorder=2
    )
    for y, row in enumerate(own.itertuples()):
        if np.isfinite(row.ratio):
            line = {"color": "0.1", "linewidth": 2, "linestyle": SIMULATED["linestyle"], "zorder": 5}
            axis.vlines(row.step_seconds * row.ratio, y - 0.42, y + 0.42, **line)
        else:
            note(axis, y + 0.28, row.reason or "not predicted")
    texts = [f"{row.step_seconds:.3g} s measured" + _predicted_text(row) for row in own.itertuples()]
    side_texts(axis, own["step_seconds"], texts)
    axis.set_yticks(range(len(own)), own["text"])
    axis.set_ylim(len(own) - 0.4, -0.6)
    axis.grid(False, axis="y")


def _predicted_text(row: Any) -> str:
    return f", predicted {row.ratio:.3g} times as long" if np.isfinite(row.ratio) else ""


def cell_name(row: dict[Any, Any]) -> str:
    """The name of a pipeline's row: its schedule, ranks, and whatever else distinguishes it from the others."""
    parts = [label(str(row["strategy"])), f"M = {row['micro_batches']}"]
    parts += [f"{row['pipeline_ranks']} ranks"] if row.get("pipeline_ranks", 2) != 2 else []
    parts += [str(row["partition"]).replace("_", " ")] if row["partition"] not in ("balanced", "none") else []
    parts += ["recomputed"] if row["activations"] == "recomputed" else []
    return ", ".join(parts)
