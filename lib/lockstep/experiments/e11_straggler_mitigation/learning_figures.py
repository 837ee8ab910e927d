"""Figures of training: time to loss, slow nodes, asynchronous rivals, stand-ins and partitions."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lockstep.analysis.figures.style import GREY, PALETTE, empty, look, new_figure
from lockstep.analysis.sentences import listed
from lockstep.analysis.stored import Stored
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    DPRO_READINGS,
    NEVER_WAIT,
    OF_FIGURE_4,
    OURS,
    SHUFFLED,
    STAND_INS,
    STAY,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.drawings import (
    MEAN,
    heat_map,
    line_legend,
    lines_by,
    name_rows,
    plain_log,
    points,
    policy_colour,
    rows_figure,
    way_legend,
)
from lockstep.experiments.e11_straggler_mitigation.learning import time_table, times_by_kind
from lockstep.experiments.e11_straggler_mitigation.made_up import OTHERS, OWN, partition_table, stand_in_table
from lockstep.experiments.e11_straggler_mitigation.rows import kind_name
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import (
    PAPER,
    SMALL,
    networks_table,
    rivals_table,
    slow_nodes_table,
    without_asynchronous,
)

_MARKS = "osp^vP"
_NETWORKS: tuple[tuple[str, float, dict[str, Any]], ...] = (
    (PAPER, -0.15, {}), (SMALL, 0.15, {"markerfacecolor": "white"}),
)  # fmt: skip


def time_to_loss_figure(stored: Stored) -> Figure:
    """Each policy's time at its best: the mix of all kinds with its interval, without delays, and by kind."""
    title = "Time to the same loss, over waiting for all without delays (simulated, real gradients)"
    table = time_table(stored)
    if table.empty:
        return empty(title, "no policy was trained with an even and an odd seed yet")
    shown = table.sort_values("mix", kind="stable").reset_index(drop=True)
    values = times_by_kind(stored).reindex(shown["contender"]).rename(columns=kind_name)
    with look():
        figure = rows_figure(len(shown), 11.5, 2.2)
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
        points(left, shown, ("mix", "mix_low", "mix_high"), color=MEAN)
        points(left, shown, ("no_delays", "no_delays_low", "no_delays_high"), markerfacecolor="white", color=GREY)
        left.axvline(1, color="0.2", linewidth=1)
        left.set_xlabel("times (95 % interval over seeds)")
        heat_map(right, values, (1.0, 4.0), "{:.2f}", reversed_=True, scale="times")
        name_rows(left, shown["contender"].tolist(), DPRO_READINGS)
        right.tick_params(axis="y", left=False)
        figure.suptitle(title)
        marks = [Line2D([], [], linestyle="none", marker="o", color=MEAN, label="geometric mean over all kinds"),
                 Line2D([], [], linestyle="none", marker="o", color=GREY, markerfacecolor="white",
                        label="without delays")]  # fmt: skip
        way_legend(figure, shown["contender"].tolist(), *marks)
    return figure


def slow_nodes_figure(stored: Stored) -> Figure:
    """Figure 4: time and accuracy against the number of slow nodes."""
    title = "Figure 4: training with slow nodes (simulated, real gradients)"
    table = slow_nodes_table(stored)
    if table.empty:
        return empty(title, "no slow nodes were simulated with an even and an odd seed yet")
    counts, lost = sorted(set(table["nodes"])), table[table["missed"] > 0]
    gone = [f"{name} with {listed(map(str, own['nodes']))} slow" for name, own in lost.groupby("contender", sort=False)]
    title += f"\n(time not drawn where a seed missed the loss: {'; '.join(gone)})" if gone else ""
    with look():
        figure = new_figure(9.5, 4.8)
        left, right = figure.subplots(1, 2)
        lines_by(left, table, "nodes", ("times", "times_low", "times_high"), list(OF_FIGURE_4), 0.3, factor=False)
        lines_by(
            right, table, "nodes", ("accuracy", "accuracy_low", "accuracy_high"), list(OF_FIGURE_4), 0.3, factor=False
        )
        for axis in (left, right):
            axis.set_xticks(counts, [str(count) for count in counts])
            axis.set_xlabel("nodes that are three times slower")
        left.axhline(1, color="0.2", linewidth=1)
        left.set_ylim(bottom=0)
        left.set_ylabel("time to the loss / waiting for all, none slow")
        right.set_ylabel("test accuracy at that loss (%)")
        figure.suptitle(title)
        line_legend(figure, [left, right])
    return figure


def paper_network_figure(stored: Stored) -> Figure:
    """Time to the loss with the paper's network and with the small one, a panel for each kind of delays."""
    title = "The paper's CNN beside the small network (simulated, real gradients)"
    table = networks_table(stored)
    if table.empty:
        return empty(title, "the paper's network was not trained with an even and an odd seed yet")
    kinds, columns = list(dict.fromkeys(table["delays"])), ("times", "times_low", "times_high")
    with look():
        figure = rows_figure(1.4 * len(OF_FIGURE_4), 11.0, 2.0)
        axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axis, kind in zip(axes, kinds, strict=True):
            for name, aside, style in _NETWORKS:
                own = table[(table["delays"] == kind) & (table["network"] == name)]
                rows = own.set_index("contender").reindex(list(OF_FIGURE_4)).reset_index()
                points(axis, rows, columns, aside, color=MEAN, **style)
            axis.axvline(1, color="0.2", linewidth=1)
            axis.set_xlim(left=0)
            axis.grid(False, axis="y")
            axis.set_title(kind_name(str(kind)), fontsize=9)
            axis.set_xlabel("time to the loss / waiting\nfor all without delays", fontsize=8.5)
        name_rows(axes[0], list(OF_FIGURE_4), DPRO_READINGS)
        figure.suptitle(title)
        marks = [Line2D([], [], linestyle="none", marker="o", color=MEAN, label=name, **style)
                 for name, _, style in _NETWORKS]  # fmt: skip
        way_legend(figure, list(OF_FIGURE_4), *marks)
    return figure


