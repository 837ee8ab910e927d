"""How forecasters compare: one number per seed of what is simulated, or per round of what is measured.

Errors stand relative to the last value's in the same world: below 1 a forecaster errs less than one that repeats what
it saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.sentences import as_share
from lockstep.analysis.statistics import interval_of, mean_of, select
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e10_straggler_forecasts.cause_tables import timed
from lockstep.experiments.e10_straggler_forecasts.forecasters import BASE, STATES, WITH_STATE
from lockstep.experiments.e10_straggler_forecasts.grid import KINDS, name_of
from lockstep.experiments.e10_straggler_forecasts.worlds import MICRO_BATCHES

ERROR, NO_STATE = "mean_absolute_error", "none"
EARLY, LATER = "early", "later"
_WORLD = ["delays", "seed"]


def relative(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """With `kind`, the name of the delays, and `relative`, the error over the last value's where `keys` are equal."""
    base = table[table["forecaster"] == BASE].drop_duplicates(keys).set_index(keys)[ERROR]
    wanted = pd.MultiIndex.from_frame(table[keys])
    kinds = table["delays"].map(name_of)
    return table.assign(kind=kinds, relative=table[ERROR].to_numpy() / base.reindex(wanted).to_numpy())


def _of_forecasts(name: str, *more: str) -> Callable[[Stored], pd.DataFrame]:
    """A traced table of forecasters, once; what the state of the system adds stands beside the last value without."""

    def compute(stored: Stored) -> pd.DataFrame:
        table = stored.table(name)
        return relative(table, [*_WORLD, *more]) if len(table) else table

    return once(compute)


scored = _of_forecasts("forecasts", "period")
histories = _of_forecasts("histories", "seen_rounds")
traces = _of_forecasts("trace_forecasts", "unit", "stage")


def per_seed(table: pd.DataFrame, column: str, **where: Any) -> pd.Series:
    """A column of the rows that fit, indexed by seed; without those in which it is not defined.

    Raises AnalysisError where there are none.
    """
    about = ", ".join(str(value) for value in where.values())
    for name, value in where.items():
        table = table[table[name] == value] if len(table) else table
    known = table.dropna(subset=column).drop_duplicates("seed") if len(table) else table
    if not len(known):
        raise AnalysisError(f"no seed has {column} of {about}")
    return known.set_index("seed")[column].astype(float).sort_index()


def error_ratio(
    stored: Stored, kind: str, name: str, over: str = BASE, period: str = LATER, told: bool = False
) -> pd.Series:
    """The error of one forecaster over another's in the same world, by seed; `told`: both know the state of the system,
    if the kind has one and they can. Raises AnalysisError for no such seed."""
    table = scored(stored)
    above, under = (
        per_seed(table, ERROR, kind=kind, forecaster=each, period=period, state=state_of(kind, each, told))
        for each in (name, over)
    )
    ratios = (above / under).dropna()
    if ratios.empty:
        raise AnalysisError(f"no seed of {kind} has both {name} and {over}")
    return ratios


def state_of(kind: str, name: str, told: bool = True) -> str:
    """What a forecaster hears of the state of the system."""
    return STATES.get(kind, NO_STATE) if told and name in WITH_STATE else NO_STATE


def over_kinds(stored: Stored, values: Callable[[str], pd.Series], logarithmic: bool = True) -> pd.Series:
    """The mean over all kinds of what `values` gives for each, by seed: of ratios the geometric one. Seeds that lack a
    kind are left out, and so is a kind of which it is defined for no seed.

    Raises AnalysisError where a kind was not simulated yet, or no seed has all.
    """
    table = scored(stored)
    if missing := [kind for kind in KINDS if not len(table) or not (table["kind"] == kind).any()]:
        raise AnalysisError(f"not simulated yet: {', '.join(missing)}")
    found: dict[str, pd.Series] = {}
    for kind in KINDS:
        try:
            found[kind] = values(kind)
        except AnalysisError:
            continue
    whole = pd.DataFrame(found).dropna() if found else pd.DataFrame()
    if whole.empty:
        raise AnalysisError("no seed has all kinds of delays")
    mean = np.exp(np.log(whole).mean(axis=1)) if logarithmic else whole.mean(axis=1)
    return mean.rename("mean over kinds")


def known_onsets(stored: Stored, kind: str, name: str, told: bool = False) -> pd.Series:
    """The share of onsets that were forecast, by seed, where there were any. Raises AnalysisError for none."""
    return _later(stored, "onset_recall", kind, name, told)


def share_of(shares: pd.Series) -> Estimate:
    """The mean of shares, one per seed; its interval ends at 0 and at 1, as the shares do."""
    return as_share(mean_of(shares), whole=1.0)


def lead_over_chance(stored: Stored, kind: str, name: str, told: bool = False) -> pd.Series:
    """The recall of onsets minus the share of equal forecasts where none followed, by seed. Raises AnalysisError
    for none."""
    found = (known_onsets(stored, kind, name, told) - _later(stored, "chance", kind, name, told)).dropna()
    if found.empty:
        raise AnalysisError(f"no seed of {kind} has onsets and other rounds")
    return found


def _later(stored: Stored, column: str, kind: str, name: str, told: bool) -> pd.Series:
    state = state_of(kind, name, told)
    return per_seed(scored(stored), column, kind=kind, forecaster=name, period=LATER, state=state)


def estimated(values: pd.Series) -> Estimate:
    """The geometric mean of ratios; the arithmetic one where some are 0, as the oracle's errors are."""
    return interval_of(values) if (values > 0).all() else mean_of(values)


def estimate_or_none(values: pd.Series) -> Estimate | None:
    known = values.dropna()
    return estimated(known) if len(known) else None


def trace_error(stored: Stored, name: str, forecaster: str, unit: str = MICRO_BATCHES) -> pd.Series:
    """The error relative to the last value's, geometric mean over stages, by seed. Raises AnalysisError for none."""
    table = traces(stored)
    wanted = {"kind": name, "forecaster": forecaster, "unit": unit}
    own = select(table, wanted, status=None) if len(table) else table
    known = own.dropna(subset="relative") if len(own) else own
    if not len(known):
        raise AnalysisError(f"nothing of trace {name} was forecast")
    return known.groupby("seed")["relative"].agg(lambda each: float(np.exp(np.log(each).mean())))


def cost(stored: Stored, name: str) -> pd.Series:
    """Milliseconds of the processor for a round, by session and round. Raises AnalysisError where none were timed."""
    table = timed(stored, "forecast_costs")
    own = table[table["forecaster"] == name] if len(table) else table
    if own.empty:
        raise AnalysisError(f"the cost of {name} was not measured")
    return stored.by_round(own, own["asking_milliseconds"] + own["training_milliseconds"])
