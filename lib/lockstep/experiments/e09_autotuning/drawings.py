"""Figures of notebook 09: learning curves, pruners, forecasts, the ladder, importances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.figures.style import GREY, PALETTE, StoredFigure, empty, look, new_figure
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool

NOTHING = "too few settings were trained to the end yet"
_WHISKERS = " (whiskers: 95 % intervals)"
PRUNER_MARKS: Mapping[str, tuple[Any, str]] = {
    "none": (GREY, "X"),
    "Median": (PALETTE[1], "s"),
    "Percentile 25": (PALETTE[1], "v"),
    "Patient(Median)": (PALETTE[1], "X"),
    "SuccessiveHalving 2": (PALETTE[2], "<"),
    "SuccessiveHalving 4": (PALETTE[2], ">"),
    "Hyperband": (PALETTE[2], "h"),
    "LSTM": (PALETTE[0], "o"),
    "halving on LSTM forecasts": (PALETTE[0], "*"),
    "LSTM, not pre-trained": (PALETTE[0], "P"),
    "LSTM, not recalibrated": (PALETTE[0], "p"),
    "gain rule": (PALETTE[3], "^"),
}
"""Color and mark by pruner: one color for each family."""
FORECASTER_MARKS: Mapping[str, tuple[str, Any, str]] = {
    "last": ("last value", GREY, "X"),
    "best": ("best so far", "0.2", "s"),
    "gain": ("best so far + usual gain", PALETTE[3], "^"),
    "power": ("power law", PALETTE[2], "v"),
    "lstm": ("LSTM", PALETTE[0], "o"),
    "lstm_not_pretrained": ("LSTM, not pre-trained", PALETTE[1], "P"),
    "lstm_not_recalibrated": ("LSTM, not recalibrated", PALETTE[4], "p"),
    "lstm_refitted": ("LSTM, refitted", PALETTE[5], "*"),
}
HELD = 0.9
"""Of the intervals of forecasts."""


def learning_curves(pool: StoredPool | None, drawn: int, title: str) -> StoredFigure:
    """Every curve of the pool; the best `drawn` are named."""
    if pool is None or pool.whole.empty:
        return empty(title, NOTHING)
    values, epochs = pool.values(), range(1, pool.epochs + 1)
    places = {number: place for place, number in enumerate(pool.whole.index)}
    with look():
        figure = new_figure(8, 4.6)
        axis = figure.subplots()
        axis.plot(epochs, values.T, color=GREY, linewidth=0.8, alpha=0.45)
        for number, hue in zip(pool.best(drawn), PALETTE, strict=False):
            axis.plot(epochs, values[places[number]], color=hue, linewidth=2, label=f"setting {number}")
        axis.set_title(title)
        axis.set_xlabel("epochs")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel("score: exp(-cross-entropy) of held-out images")
        axis.set_xlim(1, pool.epochs)
        handles = [*axis.get_legend_handles_labels()[0], Line2D([], [], color=GREY, label="the others")]
        axis.legend(handles=handles, loc="lower right", fontsize="small")
    return figure


def frontier_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Compute against the share of studies that keep the best setting; filled: nothing has less and more. Intervals
    stand where the orders amount to enough studies for any."""
    if table.empty:
        return empty(title, NOTHING)
    with look():
        figure = new_figure(9, 4.8)
        axis = figure.subplots()
        for row in table.to_dict("records"):
            hue, mark = PRUNER_MARKS[row["compared"]]
            error = None
            if row["effective"] >= MIN_ROUNDS:
                error = [[row["kept"] - row["kept_low"]], [row["kept_high"] - row["kept"]]]
            axis.errorbar(
                row["share_of_epochs"], row["kept"], yerr=error, color=hue, marker=mark, linestyle="none", markersize=8,
                markerfacecolor=hue if row["on_frontier"] else "white", elinewidth=1, label=row["compared"],
            )  # fmt: skip
        axis.set_title(title)
        axis.set_xlabel("epochs trained / epochs without pruning")
        axis.set_ylabel("studies that keep the best setting" + _WHISKERS * int(table["effective"].max() >= MIN_ROUNDS))
        axis.set_xlim(0, 1.04)
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter(PercentFormatter(1))
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def course_lines(table: pd.DataFrame, title: str) -> StoredFigure:
    """How far the best finished setting is below the best of the study, by the epochs trained until then."""
    if table.empty:
        return empty(title, NOTHING)
    with look():
        figure = new_figure(8, 4.4)
        axis = figure.subplots()
        for name, own in table.groupby("compared", sort=False):
            hue, mark = PRUNER_MARKS[str(name)]
            axis.plot(own["spent"], own["regret"], color=hue, marker=mark, markevery=4, markersize=5, label=name)
        axis.set_yscale("log")
        axis.set_title(title)
        axis.set_xlabel("epochs trained / epochs of the whole study without pruning")
        axis.set_ylabel("score below the study's best")
        axis.xaxis.set_major_formatter(PercentFormatter(1))
        axis.set_xlim(0, 1)
        axis.legend(fontsize="small")
    return figure


