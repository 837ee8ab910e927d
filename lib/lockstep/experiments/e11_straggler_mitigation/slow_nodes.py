"""What slow nodes do to training, by their number (Figure 4), and asynchronous training with many workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.statistics import AnalysisError
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e11_straggler_mitigation.contenders import NEVER_WAIT, OF_FIGURE_4
from lockstep.experiments.e11_straggler_mitigation.learning import (
    at_best,
    paired,
    runs_of,
    undelayed_base,
    with_undelayed,
)
from lockstep.experiments.e11_straggler_mitigation.rows import (
    NO_DELAYS,
    RIVALRY,
    SLOW_NODES,
    TIME_TO_LOSS,
    kinds_of,
    mean_over_seeds,
    over_kinds,
    ratio_over_seeds,
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
    runs = runs_of(pd.concat([rows, none]))
    base, table = undelayed_base(runs)["time"], []
    for contender in OF_FIGURE_4:
        for delays, own in with_undelayed(runs, contender).groupby("delays", sort=False):
            each = own.set_index("seed")
            row: dict[str, Any] = {"contender": contender, "nodes": slow_nodes_in(str(delays))}
            row |= mean_columns(ratio_over_seeds((each["time"] / base.reindex(each.index)).dropna()), "times")
            row |= mean_columns(mean_over_seeds(each["accuracy"].astype(float)), "accuracy", 100)
            table.append(row | {"seeds": len(each), "missed": int((~np.isfinite(each["time"])).sum())})
    found = pd.DataFrame(table)
    return found.sort_values("nodes", kind="stable").reset_index(drop=True) if len(found) else found


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
    """By number of workers and policy: time to the loss over that of asynchronous training, each at its best rate; the
    rates, and the runs that missed the loss."""
    found = []
    for (workers, contender), own in rivals_at_best(stored).groupby(["workers", "contender"], sort=False):
        try:
            ratio = rival_ratio(stored, int(workers), str(contender), NEVER_WAIT)
        except AnalysisError:
            ratio = None
        row: dict[str, Any] = {"workers": int(workers), "contender": contender}
        row |= mean_columns(ratio, "over_asynchronous")
        row |= {"rates": " or ".join(f"{rate:g}" for rate in sorted(set(own["learning_rate"])))}
        row |= {"seeds": int(own["seed"].nunique()), "missed": int((~np.isfinite(own["time"])).sum())}
        found.append(row)
    return pd.DataFrame(found)
