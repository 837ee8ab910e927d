"""Rows of the table `policies`, one per simulated cell, seed and policy, and what they say over the seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.contenders import WAIT
from lockstep.simulate.comparison import share_of_way

THROUGHPUT, SCALE, TIME_TO_LOSS, SLOW_NODES = "throughput", "scale", "time_to_loss", "slow_nodes"
ADVICE = "advice"
PAPER_NETWORK, RIVALRY, STAND_IN, PARTITIONS = "paper_network", "rivals", "stand_ins", "partitions"
"""Experiments of the grid."""

COLUMNS: tuple[str, ...] = ("workers", "round", "experiment", "delays", "seed", "per_worker_batch_size")
COLUMNS += ("learning_rate", "contender", "policy", "policy_options", "standby", "updates", "samples", "seconds")
COLUMNS += ("wasted_share", "events", "computed", "seconds_per_sample", "ideal_seconds_per_sample")
COLUMNS += ("bound_seconds_per_sample", "loss", "accuracy", "target_loss")
COLUMNS += ("seconds_to_loss", "reason", "cosine", "own_cosine", "stand_ins", "data", "train_images", "test_images")
COLUMNS += ("loss_of_worker_0", "loss_of_others")

_KEY = ("experiment", "workers", "delays", "seed", "per_worker_batch_size", "learning_rate", "contender", "data")
_ENDS = ("seconds_per_sample", "ideal_seconds_per_sample", "bound_seconds_per_sample")
NO_DELAYS = "none"
_KINDS = {
    "exponential": "exponential pauses",
    "pareto": "Pareto pauses",
    "bimodal": "bimodal pauses",
    "markov": "Markov states",
    "periodic": "periodic",
    "drift": "drift",
    "bad_node": "bad node",
    "groups": "groups",
    "credits": "burst credits",
    "gone": "a node that goes",
    "decoding": "slow decoding",
    "link": "busy links",
    NO_DELAYS: "no delays",
}
"""Kind of delays -> its name in tables and figures."""


@once
def _all_rows(stored: Stored) -> pd.DataFrame:
    table = stored.table("policies").reindex(columns=list(COLUMNS))
    return with_shares(table[table["contender"].notna()].drop_duplicates(list(_KEY), keep="last"))


def with_shares(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with `mitigation` and `of_the_bound`: how much of the way from waiting for all to no delays, or to the
    bound, a policy goes. Both ends are those of the cell, and stand in its row of waiting for all."""
    by_cell = [table[name] for name in _KEY if name != "contender"]
    own, known = table["seconds_per_sample"].astype(float), table[list(_ENDS)].astype(float)
    ends = known.where(table["contender"] == WAIT).groupby(by_cell, dropna=False).transform("max")
    waiting = ends["seconds_per_sample"]
    for share, best in (("mitigation", "ideal_seconds_per_sample"), ("of_the_bound", "bound_seconds_per_sample")):
        table = table.assign(**{share: list(map(share_of_way, waiting, own, ends[best])), best: ends[best]})
    return table


def rows_of(stored: Stored, experiment: str) -> pd.DataFrame:
    """The rows of one experiment with all COLUMNS, none where nothing was stored of it; of a seed that two sessions
    stored, the last one's."""
    table = _all_rows(stored)
    return table[table["experiment"] == experiment].reset_index(drop=True)


def kinds_of(rows: pd.DataFrame) -> list[str]:
    """The delays of these rows in their order, as a job writes them, without those that are none."""
    return [str(text) for text in dict.fromkeys(rows["delays"]) if text != NO_DELAYS]


def kind_name(delays: str) -> str:
    """What tables and figures call delays: Markov states for `markov:seconds=0.5`."""
    name = delays.partition(":")[0]
    return _KINDS.get(name, name)


def wide(rows: pd.DataFrame, value: str, columns: str | list[str]) -> pd.DataFrame:
    """A column of the rows as seeds x `columns`."""
    if rows.empty:
        return pd.DataFrame()
    return rows.pivot(index="seed", columns=columns, values=value).astype(float)


def mean_over_seeds(values: pd.Series) -> Estimate | None:
    """The arithmetic mean, one value per seed; None where there is no seed or one has no value, for a mean over the
    others would hide it."""
    return mean_of(values) if len(values) and np.isfinite(values).all() else None


def ratio_over_seeds(ratios: pd.Series) -> Estimate | None:
    """The geometric mean of ratios, one per seed; None as of `mean_over_seeds`."""
    return interval_of(ratios) if len(ratios) and np.isfinite(ratios).all() else None


def over_kinds(table: pd.DataFrame, logarithmic: bool = True) -> pd.Series:
    """The geometric mean over the columns of each seed that has all of them, of ratios; or the arithmetic one."""
    whole = table.dropna()
    if not logarithmic:
        return whole.mean(axis=1)
    return np.exp(np.log(whole).mean(axis=1)) if len(whole) else pd.Series(dtype=float)


def lacking_reason(rows: pd.DataFrame) -> str:
    """Why rows have no number, each reason once."""
    return "; ".join(dict.fromkeys(str(text) for text in rows["reason"].dropna() if str(text)))


def required(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """The table. Raises NotNow where it is empty."""
    if table.empty:
        raise NotNow("", f"no cell of {what} is stored, or no seed of either parity")
    return table


def estimate_in(row: pd.Series, name: str) -> Estimate | None:
    """A number of a table's row with its interval (columns `name`, `name`_low, `name`_high); None without one."""
    value, low, high = (float(row[column]) for column in (name, f"{name}_low", f"{name}_high"))
    return Estimate(value, low, high, int(row["seeds"])) if np.isfinite([value, low, high]).all() else None