def rivals_figure(stored: Stored) -> Figure:
    """Ours and asynchronous training over waiting for all, with momentum, each at its best rate, by workers."""
    title = "Asynchronous training and waiting, with momentum and a slower server (simulated)"
    table = rivals_table(stored)
    if table.empty:
        return empty(title, "no rivals were trained with an even and an odd seed yet")
    counts = sorted(set(table["workers"]))
    lost = without_asynchronous(stored)
    missed = "workers at least one seed of asynchronous training missed the loss"
    gone = f"(with {listed(map(str, lost))} {missed}: not drawn)"
    with look():
        figure = new_figure(8.0, 4.6)
        axis = figure.subplots()
        columns = ("over_waiting", "over_waiting_low", "over_waiting_high")
        lines_by(axis, table, "workers", columns, (NEVER_WAIT, OURS), 0.1)
        axis.axhline(1, color=policy_colour(WAIT), linewidth=1.3)
        axis.set_xscale("log", base=2)
        plain_log(axis, "y")
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlim(counts[0] / 1.4, counts[-1] * 1.4)
        axis.set_xlabel("workers")
        axis.set_ylabel("time to the loss / waiting for all (log)")
        figure.suptitle(f"{title}\n{gone}" if lost else title)
        line_legend(figure, [axis], Line2D([], [], color=policy_colour(WAIT), label="wait for all, the measure"))
    return figure


def stand_ins_figure(stored: Stored) -> Figure:
    """What stands in for a missing gradient: its cosine with the true one, and the loss after as many updates."""
    title = "What made-up gradients are worth (simulated, real gradients)"
    table = stand_in_table(stored)
    if table.empty:
        return empty(title, "no stand-ins were tried yet")
    names = [name for name in STAND_INS if name in set(table["contender"]) and name != WAIT]
    kinds = list(dict.fromkeys(table["kind"]))
    with look():
        figure = rows_figure(1.6 * len(names), 10.0, 2.2)
        left, right = figure.subplots(1, 2, sharey=True)
        for place, kind in enumerate(kinds):
            own = table[table["kind"] == kind].set_index("contender").reindex(names).reset_index()
            aside, mark = 0.5 * ((place + 0.5) / len(kinds) - 0.5), _MARKS[place % len(_MARKS)]
            style: dict[str, Any] = {"color": PALETTE[place % len(PALETTE)], "marker": mark, "aside": aside}
            points(left, own, ("cosine", "cosine_low", "cosine_high"), **style)
            points(left, own, ("own_cosine", "own_cosine_low", "own_cosine_high"), markerfacecolor="white", **style)
            columns = ("loss_over_nothing", "loss_over_nothing_low", "loss_over_nothing_high")
            points(right, own, columns, label=kind, **style)
        left.axvline(0, color="0.2", linewidth=1)
        left.set_xlabel("cosine with the gradient over all images")
        right.axvline(1, color="0.2", linewidth=1)
        plain_log(right, "x")
        right.set_xlabel("loss after as many updates / with nothing in its place (log)")
        name_rows(left, names)
        for label in left.get_yticklabels():
            label.set_color("0.1")
        figure.suptitle(title)
        _kinds_legend(figure, right)
    return figure


def _kinds_legend(figure: Figure, axis: Axes) -> None:
    kinds = axis.get_legend_handles_labels()[1]
    handles = [Line2D([], [], linestyle="none", marker=_MARKS[place % len(_MARKS)],
                      color=PALETTE[place % len(PALETTE)], label=kind) for place, kind in enumerate(kinds)]  # fmt: skip
    handles.append(Line2D([], [], linestyle="none", marker="o", color=GREY, markerfacecolor="white",
                          label="real contributions to the same updates"))  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


def partitions_figure(stored: Stored) -> Figure:
    """Leaving out the slowest worker of each update over waiting for all: the loss on whose images?"""
    title = "Leaving out the slowest worker: on whose images is the loss higher? (simulated, real gradients)"
    table = partition_table(stored)
    if table.empty:
        return empty(title, "no partitions were trained yet")
    kinds = list(dict.fromkeys(table["kind"]))
    with look():
        figure = rows_figure(2 * len(kinds), 9.5, 2.2)
        axes = figure.subplots(1, 2, sharey=True, sharex=True)
        for axis, data in zip(axes, (SHUFFLED, STAY), strict=True):
            for place, part in enumerate((OWN, OTHERS)):
                own = table[(table["data"] == data) & (table["part"] == part)].set_index("kind").reindex(kinds)
                points(axis, own, ("ratio", "ratio_low", "ratio_high"), aside=0.24 * place - 0.12,
                       color=PALETTE[place], marker=_MARKS[place])  # fmt: skip
            axis.axvline(1, color="0.2", linewidth=1)
            axis.set_title("shuffled over all" if data == SHUFFLED else "staying with workers", loc="left")
            axis.set_xlabel("loss / of waiting for all")
        name_rows(axes[0], kinds)
        for label in axes[0].get_yticklabels():
            label.set_color("0.1")
        figure.suptitle(title)
        figure.legend(handles=[Line2D([], [], linestyle="none", marker=_MARKS[place], color=PALETTE[place], label=part)
                               for place, part in enumerate((OWN, OTHERS))],
                      loc="outside lower center", ncols=2, frameon=False)  # fmt: skip
    return figure
