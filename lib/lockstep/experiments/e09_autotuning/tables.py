"""What notebook 09 shows as tables, from the pool, what was computed of it, and the networks that were trained anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.seeds import diverged, mean_columns, mean_or_none, paired_points, percent_columns, scored
from lockstep.analysis.statistics import Conditions, ratio_with_interval, select
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e09_autotuning.choice import score, shown_studies
from lockstep.experiments.e09_autotuning.grid import CHOSEN, ENGINES, FINALISTS, RUNG, RUNGS
from lockstep.experiments.e09_autotuning.stored_pool import NAMES, pool_in

TUNED = "tuned"
NO_ADDITION: Mapping[str, Any] = {"dropout": 0.0, "weight_decay": 0.0}
SHOWN_SETTINGS = 5


@once
def best_settings(stored: Stored) -> pd.DataFrame:
    """The pool's settings with the highest scores after the last epoch, best first: number, score,
    validation_accuracy_percent, and a column per entry of the space."""
    pool = pool_in(stored)
    if pool is None or pool.whole.empty:
        return pd.DataFrame()
    last = pool.curves[pool.curves["epoch"] == pool.epochs].set_index("number")["validation_accuracy"]
    rows = []
    for number in pool.best(SHOWN_SETTINGS):
        told = {"setting": number, "score": pool.trials.loc[number, "score"]}
        rows.append({**told, "validation_accuracy_percent": 100 * last[number], **pool.setting(number)})
    return pd.DataFrame(rows)


@once
def ladder(stored: Stored) -> pd.DataFrame:
    """A row per step of the ladder, and one for the tuned network: step, epochs, test, validation (accuracies in per
    cent, means over all seeds), more (points of test accuracy over the plain CNN, over the seeds that both have), each
    with its interval, and seeds."""
    rows = []
    for name, conditions in steps_of_ladder(stored).items():
        own = scored(select(stored.records, conditions, status=None)).reset_index()
        if own.empty:
            continue
        row: dict[str, Any] = {"step": name, "epochs": int(own["epochs"].iloc[0]), "seeds": own["seed"].nunique()}
        for column, measure in (("test", "test_accuracy"), ("validation", "validation_accuracy")):
            row |= percent_columns(mean_or_none(own.set_index("seed")[measure]), column)
        rows.append(row | mean_columns(_over_plain(stored, conditions), "more"))
    return pd.DataFrame(rows)


def steps_of_ladder(stored: Stored) -> dict[str, Conditions]:
    """What selects the rows of each step, plain first, and of the tuned network, if it is there."""
    found: dict[str, Conditions] = {
        name: {"experiment": RUNG, **NO_ADDITION, **fields} for name, fields in RUNGS.items()
    }
    if len(stored.of(CHOSEN)):
        found[TUNED] = {"experiment": CHOSEN}
    return found


def plain(stored: Stored) -> Conditions:
    return next(iter(steps_of_ladder(stored).values()))


def _over_plain(stored: Stored, conditions: Conditions) -> Estimate | None:
    base = plain(stored)
    if conditions == base:
        return None
    try:
        return paired_points(stored.records, conditions, base)
    except AnalysisError:
        return None


@once
def finalists(stored: Stored) -> pd.DataFrame:
    """A row per finalist, best mean first: score with its interval, seeds, and its setting."""
    known, rows = stored.of(FINALISTS), []
    names = [name for name in NAMES if name in known and known[name].nunique() > 1]
    for keys, cell in known.groupby(list(names), sort=False) if names else ():
        losses = scored(cell)["validation_loss"]
        told = mean_columns(mean_or_none(score(losses)), "score")
        told |= {"score_low": max(told["score_low"], 0.0), "score_high": min(told["score_high"], 1.0)}
        told |= {"seeds": cell["seed"].nunique(), "diverged": diverged(cell)}
        rows.append(told | dict(zip(names, keys, strict=True)))
    table = pd.DataFrame(rows)
    return table.sort_values("score", ascending=False, ignore_index=True) if len(table) else table


def speed_of_engines(stored: Stored) -> Estimate:
    """The list of trials by several engines, times as fast as by one. Raises AnalysisError where it was not timed."""
    own = stored.of(ENGINES)
    if own.empty:
        raise AnalysisError("the list of trials was not timed yet (`lockstep run 09 -p only=[engine_counts]` does)")
    most = int(own["workers"].max())
    one, several = ({"experiment": ENGINES, "workers": number} for number in (1, most))
    return ratio_with_interval(stored.records, one, several, "step_seconds")


def compared(stored: Stored, workers: int = 1) -> pd.DataFrame:
    """The rows of `replays` for the studies that are shown (`choice.shown_studies`), of so many workers; without those
    that train a network in every study, of which there are too few orders to stand beside the others."""
    table = stored.table("replays")
    if table.empty:
        return table
    table = shown_studies(table[table["share_low"].notna()])
    return table[table["workers"] == workers].reset_index(drop=True)


def _shown_replays(stored: Stored) -> pd.DataFrame:
    table = stored.table("replays")
    if table.empty:
        return table
    shown = table[["compared", "text", "trials", "workers", "share_of_epochs", "kept", "kept_low", "kept_high"]]
    return shown.assign(beside_median=table["share_of_epochs_more"], studies=table["effective"].round(1)).round(3)


def _shown_forecasts(stored: Stored) -> pd.DataFrame:
    table = stored.table("curve_forecasts")
    if table.empty:
        return table
    wide = table.pivot_table(index="forecaster", columns="epoch", values=["relative", "covered"], sort=False)
    wide.columns = [f"{name}, {epoch} epochs" for name, epoch in wide.columns]
    return wide.round(3).reset_index()


def _importances(stored: Stored) -> pd.DataFrame:
    table = stored.table("importances")
    return table[["name", "importance", "low", "high"]].round(3) if len(table) else table


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    return table.round(4).replace({np.nan: ""})


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "settings": lambda stored: _rounded(best_settings(stored)),
    "ladder": lambda stored: ladder(stored).round(2),
    "finalists": lambda stored: _rounded(finalists(stored)),
    "replays": _shown_replays,
    "forecasts": _shown_forecasts,
    "importances": _importances,
}
