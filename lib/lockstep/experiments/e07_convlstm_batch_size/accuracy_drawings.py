"""Accuracy, generalisation gap and training time against batch size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.figures.style import (
    GREY,
    PALETTE,
    PUBLISHED,
    StoredFigure,
    colour,
    empty,
    interval_points,
    label,
    line_between,
    look,
    marker,
    new_figure,
    strip,
)
from lockstep.analysis.published import read_claims
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import equal_updates

NETWORKS: Mapping[str, str] = {"cnn": "CNN", "convlstm": "ConvLSTM (CNN → LSTM)", "convlstm2d": "ConvLSTM2D"}
NOTHING = "no records of this experiment"
_STRATEGY_OF: Mapping[str, str] = {"data parallel": "processes", "model parallel": "gpipe", "sequential": "sequential"}
"""The strategy that stands for a way to train."""
_AVERAGED = ("algorithm_1", "algorithm_1_best", "algorithm_1_epochwise", "local_sgd", "epochwise")
# Name of a line -> colour and marker; published numbers are hollow grey diamonds.
_LINES: Mapping[str, tuple[Any, str]] = {
    **{name: (colour(strategy), marker(strategy)) for name, strategy in _STRATEGY_OF.items()},
    **{label(strategy): (colour(strategy), marker(strategy)) for strategy in _AVERAGED},
    "TensorFlow": (PALETTE[2], "^"),
    "linear rule": (PALETTE[4], "v"),
    "equal updates": ("0.25", "P"),
}
_OTHER = (PALETTE[7], "*")


def accuracy_lines(
    table: pd.DataFrame, title: str, published: Mapping[str, float] | None = None, footnote: str = ""
) -> StoredFigure:
    """Mean test accuracy over seeds against the global batch size (`seed_accuracy_table`).

    A row of panels per use case, a column per network. `published`: name -> accuracy (%), for which the paper states no
    batch size; drawn beside the ConvLSTM of Pneumonia. What was trained for a number of updates is one line with what
    made as many updates in whole epochs. `footnote`: what makes an interval wide.
    """
    return _batch_panels(table, f"{title}\n{footnote}".strip(), "accuracy", "test accuracy (%)", published)


def published_accuracies() -> dict[str, float]:
    """The abstract's two accuracies (%), by the way of training."""
    values = read_claims().set_index("id")["value"]
    return {f"{way} parallel": float(values[f"cla-{way}-accuracy"]) for way in ("data", "model")}


def gap_lines(table: pd.DataFrame, title: str) -> StoredFigure:
    """Train minus test accuracy against the global batch size."""
    return _batch_panels(table, title, "gap", "train minus test accuracy (points)")


def _batch_panels(
    table: pd.DataFrame, title: str, measure: str, unit: str, published: Mapping[str, float] | None = None
) -> StoredFigure:
    ok = table[table[measure].notna()] if len(table) else table
    if ok.empty:
        return empty(title, NOTHING)
    cases, networks = list(dict.fromkeys(ok["use_case"])), [name for name in NETWORKS if name in set(ok["network"])]
    networks += sorted(set(ok["network"]) - set(networks))
    with look():
        figure = new_figure(1.2 + 3.6 * max(len(networks), 2), 1.4 + 2.9 * len(cases))
        figure.suptitle(title)
        axes = figure.subplots(len(cases), len(networks), squeeze=False, sharey=True)
        drawn: dict[str, None] = {}
        for line, case in zip(axes, cases, strict=True):
            for axis, network in zip(line, networks, strict=True):
                rows = ok[(ok["use_case"] == case) & (ok["network"] == network)]
                drawn |= dict.fromkeys(_batch_panel(axis, rows, measure))
                axis.set_title(_panel_title(network, case, rows), loc="left")
                if published and (case, network) == ("Pneumonia", "convlstm"):
                    _beside(axis, published)
            line[0].set_ylabel(f"{unit}\nmean over seeds, 95 % interval")
        if measure == "accuracy":  # no share lies beyond; an interval's end at 0 or 100 is seen
            low, high = axes[0][0].get_ylim()
            axes[0][0].set_ylim(max(low, -1.0), min(high, 101.0))
        handles = [_handle(name) for name in drawn]
        if published:
            handles.append(Line2D([], [], **PUBLISHED, label="published (data, model parallel), batch not stated"))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panel_title(network: str, case: str, rows: pd.DataFrame) -> str:
    source = " and ".join(sorted(rows["data_source"].unique()))
    return f"{NETWORKS.get(network, network)}\n{case}, {f'{source} images' if source else 'not measured'}"


def _handle(name: str) -> Line2D:
    line_colour, mark = _LINES.get(name, _OTHER)
    return Line2D([], [], linestyle="none", marker=mark, color=line_colour, label=name)


