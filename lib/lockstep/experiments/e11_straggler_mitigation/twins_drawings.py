"""The figure, the finding and the targets of real ranks beside the simulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.figures.style import GREY, empty, look, new_figure
from lockstep.analysis.sentences import counted, finding, listed, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_MOST, MISSING, Read, Reading, Target
from lockstep.analysis.verdicts import NOT_YET, NotNow
from lockstep.experiments.e11_straggler_mitigation.drawings import policy_colour
from lockstep.experiments.e11_straggler_mitigation.twins import judged, order_table, total_error, twins_table

TITLE = "The simulator against real ranks: the same policy, the same delays, two clocks"
MEDIAN, NINETIETH, TOTAL = 0.03, 0.08, 0.05
"""The errors that we allow: of half of all cells, of nine in ten, and of all their time together."""
_MARKERS = "osp^vP*X"


def simulator_figure(stored: Stored) -> Figure:
    """Simulated against measured seconds of an update, a colour per policy and a marker per number of workers; below,
    the error of each."""
    table = twins_table(stored)
    own = judged(table)
    if own.empty:
        return empty(TITLE, "no cells of real ranks beside those of the calibration are stored")
    with look():
        figure = new_figure(8.5, 4.6)
        left, right = figure.subplots(1, 2)
        figure.suptitle(TITLE)
        workers = sorted(own["workers"].unique())
        for policy in dict.fromkeys(own["contender"]):
            for which, count in enumerate(workers):
                rows = own[(own["contender"] == policy) & (own["workers"] == count)]
                style = {
                    "color": policy_colour(policy), "marker": _MARKERS[which % len(_MARKERS)],
                    "linestyle": "none", "markersize": 5, "alpha": 0.85,
                }  # fmt: skip
                left.plot(rows["measured_seconds"], rows["simulated_seconds"], **style)
                right.plot(rows["measured_seconds"], 100 * rows["error"], **style)
        _scatter_axes(left, own["measured_seconds"].min(), own["measured_seconds"].max())
        _error_axes(right)
        _legend(figure, list(dict.fromkeys(own["contender"])), [int(count) for count in workers])
    return figure


def _scatter_axes(axis: Axes, low: float, high: float) -> None:
    axis.plot([low, high], [low, high], color=GREY, linewidth=1, zorder=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("measured on real ranks (s per update)")
    axis.set_ylabel("simulated (s per update)")


def _error_axes(axis: Axes) -> None:
    axis.axhspan(-100 * MEDIAN, 100 * MEDIAN, color=GREY, alpha=0.15, linewidth=0)
    axis.axhline(0, color=GREY, linewidth=1)
    axis.set_xscale("log")
    axis.set_xlabel("measured on real ranks (s per update)")
    axis.set_ylabel("error of the simulator (%)")


def _legend(figure: Figure, policies: list[str], workers: list[int]) -> None:
    handles = [Line2D([], [], color=policy_colour(name), marker="o", linestyle="none", label=name) for name in policies]
    handles += [
        Line2D([], [], color=GREY, marker=_MARKERS[which % len(_MARKERS)], linestyle="none", label=f"{count} workers")
        for which, count in enumerate(workers)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


def _errors(stored: Stored) -> np.ndarray:
    """Absolute errors of the judged cells. Raises NotNow where there are none."""
    own = judged(twins_table(stored))
    if own.empty:
        raise NotNow(NOT_YET, "no cells of real ranks beside those of the calibration are stored")
    return own["error"].abs().to_numpy()


def _message(stored: Stored) -> str:
    errors = _errors(stored)
    return (
        f"half of {counted(len(errors), 'cell')} within {100 * np.median(errors):.1f} %, "
        f"nine in ten within {100 * np.quantile(errors, 0.9):.1f} %"
    )


@finding
def simulator_finding(stored: Stored) -> str:
    """The simulator's errors, and whether it has policies in another order than real ranks have."""
    message, total = _message(stored), total_error(twins_table(stored))  # the first says so where nothing is stored
    others = counted(int(twins_table(stored)["calibrated"].sum()), "other cell")
    side = "above" if total > 0 else "below"
    of_time = f"the sum of simulated times is {abs(100 * total):.1f} % {side} the measured"
    first = f"{sentence(f'calibrated on {others}, the simulator predicts {message}')} {sentence(of_time)}"
    first += _where_off(judged(twins_table(stored)))
    order = order_table(stored)
    if order.empty:
        few, many = (int(judged(twins_table(stored))["rounds"].agg(name)) for name in ("min", "max"))
        rounds = counted(few, "round") if few == many else f"{few} to {many} rounds"
        return (
            f"{first} Each was measured in {rounds}, so an error holds the scatter of that measurement, too, and no "
            "two policies are told apart: whether the simulator has them in the order of real ranks is not judged yet."
        )
    wrong = int((~order["same_order"].astype(bool)).sum())
    pairs = counted(len(order), "pair")
    same = "all in their order" if not wrong else f"all but {counted(wrong, 'pair')} in their order"
    return f"{first} " + sentence(f"of {pairs} of policies that real ranks tell apart, the simulator ranks {same}")


