"""Who becomes a straggler on recorded runs, how much of it forecasters named a step before, and whether their quantiles
are honest there."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import listed
from lockstep.analysis.statistics import mean_of
from lockstep.analysis.stored import Stored
from lockstep.experiments.e10_straggler_forecasts.forecasters import BASE, BEST, CAUSAL, LABELS, LSTM, QUANTILES
from lockstep.experiments.e10_straggler_forecasts.grid import TRACE_OF
from lockstep.experiments.e10_straggler_forecasts.ratios import traces
from lockstep.experiments.e10_straggler_forecasts.tables import trace_table
from lockstep.experiments.e10_straggler_forecasts.worlds import MICRO_BATCHES

SHOWN = (BASE, BEST, LSTM)


def trace_onsets(stored: Stored, name: str, forecaster: str, unit: str = MICRO_BATCHES) -> pd.DataFrame:
    """By seed, over all stages: onsets, their number, and recall, the share of them that was named beforehand, NaN
    without onsets. Raises AnalysisError where nothing of that trace was forecast."""
    table = traces(stored)
    about = {"kind": name, "forecaster": forecaster, "unit": unit}
    for column, value in about.items():
        table = table[table[column] == value] if len(table) else table
    if table.empty:
        raise AnalysisError(f"nothing of trace {name} was forecast")
    named = (table["onsets"] * table["onset_recall"].fillna(0.0)).groupby(table["seed"]).sum()
    count = table.groupby("seed")["onsets"].sum()
    return pd.DataFrame({"onsets": count, "recall": named / count.where(count > 0)})


def seen_on_traces(stored: Stored) -> str:
    """On which recorded runs micro-batches become stragglers, and which share of them three forecasters, and the best
    of the others, named beforehand."""
    parts, without = [], []
    for name in TRACE_OF.values():
        try:
            found = {each: trace_onsets(stored, name, each) for each in CAUSAL}
        except AnalysisError:
            continue
        count = int(found[BASE]["onsets"].max())
        if not count:
            without.append(name)
            continue
        parts.append(f"of {name}'s {count} onsets {_foreseen(found)}")
    none = f"{listed(without)} {'has' if len(without) == 1 else 'have'} {'none' if parts else 'no onsets'}"
    return "; ".join([*parts, *([none] if without else [])])


def _foreseen(found: dict[str, pd.DataFrame]) -> str:
    shares = {name: mean_of(own["recall"]).value for name, own in found.items()}
    percent = {name: f"{100 * share:.2g} %" for name, share in shares.items()}
    if any(shares[name] for name in SHOWN):
        said = f"the last value foresees {percent[BASE]}, follow the best {percent[BEST]}, the LSTM {percent[LSTM]}"
    else:
        said = "the last value, follow the best, and the LSTM foresee none"
    rest = max((name for name in shares if name not in SHOWN), key=lambda name: shares[name])
    return f"{said}, no other forecaster more than {percent[rest]}"


def stragglers_of_traces(stored: Stored) -> pd.DataFrame:
    """A row per trace, unit and forecaster of SHOWN: trace, unit, forecaster, base_rate, onsets_per_stage,
    onset_recall, chance, lead_steps, and the shares of times below each quantile; means over stages and seeds."""
    table = trace_table(stored)
    if table.empty:
        return table
    quantiles = {f"below_{quantile:g}": f"below quantile {quantile:g}" for quantile in QUANTILES}
    columns = ["trace", "unit", "forecaster", "base_rate", "onsets", "onset_recall", "chance", "lead_rounds"]
    columns += quantiles
    own = table[table["forecaster"].isin(SHOWN)][columns].round(3).reset_index(drop=True)
    own = own.replace({"forecaster": LABELS})
    return own.rename(columns=quantiles | {"onsets": "onsets_per_stage", "lead_rounds": "lead_steps"})