def _series(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The lines of a panel by name."""
    plain = rows[(rows["updates"] == 0) & (rows["rule"] == "constant")]
    torch = plain[plain["framework"] == "torch"]
    found = {name: torch[torch["way"] == name] for name in ("data parallel", "model parallel", "sequential")}
    found["TensorFlow"] = plain[plain["framework"] == "tensorflow"]
    found["linear rule"] = rows[rows["rule"] != "constant"]
    averaged = torch[torch["way"] == "weights averaged"]
    found |= {label(str(name)): own for name, own in averaged.groupby("strategy", sort=False)}
    for updates in sorted(set(rows["updates"]) - {0}, reverse=True)[:1]:
        same = equal_updates(rows, int(updates))
        found["equal updates"] = same[(same["framework"] == "torch") & (same["way"] == "data parallel")]
    return {name: own.sort_values("global_batch_size") for name, own in found.items() if len(own)}


def _batch_panel(axis: Axes, rows: pd.DataFrame, measure: str) -> list[str]:
    series = _series(rows)
    for name, own in series.items():
        line_colour, mark = _LINES.get(name, _OTHER)
        own = own.drop_duplicates("global_batch_size")
        columns = (measure, f"{measure}_low", f"{measure}_high")
        aside = own["global_batch_size"].map(lambda size, name=name: _aside(series, name, size))
        style = {"marker": mark, "color": line_colour, "linestyle": line_between(len(own))}
        interval_points(axis, aside, own, columns, linewidth=1.2, **style)
    _batch_axis(axis, rows["global_batch_size"])
    return list(series)


def _aside(series: Mapping[str, pd.DataFrame], name: str, size: int) -> float:
    """Where a mark stands: around its batch size and never on top of another one, at it where it is alone."""
    among = [each for each, own in series.items() if size in set(own["global_batch_size"])]
    return float(size * 1.12 ** (among.index(name) - (len(among) - 1) / 2))


def _batch_axis(axis: Axes, batches: pd.Series) -> None:
    sizes = sorted(int(size) for size in batches.unique())
    axis.set_xlabel("global batch size (log scale)")
    if not sizes:
        return
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(sizes[0] / 1.7, sizes[-1] * 1.7)


def _beside(axis: Axes, published: Mapping[str, float]) -> None:
    """Numbers without a batch size, at the right of all that have one."""
    left, right = axis.get_xlim()
    width = max(2.0, 0.45 * math.log2(right / left))  # of what is added, in powers of two: room for the numbers
    axis.set_xlim(right=right * 2**width)
    strip(axis, right * 2 ** (0.08 * width), "batch not stated")
    # Side by side, each with its number below: four points apart, two diamonds above each other would touch.
    for place, (name, value) in enumerate(published.items()):
        at = right * 2 ** (width * (0.15 + 0.85 * (place + 0.5) / len(published)))
        axis.plot(at, value, **PUBLISHED)
        axis.annotate(f"{value:.1f} %\n({name.split()[0]})", (at, value), xytext=(0, -9), ha="center", va="top",
                      textcoords="offset points", fontsize=7, color=GREY)  # fmt: skip


def time_lines(table: pd.DataFrame, title: str) -> StoredFigure:
    """Seconds of ten epochs at the speed that was timed, against the global batch size (`speed_table`): a row of
    panels per use case, a column per network, a mark per strategy; TensorFlow's are hollow."""
    ok = table[table["training_seconds"].notna() & (table["variant"] == "a")] if len(table) else table
    ok = ok[(ok["dropout"] == 0) & (ok["weight_decay"] == 0)] if len(ok) else ok
    if ok.empty:
        return empty(title, NOTHING)
    cases, networks = list(dict.fromkeys(ok["use_case"])), list(dict.fromkeys(ok["network"]))
    with look():
        figure = new_figure(1.2 + 3.6 * max(len(networks), 2), 2.0 + 3.2 * len(cases))
        figure.suptitle(title)
        axes = figure.subplots(len(cases), len(networks), squeeze=False, sharey="row")
        handles: dict[str, Line2D] = {}
        for (case, network), axis in zip(itertools.product(cases, networks), axes.flat, strict=True):
            rows = ok[(ok["use_case"] == case) & (ok["network"] == network)]
            _time_panel(axis, rows, handles)
            axis.set_title(_panel_title(network, case, rows), loc="left")
        for line in axes[:, 0]:
            of = f"95 % interval of {MIN_ROUNDS} rounds or more"
            line.set_ylabel(f"seconds of 10 epochs, geometric mean\n(log scale; {of})")
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _time_panel(axis: Axes, rows: pd.DataFrame, handles: dict[str, Line2D]) -> None:
    cells = list(rows.groupby(["strategy", "framework"], sort=False))
    for place, ((strategy, framework), own) in enumerate(cells):
        style: dict[str, Any] = {"marker": marker(str(strategy)), "color": colour(str(strategy)), "linewidth": 1.2}
        style |= {"linestyle": line_between(own["global_batch_size"].nunique())}
        style |= {} if framework == "torch" else {"markerfacecolor": "white"}
        own = own.sort_values("global_batch_size")
        columns = ("training_seconds", "training_seconds_low", "training_seconds_high")
        aside = own["global_batch_size"] * 1.05 ** (place - (len(cells) - 1) / 2)
        interval_points(axis, aside, own, columns, **style)
        name = label(str(strategy)) + ("" if framework == "torch" else ", TensorFlow")
        handles.setdefault(name, Line2D([], [], label=name, **style))
    _batch_axis(axis, rows["global_batch_size"])
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
