"""The map of notebook 04: where a hybrid should pay, by the cost model alone."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from lockstep.analysis.figures.style import (
    GREY,
    PALETTE,
    SIMULATED,
    StoredFigure,
    batches_label,
    colour,
    empty,
    look,
    new_figure,
)

_KINDS = {
    "data": (colour("processes_allreduce"), "data parallel"),
    "model": (colour("1f1b"), "model parallel"),
    "hybrid": (PALETTE[9], "hybrid: stages x replicas"),
}
"""Their colours: those of the strategies that were measured, and one of no strategy of this notebook for both."""


def hybrid_map(table: pd.DataFrame, title: str, farthest_off: float | None = None) -> StoredFigure:
    """Predicted speedup over one device against the link's rate, for data parallel, model parallel and hybrid training:
    a row of panels per model, a column per number of ranks (`hybrid_map_table`). Nothing in it is measured.

    `farthest_off`: how many times too long or too short the model was at most where its steps were measured.
    """
    if table.empty:
        return empty(title, "no records to predict from")
    with look():
        use_cases, counts = list(dict.fromkeys(table["use_case"])), sorted(table["ranks"].unique())
        figure = new_figure(1.2 + 2.9 * len(counts), 1.5 + 2.5 * len(use_cases))
        axes = figure.subplots(len(use_cases), len(counts), squeeze=False, sharex=True, sharey="row")
        off = "" if farthest_off is None else f", by a model up to {farthest_off:.3g} times off on measured steps"
        about = f"all of it predicted{off}; {batches_label(table)}, a core of its own for each rank"
        figure.suptitle(f"{title}\n({about})")
        for across, name in zip(axes, use_cases, strict=True):
            own = table[table["use_case"] == name]
            for axis, ranks in zip(across, counts, strict=True):
                _map_panel(axis, own[own["ranks"] == ranks])
                axis.set_title(f"{name}, {ranks} ranks", loc="left", fontsize=9)
            across[0].set_ylabel("predicted speedup over one device")
            across[0].set_ylim(bottom=0)  # only now: it ends autoscaling for the whole row
        for axis in axes[-1]:
            axis.set_xlabel("link rate (bit/s)")
        handles = [
            Line2D([], [], color=paint, linewidth=2, label=f"{text}, predicted", **SIMULATED)
            for paint, text in _KINDS.values()
        ]
        handles.append(Line2D([], [], color=GREY, linewidth=6, alpha=0.35, label="rates at which the hybrid leads"))
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _map_panel(axis: Axes, own: pd.DataFrame) -> None:
    speeds = own.pivot(index="link_bits_per_second", columns="kind", values="predicted_speedup")
    shown = [kind for kind in _KINDS if kind in speeds]
    for kind in shown:
        axis.plot(speeds.index, speeds[kind], color=_KINDS[kind][0], linewidth=2, **SIMULATED)
    if "hybrid" in speeds:
        leads = speeds["hybrid"] > speeds.drop(columns="hybrid").max(axis=1).clip(lower=1.0)
        at = speeds.index.to_numpy(dtype=float)
        axis.fill_between(
            at, 0, 0.02, where=leads.to_numpy(), transform=axis.get_xaxis_transform(), color=GREY, alpha=0.35
        )
    axis.axhline(1, color="0.2", linewidth=1)
    axis.set_xscale("log")
