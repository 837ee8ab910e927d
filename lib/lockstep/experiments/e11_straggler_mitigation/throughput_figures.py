"""Figures of time alone: mitigation, its bounds, stages of a straggler, scale, and cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.analysis.figures.style import GREY, PALETTE, PUBLISHED, empty, look, new_figure
from lockstep.analysis.stored import Stored
from lockstep.experiments.e11_straggler_mitigation.bounds import PUBLISHED as PUBLISHED_SHARE
from lockstep.experiments.e11_straggler_mitigation.bounds import capacity_bound, whole_images_bound
from lockstep.experiments.e11_straggler_mitigation.contenders import CONTENDERS, DPRO_READINGS
from lockstep.experiments.e11_straggler_mitigation.drawings import (
    MEAN,
    heat_map,
    line_legend,
    lines_by,
    name_rows,
    plain_log,
    points,
    rows_figure,
    way_legend,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import BOUND, mitigation_table, scale_table, stage_table
from lockstep.experiments.e11_straggler_mitigation.prices import node_price, redundancy_table, table2

_TIMES = ("times_undelayed", "times_undelayed_low", "times_undelayed_high")
SHARES, SLOWER = (8, 32, 128), (1.5, 2.0, 3.0)
"""Images of a share, and factors of slow nodes, whose bounds are drawn."""


def mitigation_figure(stored: Stored) -> Figure:
    """Figure 3: mitigation by policy and kind (%), means over seeds."""
    title = "Figure 3: how much of the delay is mitigated, in % (simulated)"
    table = mitigation_table(stored)
    if table.empty:
        return empty(title, "no policies were simulated yet")
    values = 100 * table.pivot(index="contender", columns="kind", values="mitigation")
    names = [name for name in (BOUND, *CONTENDERS) if name in values.index]
    values = values.loc[names, list(dict.fromkeys(table["kind"]))]
    values["mean of all"] = values.mean(axis=1, skipna=False)
    with look():
        figure = rows_figure(len(names), 10.5, 2.0)
        axis = figure.subplots()
        heat_map(axis, values, (-50.0, 100.0), framed=100 * PUBLISHED_SHARE, scale="mitigated (%)")
        name_rows(axis, names, DPRO_READINGS)
        figure.suptitle(title)
        frame = Patch(fill=False, edgecolor=PALETTE[3], linewidth=1.8, label="98 % or more, as published for DPro-SM")
        way_legend(figure, names, frame)
    return figure


def bounds_figure(stored: Stored) -> Figure:
    """What one slow node leaves possible, by number of workers: arithmetic."""
    del stored
    counts = np.unique(np.geomspace(2, 256, 60).round().astype(int))
    with look():
        figure = new_figure(9.5, 4.6)
        left, right = figure.subplots(1, 2, sharey=True)
        for place, slower in enumerate(SLOWER):
            line = [100 * capacity_bound(int(n), slower) for n in counts]
            left.plot(counts, line, color=PALETTE[place], linewidth=1.5, label=f"{slower:g} times slower")
        left.set_title("capacity: any division of the work", loc="left")
        for place, share in enumerate(SHARES):
            line = [100 * whole_images_bound(int(n), share, 2.0) for n in counts]
            right.plot(counts, line, color=PALETTE[place], linewidth=1.5, label=f"shares of {share} images")
        right.set_title("whole images: one node twice as slow", loc="left")
        for axis in (left, right):
            published = axis.axhline(100 * PUBLISHED_SHARE, color=GREY, linestyle="--", linewidth=1.2)
            axis.set_xscale("log", base=2)
            axis.set_xticks([2, 4, 8, 16, 32, 64, 128, 256], ["2", "4", "8", "16", "32", "64", "128", "256"])
            axis.set_xlabel("workers, one of them slow")
            axis.set_ylim(60, 101)
            axis.legend(loc="lower right", frameon=False)
        left.set_ylabel("at most mitigated (%)")
        figure.suptitle("Where 98 % is possible at all without a further node (arithmetic)")
        told = f"published: {100 * PUBLISHED_SHARE:.0f} %, of how many workers is not said"
        figure.legend([published], [told], loc="outside lower center", frameon=False)
    return figure


def stages_figure(stored: Stored) -> Figure:
    """Figure 5: seconds per image over those without delays, by when and how a straggler is dealt with."""
    title = "Figure 5: early, detected, forecast (simulated)"
    table = stage_table(stored)
    if table.empty:
        return empty(title, "no policies were simulated under delays that last")
    kinds = list(dict.fromkeys(table["kind"]))
    with look():
        figure = rows_figure(9, max(4.6 * len(kinds) + 2.4, 7.0))
        axes = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
        for axis, kind in zip(axes, kinds, strict=True):
            own = table[table["kind"] == kind].reset_index(drop=True)
            points(axis, own, _TIMES, color=PALETTE[0])
            name_rows(axis, own["stage"].tolist())
            for label in axis.get_yticklabels():
                label.set_color("0.1")
            axis.axvline(1, color="0.2", linewidth=1)
            axis.set_title(kind, loc="left")
            axis.set_xlabel("seconds per image / without delays")
            axis.set_xlim(left=0.95 * min(1.0, own["times_undelayed"].min(skipna=True)))
        figure.suptitle(title)
    return figure


def scale_figure(stored: Stored) -> Figure:
    """Seconds per image over those without delays, against the number of workers."""
    title = "From few workers to thousands (simulated)"
    table = scale_table(stored)
    if table.empty:
        return empty(title, "no numbers of workers were simulated yet")
    kinds, counts = list(dict.fromkeys(table["kind"])), sorted(set(table["workers"]))
    contenders = list(dict.fromkeys(table["contender"]))
    with look():
        figure = new_figure(max(4.6 * len(kinds), 7.0), 4.8)
        axes = figure.subplots(1, len(kinds), squeeze=False)[0]
        for axis, kind in zip(axes, kinds, strict=True):
            lines_by(axis, table[table["kind"] == kind], "workers", _TIMES, contenders, 0.16)
            axis.axhline(1, color="0.2", linewidth=1)
            axis.set_xscale("log")
            plain_log(axis, "y")
            axis.set_xticks(counts, [f"{count}" for count in counts])
            axis.set_xticks([], minor=True)
            axis.set_title(kind, loc="left")
            axis.set_xlabel("workers")
        axes[0].set_ylabel("seconds per image / without delays (log)")
        figure.suptitle(title)
        line_legend(figure, list(axes))
    return figure


def costs_figure(stored: Stored) -> Figure:
    """Mitigation beside what all nodes cost per hour, copies and standby nodes counted."""
    price = node_price(stored)
    title = f"What mitigation costs, at an assumed {price:g} USD per node and hour (simulated)"
    table = redundancy_table(stored)
    if table.empty:
        return empty(title, "no policies were simulated yet")
    printed = dict(zip(*(table2(stored)[name] for name in ("contender", "published_usd_per_hour")), strict=True))
    shown: Any = table.sort_values("mitigation", ascending=False, kind="stable").reset_index(drop=True)
    shown = shown.assign(**{name: 100 * shown[name] for name in shown if name.startswith("mitigation")})
    published = pd.Series([printed.get(name, np.nan) for name in shown["contender"]])
    with look():
        figure = rows_figure(len(shown), 10.0, 2.0)
        left, right = figure.subplots(1, 2, sharey=True)
        points(left, shown, ("mitigation", "mitigation_low", "mitigation_high"), color=MEAN)
        left.set_xlabel("mitigated, mean over kinds (%; 95 % interval)")
        left.axvline(0, color="0.2", linewidth=1)
        points(right, shown, ("usd_per_hour", "usd_per_hour_low", "usd_per_hour_high"), color=MEAN)
        right.plot(published, range(len(shown)), **PUBLISHED)
        right.set_xlim(left=0)
        right.set_xlabel("USD per hour of all nodes")
        name_rows(left, shown["contender"].tolist(), DPRO_READINGS)
        right.grid(False, axis="y")
        figure.suptitle(title)
        way_legend(figure, shown["contender"].tolist(),
                   Line2D([], [], **PUBLISHED, label="published (Table 2), of unsaid nodes"))  # fmt: skip
    return figure
