"""What slow nodes do to training, by their number (Figure 4); the paper's network; asynchronous training with many
workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.statistics import AnalysisError
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e11_straggler_mitigation.contenders import NEVER_WAIT, OF_FIGURE_4, WAIT
from lockstep.experiments.e11_straggler_mitigation.learning import at_best, best_beside_waiting, paired, runs_of
from lockstep.experiments.e11_straggler_mitigation.rows import (
    NO_DELAYS,
    PAPER_NETWORK,
    RIVALRY,
    SLOW_NODES,
    TIME_TO_LOSS,
    kinds_of,
    over_kinds,
    rows_of,
    wide,
)


def slow_nodes_in(delays: str) -> int:
    """How many nodes these delays make slow: 0 of none, 3 of `bad_node:nodes=3`."""
    _, _, options = delays.partition(":")
    counts = [int(text.partition("=")[2]) for text in options.split(",") if text.startswith("nodes=")]
    return 0 if delays == NO_DELAYS else (counts or [1])[0]


@once
def slow_nodes_table(stored: Stored) -> pd.DataFrame:
    """By policy and number of slow nodes: time to the loss over that of waiting for all without any (`times`), and test
    accuracy there (%), with the largest of the shares and each policy's best rate. `missed`: seeds without the loss."""
    rows, none = rows_of(stored, SLOW_NODES), rows_of(stored, TIME_TO_LOSS)
    none = none[(none["delays"] == NO_DELAYS) & none["per_worker_batch_size"].isin(rows["per_worker_batch_size"])]
    found = best_beside_waiting(runs_of(pd.concat([rows, none])), OF_FIGURE_4)
    if found.empty:
        return found
    nodes = found["delays"].map(lambda delays: slow_nodes_in(str(delays)))
    return found.assign(nodes=nodes).sort_values("nodes", kind="stable").reset_index(drop=True)


# The network of the paper

SMALL, PAPER = "the small network", "the paper's CNN"


@once
def networks_table(stored: Stored) -> pd.DataFrame:
    """By `network`, policy and delays: what `best_beside_waiting` says, of the same delays and shares."""
    paper, small = rows_of(stored, PAPER_NETWORK), rows_of(stored, TIME_TO_LOSS)
    for name in ("delays", "per_worker_batch_size", "workers"):
        small = small[small[name].isin(paper[name])]
    found = [
        best_beside_waiting(runs_of(rows), OF_FIGURE_4).assign(network=name)
        for name, rows in ((SMALL, small), (PAPER, paper))
    ]
    return pd.concat(found, ignore_index=True) if len(found[1]) else pd.DataFrame()


def agreements(stored: Stored) -> tuple[int, int, int]:
    """Of the policies under each kind of delays, how many are faster, or slower, than waiting for all with both
    networks; faster with one and slower with the other; not told apart from it with one of the two."""
    table = networks_table(stored)
    if table.empty:
        return 0, 0, 0
    own = table[(table["contender"] != WAIT) & (table["delays"] != NO_DELAYS)]
    sides = (own["over_waiting_low"] > 1).astype(int) - (own["over_waiting_high"] < 1).astype(int)
    both = own.assign(side=sides).pivot(index=["contender", "delays"], columns="network", values="side").dropna()
    if not {SMALL, PAPER} <= set(both):
        return 0, 0, 0
    product = both[SMALL] * both[PAPER]
    return int((product > 0).sum()), int((product < 0).sum()), int((product == 0).sum())


# Asynchronous training


@once
def rivals_at_best(stored: Stored) -> pd.DataFrame:
    """Runs with momentum behind a busy server, of every policy at the rate that is best for it with so many workers."""
    runs = runs_of(rows_of(stored, RIVALRY))
    found = [at_best(own, kinds_of(own)) for _, own in runs.groupby(["workers", "contender"], sort=False)]
    return pd.concat([runs.iloc[:0], *found])


def rival_ratio(stored: Stored, workers: int, above: str, below: str) -> Estimate:
    """Time to loss of one policy over another's with so many workers, the geometric mean over kinds, paired by seed.
    Raises AnalysisError where one of them missed the loss or was not run."""
    table = rivals_at_best(stored)
    table = table[table["workers"] == workers]
    times, kinds = wide(table, "time", ["contender", "delays"]), kinds_of(table)
    if any((name, kind) not in times for name in (above, below) for kind in kinds) or not kinds:
        raise AnalysisError(f"{above} or {below} was not run with {workers} workers, an even and an odd seed")
    upper, lower = (over_kinds(times[name][kinds]) for name in (above, below))
    return paired(upper, lower, f"{above} or {below}, with {workers} workers,")


@once
def rivals_table(stored: Stored) -> pd.DataFrame:
    """By number of workers and policy: time to the loss over that of asynchronous training and over that of waiting for
    all, each at its best rate; the rates, and the runs that missed the loss."""
    found = []
    for (workers, contender), own in rivals_at_best(stored).groupby(["workers", "contender"], sort=False):
        row: dict[str, Any] = {"workers": int(workers), "contender": contender}
        for name, base in (("over_asynchronous", NEVER_WAIT), ("over_waiting", WAIT)):
            try:
                row |= mean_columns(rival_ratio(stored, int(workers), str(contender), base), name)
            except AnalysisError:
                row |= mean_columns(None, name)
        row |= {"rates": " or ".join(f"{rate:g}" for rate in sorted(set(own["learning_rate"])))}
        row |= {"seeds": int(own["seed"].nunique()), "missed": int((~np.isfinite(own["time"])).sum())}
        found.append(row)
    return pd.DataFrame(found)


def without_asynchronous(stored: Stored) -> list[int]:
    """The numbers of workers with which a run of asynchronous training, at its best rate, missed the loss: nothing can
    be measured against it there."""
    table = rivals_table(stored)
    if table.empty:
        return []
    return sorted(table[(table["contender"] == NEVER_WAIT) & (table["missed"] > 0)]["workers"])