def forecast_panels(table: pd.DataFrame, title: str) -> StoredFigure:
    """Errors over best-so-far's, and how many curves end within the 90 % interval, by the epochs seen."""
    if table.empty:
        return empty(title, NOTHING)
    names = [name for name in FORECASTER_MARKS if (table["forecaster"] == name).any()]
    with look():
        figure = new_figure(10.5, 4.4)
        errors, covered = figure.subplots(1, 2)
        figure.suptitle(title)
        for name in names:
            own = table[table["forecaster"] == name]
            known = own[own["relative"].notna()]
            _forecaster_line(errors, known, name, "relative")
            _forecaster_line(covered, own, name, "covered")
        errors.axhline(1, color="0.2", linewidth=1)
        errors.set_ylabel("mean absolute error / best-so-far's")
        covered.axhline(HELD, color="0.2", linewidth=1)
        covered.set_ylabel(f"curves that end within the {100 * HELD:g} % interval")
        covered.yaxis.set_major_formatter(PercentFormatter(1))
        for axis in (errors, covered):
            axis.set_xlabel(f"epochs seen{_WHISKERS}")
            axis.set_xscale("log", base=2)
            axis.set_xticks(sorted(table["epoch"].unique()), [f"{each}" for each in sorted(table["epoch"].unique())])
        figure.legend(handles=[_forecaster_handle(name) for name in names], loc="outside lower center", ncols=4)
    return figure


def _forecaster_line(axis: Axes, own: pd.DataFrame, name: str, value: str) -> None:
    _, hue, mark = FORECASTER_MARKS[name]
    spread = np.abs(own[[f"{value}_low", f"{value}_high"]].to_numpy().T - own[value].to_numpy())
    shift = 2 ** (0.03 * (list(FORECASTER_MARKS).index(name) - 3.5))
    axis.errorbar(
        own["epoch"] * shift, own[value], yerr=spread, color=hue, marker=mark, markersize=5, elinewidth=0.8, linewidth=1
    )


def _forecaster_handle(name: str) -> Line2D:
    text, hue, mark = FORECASTER_MARKS[name]
    return Line2D([], [], color=hue, marker=mark, label=text)


def ladder_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """A row per step: accuracy on test images and on held-out ones, means over seeds."""
    if table.empty:
        return empty(title, "no step was trained yet")
    with look():
        figure = new_figure(8, 1.6 + 0.55 * len(table))
        axis = figure.subplots()
        for shift, hue, (column, mark, text) in zip((-0.12, 0.12), PALETTE, _SPLITS, strict=False):
            spread = np.abs(table[[f"{column}_low", f"{column}_high"]].to_numpy().T - table[column].to_numpy())
            places = np.arange(len(table)) + shift
            axis.errorbar(table[column], places, xerr=spread, marker=mark, linestyle="none", label=text, color=hue)
        steps = [f"{row.step}, {row.epochs} epochs, seeds: {row.seeds}" for row in table.itertuples()]
        axis.set_yticks(range(len(table)), steps)
        axis.invert_yaxis()
        axis.set_title(title)
        axis.set_xlabel(f"accuracy, %{_WHISKERS}")
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


_SPLITS: Sequence[tuple[str, str, str]] = (("test", "o", "test images"), ("validation", "s", "held-out images"))


def engine_points(table: pd.DataFrame, title: str) -> StoredFigure:
    """Seconds of the list of trials in each round, by the number of engines (`studies`)."""
    if table.empty:
        return empty(title, "the list of trials was not timed yet")
    numbers = sorted(int(number) for number in table["engines"].unique())
    with look():
        figure = new_figure(7, 1.5 + 0.6 * len(numbers))
        axis = figure.subplots()
        for place, number in enumerate(numbers):
            own = table.loc[table["engines"] == number, "seconds"]
            axis.plot(own, [place] * len(own), color=PALETTE[0], marker="o", linestyle="none", alpha=0.5)
            axis.plot(own.median(), place, color="0.1", marker="|", markersize=22, linestyle="none")
        axis.set_yticks(range(len(numbers)), [f"{number} engine{'s' * (number > 1)}" for number in numbers])
        axis.set_ylim(len(numbers) - 0.5, -0.5)
        axis.set_xlim(0, None)
        axis.set_title(title)
        axis.set_xlabel(f"seconds for {int(table['trials'].iloc[0])} trials (a mark per round, a line at the median)")
    return figure


def importance_bars(table: pd.DataFrame, title: str) -> StoredFigure:
    """A bar per entry of the space, longest first, with the interval over subsamples of the trials."""
    if table.empty:
        return empty(title, NOTHING)
    own = table.sort_values("importance", ascending=False)
    spread = np.abs(own[["low", "high"]].to_numpy().T - own["importance"].to_numpy())
    with look():
        figure = new_figure(7.5, 1.4 + 0.34 * len(own))
        axis = figure.subplots()
        names = [str(name).replace("_", " ") for name in own["name"]]
        axis.barh(names, own["importance"], xerr=spread, color=PALETTE[0], error_kw={"elinewidth": 1})
        axis.invert_yaxis()
        axis.set_title(title)
        axis.set_xlabel("share of the importance (PED-ANOVA; whiskers: 95 % of subsamples)")
        axis.set_xlim(0, None)
    return figure
