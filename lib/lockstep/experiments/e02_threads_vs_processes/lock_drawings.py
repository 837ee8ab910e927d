"""Processes beside threads on one budget of cores: a row for each number of workers and images per step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lockstep.analysis.figures.style import PALETTE, ROW_INCHES, StoredFigure, empty, look, new_figure
from lockstep.analysis.sentences import counted

LOCK = "Processes over threads, which share one interpreter"
FEWEST_COUNTS = 3  # of workers that make a curve


def too_few_counts(table: pd.DataFrame, title: str) -> StoredFigure | None:
    """Instead of a curve through one or two points: that it is none."""
    counts = len(measured_counts(table))
    return empty(title, f"{counted(counts, 'number')} of workers make no curve") if 0 < counts < FEWEST_COUNTS else None


def measured_counts(table: pd.DataFrame) -> list[int]:
    """The numbers of workers that have a speedup."""
    known = table[table["speedup"].notna()] if len(table) else table
    return sorted(set(map(int, known["workers"]))) if len(known) else []


def lock_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Images/s of processes over those of threads with intervals (`gil_table`). With one worker both do the same, so
    that row is hollow: it is noise."""
    known = table[table["processes_over_threads"].notna()] if len(table) else table
    if known.empty:
        return empty(title, "no records of both threads and processes")
    with look():
        figure = new_figure(8.5, 1.9 + 1.2 * ROW_INCHES * len(known))
        axis = figure.subplots()
        labels = []
        for y, row in enumerate(known.to_dict("records")):
            ratio, noise = row["processes_over_threads"], row["workers"] == 1
            error = np.nan_to_num([[ratio - row["low"]], [row["high"] - ratio]])
            axis.errorbar(ratio, y, xerr=error, marker="o", capsize=3, color=PALETTE[0], zorder=3,
                          markerfacecolor="white" if noise else PALETTE[0])  # fmt: skip
            axis.text(1.01, y, f"{ratio:.3g}", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
            text = f"{counted(int(row['workers']), 'worker')}, {row['global_batch_size']} images per step"
            labels.append(f"{text}: noise" if noise else text)
        axis.axvline(1, color="0.2", linewidth=1)
        axis.set_yticks(range(len(labels)), labels)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.set_xscale("log")
        ticks = [0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 4.0]
        least, most = axis.get_xlim()
        inside = [tick for tick in ticks if least <= tick <= most]
        axis.set_xticks(inside, [f"{tick:g}" for tick in inside])
        axis.set_xticks([], minor=True)
        sides = "← threads are faster        processes are faster →"
        axis.set_xlabel(f"{sides}\nimages/s of processes / of threads (log scale; 95 % interval)")
        figure.suptitle(title)
    return figure
