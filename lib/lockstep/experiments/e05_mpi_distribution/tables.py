"""Tables of training over several workers and hosts, from records alone: rankings, speedups, what a link decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import by_short_name
from lockstep.analysis.statistics import is_difference, ratio_or_reason
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.tables import distributed_speedup_table, ratio_columns, start_table
from lockstep.analysis.timeline import slowest_table
from lockstep.experiments.e05_mpi_distribution.accuracy import accuracy_table
from lockstep.experiments.e05_mpi_distribution.factors import cluster_table
from lockstep.experiments.e05_mpi_distribution.regimes import regime_table
from lockstep.predict.link_model import fit_table, link_or_none, message_table, wire_table

HEADLINE = "headline"
LOCAL = ("host_threads", "mpi_allreduce", "mpi_shared_memory")
"""The local strategies of the headline: threads of one process, processes that send, processes that share memory."""
RANKING_BASE = "mpi_allreduce"


@once
def ranking_table(records: pd.DataFrame, experiment: str = HEADLINE) -> pd.DataFrame:
    """Each local strategy against `RANKING_BASE` on as many hosts, paired per round.

    Columns: use_case, hosts, workers, strategy, images_per_second, step_seconds, ratio, low, high (images/s over
    the base's), difference (bool), place (1 = the highest ratio at that number of hosts), rounds, status, reason.
    """
    table: list[dict[str, Any]] = []
    for cell, rows in cells(records, experiment):
        if cell["strategy"] not in LOCAL or cell["variant"] != "a":
            continue
        status, reason = outcome(rows)
        row = {name: cell[name] for name in ("use_case", "data_source", "hosts", "workers", "strategy")}
        row |= {name: median_of(rows, name) for name in ("images_per_second", "step_seconds")}
        base = {name: cell[name] for name in ("experiment", "use_case", "hosts", "workers", "precision", "device")}
        base["strategy"] = RANKING_BASE
        ratio, why = ratio_or_reason(records, cell, {**base, "variant": "a"}, "images_per_second")
        reason = reason or why
        row |= ratio_columns(ratio, "ratio") | {"rounds": ratio.rounds if ratio else 0}
        row |= {"difference": ratio is not None and is_difference(ratio, aa_noise(records))}
        row |= {"global_batch_size": cell["global_batch_size"], "status": status, "reason": reason}
        table.append(row)
    frame = pd.DataFrame(table)
    if len(frame):
        frame["place"] = frame.groupby(["use_case", "hosts"])["ratio"].rank(ascending=False)
    return frame


@once
def link_table(records: pd.DataFrame, experiment: str = "links") -> pd.DataFrame:
    """Every sync at every link rate, and from which rate on it pays: more images/s than sequential training.

        step(rate) = own + busiest link's bytes x 8 / rate

    The bytes are counted on the links. `own_seconds` is what is left of the step at the highest measured rate, so the
    prediction at all lower rates uses nothing that was measured there. Columns: those of
    `distributed_speedup_table`, and own_seconds, predicted_step_seconds, pays_from_bits_per_second (inf: never; 0: at
    any rate).
    """
    table = distributed_speedup_table(records, experiment)
    if table.empty:
        return table
    table = table[table["link_bits_per_second"] > 0].reset_index(drop=True)
    added = ["own_seconds", "predicted_step_seconds", "pays_from_bits_per_second"]
    table[added] = np.nan
    for _, own in table[table["status"] == "ok"].groupby(["use_case", "strategy"], sort=False):
        fastest = own.loc[own["link_bits_per_second"].idxmax()]
        wire_bits = 8 * fastest["link_bytes_busiest"]
        rest = max(0.0, fastest["step_seconds"] - wire_bits / fastest["link_bits_per_second"])
        table.loc[own.index, "own_seconds"] = rest
        table.loc[own.index, "predicted_step_seconds"] = rest + wire_bits / own["link_bits_per_second"]
        allowed = fastest["global_batch_size"] * fastest["speedup"] / fastest["images_per_second"]
        if not math.isnan(allowed):  # paired by round: medians of the two would be of other machines
            table.loc[own.index, "pays_from_bits_per_second"] = _rate(wire_bits, allowed - rest)
    return table


def _rate(bits: float, seconds: float) -> float:
    """The rate at which `bits` pass in `seconds`."""
    return math.inf if seconds <= 0 else bits / seconds


def predicted_speedups(table: pd.DataFrame, rates: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """(use case, strategy) -> the speedup over sequential that `link_table`'s model predicts at each rate (bits/s)."""
    found = {}
    for (use_case, strategy), own in table[table["own_seconds"].notna()].groupby(["use_case", "strategy"], sort=False):
        fastest = own.loc[own["link_bits_per_second"].idxmax()]
        base_rate = fastest["images_per_second"] / fastest["speedup"]
        step = fastest["own_seconds"] + 8 * fastest["link_bytes_busiest"] / rates
        found[str(use_case), str(strategy)] = fastest["global_batch_size"] / step / base_rate
    return found


def network_table(records: pd.DataFrame) -> pd.DataFrame:
    """What every cell that trains over links puts on the busiest of them, per step and per second of a step (B)."""
    rows = records[(records["status"] == "ok") & records["link_bytes_busiest"].notna()]
    rows = rows[rows["images_per_second"].notna()]
    table = []
    for name in rows["experiment"].unique():
        for cell, own in cells(rows, str(name)):
            kept = {key: cell[key] for key in ("experiment", "use_case", "strategy", "hosts", "workers", "servers")}
            step, busiest = median_of(own, "step_seconds"), median_of(own, "link_bytes_busiest")
            row = kept | {"link_bits_per_second": cell["link_bits_per_second"], "link_bytes_busiest": busiest}
            table.append(row | {"bytes_per_second": busiest / step})
    return pd.DataFrame(table)


def traffic_table(records: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Bytes through all links per step (B) of exchanges alone: counted, and per byte of gradients."""
    table = []
    for cell, rows in cells(records, experiment):
        status, reason = outcome(rows)
        row = {name: cell[name] for name in ("experiment", "strategy", "hosts", "workers", "servers")}
        counted = median_of(rows, "link_bytes_sent")
        row |= {"message_bytes": cell["message_bytes"], "link_bytes_sent": counted}
        row |= {"times_message": counted / cell["message_bytes"] if cell["message_bytes"] else math.nan}
        table.append(row | {"status": status, "reason": reason})
    return pd.DataFrame(table)


# What the notebook shows of them


def _ranking(stored: Stored) -> pd.DataFrame:
    cell = ["use_case", "hosts", "workers", "strategy"]
    measured = ["ratio", "low", "high", "difference", "place", "status", "reason"]
    return ranking_table(stored.records).reindex(columns=[*cell, *measured]).round(3)


def _speedup(stored: Stored, experiment: str) -> pd.DataFrame:
    """Without rows where a profile leaves the experiment out."""
    cell = ["use_case", "strategy", "variant", "device", "workers", "servers", "global_batch_size"]
    measured = ["speedup", "low", "high", "status", "reason"]
    return distributed_speedup_table(stored.records, experiment).reindex(columns=[*cell, *measured]).round(3)


def _fitted(stored: Stored, experiment: str, network: str) -> pd.DataFrame:
    table = message_table(stored.records, experiment)
    exact = ["worst_relative_error"] * (len(table) and table["bytes"].nunique() < 3)  # two sizes: by construction
    return fit_table(table).assign(network=network).drop(columns=exact, errors="ignore") if len(table) else table


def _messages(stored: Stored) -> pd.DataFrame:
    columns = ["strategy", "hosts", "workers", "bytes", "seconds", "seconds_low", "seconds_high", "status", "reason"]
    return message_table(stored.records, "collective").reindex(columns=columns).round(5)


def _predicted_messages(stored: Stored) -> pd.DataFrame:
    """Without rows where no ping-pong was measured."""
    table = wire_table(stored.records) if link_or_none(stored.records) else pd.DataFrame()
    cell = ["experiment", "strategy", "hosts", "workers", "bytes"]
    return table.reindex(columns=[*cell, "seconds", "predicted_seconds", "ratio", "low", "high"]).round(4)


def _links(stored: Stored) -> pd.DataFrame:
    """By processor: seconds of several machines cannot stand beside each other."""
    cell = ["processor", "strategy", "link_bits_per_second", "speedup", "low", "high"]
    seconds = ["step_seconds", "predicted_step_seconds", "link_bytes_busiest", "pays_from_bits_per_second"]
    parts = [link_table(own).assign(processor=name) for name, own in by_short_name(stored, stored.of("links")).items()]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table.reindex(columns=[*cell, *seconds, "status", "reason"]).round(3)


def _traffic(stored: Stored, experiment: str) -> pd.DataFrame:
    columns = ["experiment", "strategy", "hosts", "workers", "link_bytes_sent", "times_message", "status", "reason"]
    return traffic_table(stored.records, experiment).reindex(columns=columns).round(2)


def _slowest(stored: Stored) -> pd.DataFrame:
    steps = stored.table("timeline")
    return slowest_table(steps).round(4) if len(steps) else steps


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "ranking": _ranking,
    "factors": lambda stored: cluster_table().round(2),  # of the paper alone
    "weak": lambda stored: _speedup(stored, "weak"),
    "strong": lambda stored: _speedup(stored, "strong"),
    "fitted_on_one_host": lambda stored: _fitted(stored, "collective", "one host"),
    "fitted_over_the_link": lambda stored: _fitted(stored, "wire", "emulated link"),
    "messages": _messages,
    "predicted_messages": _predicted_messages,
    "links": _links,
    "regimes": lambda stored: regime_table(stored.records).round(1),
    "accuracy": lambda stored: accuracy_table(stored.records).round(3),
    "network": lambda stored: network_table(stored.records).round(0),
    "between_hosts": lambda stored: _traffic(stored, "between_hosts"),
    "traffic": lambda stored: _traffic(stored, "traffic"),
    "slowest": _slowest,
    "starts": lambda stored: start_table(stored.records).round(1),
}
