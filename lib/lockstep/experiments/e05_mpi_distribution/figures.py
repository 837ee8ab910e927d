"""Notebook 05's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from lockstep.analysis.figures.bars import speedup_bars
from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import by_short_name
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import distributed_speedup_table
from lockstep.experiments.e05_mpi_distribution.drawings import link_lines, message_lines, network_bars, ranking_points
from lockstep.experiments.e05_mpi_distribution.tables import link_table, network_table, ranking_table
from lockstep.predict.link_model import link_or_none, message_table


def ranking(stored: Stored) -> Figure:
    return ranking_points(ranking_table(stored.records), "Does one host's ranking hold on two?")


def _speedups(stored: Stored, experiment: str, title: str) -> Figure:
    table = distributed_speedup_table(stored.records, experiment)
    if len(table):  # rows for GPUs that are not there would fill half of the figure
        table = table[~((table["device"] == "cuda") & (table["status"] == "skipped"))]
    return speedup_bars(table, read_table("single-to-multi", "table3"), title)


def weak(stored: Stored) -> Figure:
    return _speedups(stored, "weak", "Weak scaling: a batch for every worker, for each way to exchange")


def strong(stored: Stored) -> Figure:
    return _speedups(stored, "strong", "Strong scaling: one batch for all workers, for each way to exchange")


def messages(stored: Stored) -> Figure:
    link = link_or_none(stored.records)  # None: no emulated cluster there
    tables = {
        "one host": message_table(stored.records, "collective"),
        "two hosts, emulated link": message_table(stored.records, "wire", link),
    }
    return message_lines(tables, "The exchange of one message", link)


def links(stored: Stored) -> Figure:
    tables = {name: link_table(own) for name, own in by_short_name(stored, stored.of("links")).items()}
    return link_lines(tables, "Two emulated hosts over one core: from which link on do they pay?")


def network(stored: Stored) -> Figure:
    return network_bars(network_table(stored.records), "What a step puts on the network")


FIGURES: Mapping[str, Recipe] = {
    "ranking": ranking,
    "weak": weak,
    "strong": strong,
    "messages": messages,
    "links": links,
    "network": network,
    "resources": traces_of("timeline"),
}
