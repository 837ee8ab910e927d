"""Which pruners no other one dominates: compute against the share of studies that keep the best setting.

    kept  ^            none *
          |      median *              frontier: nothing has both less compute and more kept
          |   ours *      x patient    x: dominated, by median
          |  halving *
          +----------------------->  share of the unpruned epochs
"""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.confidence import estimate
from lockstep.analysis.seeds import wilson
from lockstep.engine.options import JobError

_QUANTITIES = {"share_of_epochs": 1, "kept_best": -1}  # 1: less is better


def frontier(rows: pd.DataFrame, by: str = "compared") -> pd.DataFrame:
    """The comparison of pruners that were replayed on the same orders, one row each, in the order of `rows`.

    rows: of `lockstep.tuning.replay.replays`, with one number of workers and of trials; `by` names what is compared.
    Columns: share_of_epochs and kept with low and high, studies, on_frontier and dominated_by.

    One pruner dominates another if it computes no more and keeps the best no less often, and is better in one of them,
    by the means (`dominated_by`, names separated by commas). The interval of `share_of_epochs` is anytime-valid, that
    of `kept` is Wilson's. Both speak of other orders of this pool; of other pools studies tell less, see
    `lockstep.tuning.pool.effective_number`.

    Raises JobError for rows of several numbers of workers or trials, or orders that are not the same for all.
    """
    outcomes = _paired(rows, by)
    names = list(outcomes)
    table = []
    for name in names:
        found = outcomes[name]
        share, kept = estimate(found["share_of_epochs"], logarithmic=False), int(found["kept_best"].sum())
        others = [other for other in names if other != name and _dominates(outcomes[other], found)]
        numbers = (*share.columns, kept / len(found), *wilson(kept, len(found)), len(found))
        table.append((name, *numbers, not others, ", ".join(others)))
    columns = [by, "share_of_epochs", "share_low", "share_high", "kept", "kept_low", "kept_high", "studies"]
    return pd.DataFrame(table, columns=[*columns, "on_frontier", "dominated_by"])


def _paired(rows: pd.DataFrame, by: str) -> dict[str, pd.DataFrame]:
    """The rows of each pruner, indexed by seed in one order."""
    for column in ("workers", "trials"):
        if rows[column].nunique() != 1:
            there_are = ", ".join(str(value) for value in sorted(rows[column].unique())) or "none"
            raise JobError(f"replays of several numbers of {column} can't be compared: {there_are}; select one")
    found = {str(name): of_one.set_index("seed").sort_index() for name, of_one in rows.groupby(by, sort=False)}
    first = next(iter(found.values()))
    for name, of_one in found.items():
        if of_one.index.has_duplicates or not of_one.index.equals(first.index):
            raise JobError(f"{by}={name!r} was not replayed once on each seed of the others: replay it on them")
    return found


def _dominates(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    better = [sign * (other[name].mean() - one[name].mean()) for name, sign in _QUANTITIES.items()]
    return min(better) >= 0 and max(better) > 0

