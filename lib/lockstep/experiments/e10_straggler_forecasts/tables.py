"""What notebook 10 shows as tables. What is simulated is repeated by seed, what is measured by round.

Errors stand relative to the last value's in the same world: below 1 a forecaster errs less than one that repeats what
it saw. `cause_tables` has slow loading, vanishing gradients and the parts of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.statistics import interval_of
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e10_straggler_forecasts.cause_tables import (
    denormals_table,
    gradients_table,
    input_parts_table,
    slow_loading_table,
    timed,
)
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BASE,
    BINS,
    CAUSAL,
    LABELS,
    ORACLE,
    QUANTILES,
    READINGS,
    SIMULATED,
)
from lockstep.experiments.e10_straggler_forecasts.grid import KINDS, TRACE_OF, VARIED
from lockstep.experiments.e10_straggler_forecasts.ratios import (
    EARLY,
    LATER,
    NO_STATE,
    cost,
    estimate_or_none,
    histories,
    scored,
    share_of,
    traces,
)

# What figures and tables both read


@once
def errors_table(stored: Stored) -> pd.DataFrame:
    """A row per kind of delays, forecaster, state that it was told, and period.

    Columns: kind, delays, forecaster, state, period, relative, relative_low, relative_high, seeds, and means over
    seeds: base_rate, straggler_precision, straggler_recall, f1, average_precision, onsets, onset_recall with its
    interval, chance, lead_rounds, below_0.1, below_0.5, below_0.9.
    """
    table = scored(stored)
    rows = []
    for kind in (*KINDS, *VARIED) if len(table) else ():
        for keys, own in table[table["kind"] == kind].groupby(["forecaster", "state", "period"], sort=False):
            row = dict(zip(("forecaster", "state", "period"), keys, strict=True))
            row = {"kind": kind, "delays": own["delays"].iloc[0], **row}
            row |= mean_columns(estimate_or_none(own["relative"]), "relative") | {"seeds": own["seed"].nunique()}
            row |= {name: float(own[name].mean()) for name in _MEANS}
            recalls = own["onset_recall"].dropna()
            rows.append(row | mean_columns(share_of(recalls) if len(recalls) else None, "onset_recall"))
    return pd.DataFrame(rows)


_MEANS: tuple[str, ...] = ("base_rate", "straggler_precision", "straggler_recall", "f1", "average_precision", "onsets")
_MEANS += ("chance", "lead_rounds", "below_0.1", "below_0.5", "below_0.9")


@once
def history_table(stored: Stored) -> pd.DataFrame:
    """kind, forecaster, seen_rounds, relative, relative_low, relative_high: errors with so much history."""
    table, rows = histories(stored), []
    for kind in KINDS if len(table) else ():
        for keys, own in table[table["kind"] == kind].groupby(["forecaster", "seen_rounds"], sort=False):
            row = {"kind": kind, "forecaster": keys[0], "seen_rounds": int(keys[1])}
            rows.append(row | mean_columns(estimate_or_none(own["relative"]), "relative"))
    return pd.DataFrame(rows)


@once
def trace_table(stored: Stored) -> pd.DataFrame:
    """A row per trace, unit and forecaster, geometric mean over stages: trace, unit, forecaster, relative with its
    interval, and over stages and seeds the means of memory, base_rate, onsets, onset_recall, chance, lead_rounds,
    below_0.1, below_0.5, below_0.9."""
    table, rows = traces(stored), []
    for name in TRACE_OF.values() if len(table) else ():
        for keys, own in table[table["kind"] == name].groupby(["unit", "forecaster"], sort=False):
            row = {"trace": name, "unit": keys[0], "forecaster": keys[1], "stages": own["stage"].nunique()}
            known = own.dropna(subset="relative")
            ratios = known.groupby("seed")["relative"].agg(lambda each: np.exp(np.log(each.clip(lower=1e-12)).mean()))
            row |= mean_columns(estimate_or_none(ratios), "relative")
            rows.append(row | {column: float(own[column].mean()) for column in _OF_TRACES})
    return pd.DataFrame(rows)


_OF_TRACES: tuple[str, ...] = ("memory", "base_rate", "onsets", "onset_recall", "chance", "lead_rounds")
_OF_TRACES += ("below_0.1", "below_0.5", "below_0.9")


@once
def costs_table(stored: Stored) -> pd.DataFrame:
    """forecaster, asking and training in milliseconds of a round of eight workers, and their sum with its interval."""
    table, rows = timed(stored, "forecast_costs"), []
    for name, own in table.groupby("forecaster", sort=False) if len(table) else ():
        parts = {column: float(own[column].median()) for column in ("asking_milliseconds", "training_milliseconds")}
        rows.append({"forecaster": name} | parts | mean_columns(interval_of(cost(stored, str(name))), "milliseconds"))
    return pd.DataFrame(rows)


# What the notebook shows

_TOLD = ", told the balance"  # means over kinds count it, for whoever can be told
_BOTH = {f"milliseconds{end}": f"both_milliseconds{end}" for end in ("", "_low", "_high")}


def _pivot(table: pd.DataFrame, column: str, kinds: Iterable[str], names: Iterable[str]) -> pd.DataFrame:
    """A row per kind, a column per forecaster."""
    if table.empty:
        return table
    wide = table.pivot_table(index="kind", columns="forecaster", values=column, sort=False)
    wide = wide.reindex(index=[kind for kind in kinds if kind in wide.index])
    wide = wide.reindex(columns=[name for name in names if name in wide.columns])
    return wide.rename(columns=LABELS).round(3)


def _errors(period: str, kinds: Iterable[str] = KINDS) -> Callable[[Stored], pd.DataFrame]:
    def shown(stored: Stored) -> pd.DataFrame:
        table = errors_table(stored)
        if len(table):
            table = table[(table["period"] == period) & table["kind"].isin(list(kinds))]
            table = table.assign(kind=table["kind"].where(table["state"] == NO_STATE, table["kind"] + _TOLD))
        return _pivot(table, "relative", dict.fromkeys(table.get("kind", ())), (*SIMULATED, ORACLE))

    return shown


def _stragglers(stored: Stored) -> pd.DataFrame:
    """What the last value and the LSTM knew of stragglers beforehand, and what is told the state of the system."""
    table = errors_table(stored)
    if table.empty:
        return table
    table = table[(table["period"] == LATER) & table["kind"].isin(KINDS)]
    shown = table["forecaster"].isin((BASE, *READINGS.values())) | (table["state"] != NO_STATE)
    columns = ["kind", "forecaster", "state", "base_rate", "f1", "average_precision", "onsets", "onset_recall"]
    columns += ["onset_recall_low", "onset_recall_high", "chance", "lead_rounds"]
    known = table[shown][columns].round(3).reset_index(drop=True).replace({"forecaster": LABELS})
    return known.rename(columns={"lead_rounds": "lead_steps"})


def _calibration(stored: Stored) -> pd.DataFrame:
    """A row per kind: the share of times below each quantile of three forecasters."""
    table = errors_table(stored)
    if table.empty:
        return table
    own = table[(table["period"] == LATER) & (table["state"] == NO_STATE) & table["kind"].isin(KINDS)]
    parts: dict[str, pd.Series] = {}
    for name in ("median", *READINGS.values()):
        one = own[own["forecaster"] == name].set_index("kind")
        parts |= {f"{LABELS[name]}, {quantile:g}": one[f"below_{quantile:g}"] for quantile in QUANTILES}
    return pd.DataFrame(parts).round(3)


def _history(stored: Stored) -> pd.DataFrame:
    table = history_table(stored)
    if table.empty:
        return table
    own = table[table["forecaster"].isin(READINGS.values())]
    wide = own.pivot_table(index=["kind", "forecaster"], columns="seen_rounds", values="relative", sort=False)
    wide = wide.reindex(columns=[first for first in BINS if first in wide.columns]).round(3)
    return wide.rename(index=LABELS, level="forecaster").rename_axis(columns="seen_steps")


def _traces(stored: Stored) -> pd.DataFrame:
    table = trace_table(stored)
    if table.empty:
        return table
    own = table[table["forecaster"].isin(CAUSAL)].round({"memory": 3, "base_rate": 3})
    rows = ["trace", "unit", "memory", "base_rate"]
    wide = own.pivot_table(index=rows, columns="forecaster", values="relative", sort=False)
    return wide.reindex(columns=list(CAUSAL)).rename(columns=LABELS).round(3)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "errors": _errors(LATER),
    "errors_early": _errors(EARLY),
    "varied": _errors(LATER, VARIED),
    "stragglers": _stragglers,
    "calibration": _calibration,
    "history": _history,
    "traces": _traces,
    "costs": lambda stored: costs_table(stored).round(4).replace({"forecaster": LABELS}).rename(columns=_BOTH),
    "slow_loading": lambda stored: slow_loading_table(stored).round(3),
    "denormals": lambda stored: denormals_table(stored).round(4),
    "gradients": lambda stored: gradients_table(stored),
    "input_parts": lambda stored: input_parts_table(stored).round(3),
}