def _where_off(table: pd.DataFrame) -> str:
    """Which policies' cells are further off than nine in ten should be, by how much, and with how many workers."""
    off = table[table["error"].abs() > NINETIETH]
    if off.empty:
        return ""
    parts = []
    for contender, own in off.groupby("contender", sort=False):
        furthest = own.loc[own["error"].abs().idxmax(), "error"]
        size = f"{100 * abs(furthest):.0f} % {'below' if furthest < 0 else 'above'}"
        parts.append(f"{contender}, up to {size}, with {listed([str(each) for each in sorted(set(own['workers']))])}")
    number, where = counted(len(off), "cell"), "; ".join(parts)
    verb = "is" if len(off) == 1 else "are"
    return f" {sentence(f'{number} {verb} more than {100 * NINETIETH:g} % off ({where} workers)')}"


Floats = NDArray[np.float64]
RESAMPLED = 1000


def _quantile(which: float, measured: Floats, simulated: Floats) -> Floats:
    return np.asarray(np.quantile(np.abs(simulated / measured - 1), which, axis=1))


def _total(measured: Floats, simulated: Floats) -> Floats:
    return np.asarray(np.abs(simulated.sum(axis=1) / measured.sum(axis=1) - 1))


def _over_cells(compute: Callable[[Floats, Floats], Floats]) -> Read:
    """Reads what `compute` finds in seconds [draws, cells], with a bootstrap interval over the cells: they are a sample
    of policies, delays and numbers of workers, and each has its own error."""

    def read(stored: Stored) -> Reading:
        own = judged(twins_table(stored))
        if own.empty:
            return Reading(word=NOT_YET, reason=MISSING)
        measured, simulated = (
            (own[name] * own["steps"]).to_numpy(float) for name in ("measured_seconds", "simulated_seconds")
        )
        drawn = np.random.default_rng(0).integers(len(own), size=(RESAMPLED, len(own)))
        low, high = np.quantile(compute(measured[drawn], simulated[drawn]), (0.025, 0.975))
        value = float(compute(measured[None], simulated[None])[0])
        found = Estimate(value, float(low), float(high), len(own), logarithmic=False)
        return Reading(found, reason=f"over {len(own)} cells that calibrated nothing")

    return read


TWIN_TARGETS: tuple[Target, ...] = (
    Target(
        "simulator, error of a cell's mean step: half of the cells", MEDIAN, _over_cells(partial(_quantile, 0.5)),
        AT_MOST,
    ),
    Target(
        "simulator, error of a cell's mean step: nine in ten cells", NINETIETH, _over_cells(partial(_quantile, 0.9)),
        AT_MOST,
    ),
    Target("simulator, error of the time of all cells", TOTAL, _over_cells(_total), AT_MOST),
)  # fmt: skip
