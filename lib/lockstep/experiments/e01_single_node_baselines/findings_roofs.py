"""Profiles against the roofs of their own session, and what figure, tables and findings say of them.

Pooled over several processors a roof is one that no machine has, for they multiply bfloat16 at very different rates.
So all that is said of roofs is of one session, and paired by round where both were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.one_session import by_processor
from lockstep.analysis.sentences import briefly, counted, finding, listed, measure_of, network_name, sentence, times
from lockstep.analysis.statistics import interval_of, median_or_nan, per_round
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e01_single_node_baselines.grid import ROOF, ROOF_1_CORE

PEAK, COPYING = "flops_per_second", "bandwidth_bytes_per_second"
_COUNTED = {PEAK: "flops", COPYING: "bytes"}


def roof_of(cell: dict[str, Any]) -> dict[str, Any]:
    """The roof of a cell's own cores, precision and device."""
    name = ROOF_1_CORE if cell["threads_per_worker"] == 1 and cell["device"] == "cpu" else ROOF
    return {"experiment": "machine", "strategy": name, "precision": cell["precision"], "device": cell["device"]}


@once
def profiled(stored: Stored) -> tuple[Stored, str]:
    """What is stored of one session, the one that profiled the most rungs under a roof of their own, and which one that
    is: `AMD EPYC with AVX-512 BF16 (session 4)`. All, and "", where profiles and roofs are of one session alone."""
    ran = stored.records[(stored.records["status"] == "ok") & stored.records["experiment"].isin(("profile", "machine"))]
    if ran["session"].nunique() < 2:
        return stored, ""
    session = max(map(int, ran["session"].unique()), key=lambda number: _ranked(ran, number))
    own = ran[ran["session"] == session]
    (name,) = by_processor(stored, own, units=True)
    tables = dict(stored.tables)
    if not (operators := stored.table("operators")).empty:
        tables["operators"] = operators[~operators["round"].isin(ran.loc[ran["session"] != session, "round"])]
    rows = stored.records[stored.records["session"] == session]
    return replace(stored, records=rows, tables=tables), f"{name} (session {session})"


def _ranked(ran: pd.DataFrame, session: int) -> tuple[int, int, int]:
    """How many rungs a session profiled under a roof of their own, and in how many rounds, up to MIN_ROUNDS of each."""
    own = ran[ran["session"] == session]
    rounds = [
        min(len(rows), MIN_ROUNDS) for cell, rows in cells(own, "profile") if len(per_round(own, roof_of(cell), PEAK))
    ]
    return len(rounds), sum(rounds), session


def noted(title: str, stored: Stored) -> str:
    """A figure's title with the session that its rows and roofs are of."""
    _, where = profiled(stored)
    return f"{title}\nProfiles and roofs of one session: {where}" if where else title


def _rates(stored: Stored, cell: dict[str, Any], kind: str, rows: pd.DataFrame, roof: str) -> pd.Series:
    """What operators computed or moved per second, by round; of convolutions the record has the mean of a round's
    visits, which the targets read, too."""
    if kind == "convolution" and roof == PEAK:
        profile = {name: cell[name] for name in ("experiment", "use_case", "strategy", "device")}
        return per_round(stored.records, profile, PEAK)
    rates = stored.by_round(rows, rows[_COUNTED[roof]] / rows["seconds"])
    return rates[(rates > 0) & np.isfinite(rates)]


def _share(stored: Stored, cell: dict[str, Any], rates: pd.Series, roof: str) -> Estimate | None:
    """Rates over a roof: paired where they stood back to back, else the mean over the mean; None without a roof."""
    limits = per_round(stored.records, roof_of(cell), roof)
    if rates.empty or limits.empty:
        return None
    paired = (rates / limits).dropna()
    return interval_of(paired) if len(paired) else interval_of(rates).over(interval_of(limits))


def operators_against_roofs(records: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """Where a forward and backward pass goes, per profiled cell and kind of operator: of seconds medians over rounds,
    of rates means.

    Columns: use_case, strategy, precision, cores, operators, seconds, share (of the pass), flops_per_second (1/s),
    of_peak (of the measured matrix peak), bytes_per_second (B/s), of_bandwidth (of the measured copy bandwidth),
    intensity (FLOP per byte). Bytes are counted as if no operator found anything in the cache.
    """
    table, stored = [], Stored(records)
    for cell, _ in cells(records, "profile") if len(operators) else ():
        same = (operators["use_case"] == cell["use_case"]) & (operators["strategy"] == cell["strategy"])
        for kind, rows in operators[same].groupby("operators", sort=False):
            seconds, flops, moved = (median_or_nan(rows[name]) for name in ("seconds", "flops", "bytes"))
            row = {name: cell[name] for name in ("use_case", "strategy", "precision", "data_source")}
            row |= {"global_batch_size": cell["global_batch_size"], "cores": cell["threads_per_worker"]}
            row |= {"operators": kind, "seconds": seconds, "share": median_or_nan(rows["share"])}
            for roof, name, share in ((PEAK, PEAK, "of_peak"), (COPYING, "bytes_per_second", "of_bandwidth")):
                rates = _rates(stored, cell, str(kind), rows, roof)
                none = 0.0 if (rows[_COUNTED[roof]] == 0).all() else np.nan  # pooling computes nothing that is counted
                found = _share(stored, cell, rates, roof)
                row |= {name: interval_of(rates).value if len(rates) else none, share: found.value if found else none}
            row |= {"intensity": flops / moved if moved else np.nan}
            table.append(row)
    return pd.DataFrame(table)


@once
def operators_of(stored: Stored) -> pd.DataFrame:
    """`operators_against_roofs` of one session, which the column `processor` names."""
    one, where = profiled(stored)
    return operators_against_roofs(one.records, one.table("operators")).assign(processor=where)


def _of_peaks(stored: Stored) -> list[tuple[str, str, Estimate]]:
    """Of each profile: where, the kind of operators, and its rate over the measured matrix peak, whatever it is."""
    if (operators := stored.table("operators")).empty:
        raise NotNow("", "no operators were profiled in these records")
    found = []
    for cell, _ in cells(stored.records[stored.records["status"] == "ok"], "profile"):
        own = operators[(operators["use_case"] == cell["use_case"]) & (operators["strategy"] == cell["strategy"])]
        cores = counted(int(cell["threads_per_worker"]), "core")
        where = f"{network_name(str(cell['use_case']))} in {cell['precision']} on {cores}"
        for kind, rows in own[own["flops"] > 0].groupby("operators", sort=False):
            share = _share(stored, cell, _rates(stored, cell, str(kind), rows, PEAK), PEAK)
            found += [(where, str(kind), share)] if share else []
    if not found:
        raise NotNow("", "no profile was measured in one session with its matrix peak")
    return found


@finding
def roofline(stored: Stored) -> str:
    """How near the matrix peak of their session operators come, or by how much they exceed what was measured as one:
    first the one of which the most is shown, then all that have an interval, if any has."""
    one, session = profiled(stored)
    found = _of_peaks(one)
    where, kind, most = max(found, key=lambda each: (each[2].low, each[2].value))
    on = f"on {session} " if session else ""
    if most.value > 1:
        low = "is" if most.low > 1 else "may be"
        first = f"{on}the {kind} reaches {times(most, 'our matrix-product peak')}, so that peak {low} too low ({where})"
    else:
        share = measure_of(most.times(100), "%")
        first = f"{on}of our matrix-product peak the {kind} reaches the most, {share} ({where})"
    said, sure = [], [each for each in found if not each[2].open]
    for each in dict.fromkeys(where for where, _, _ in sure or found):
        own = [f"{kind}s {briefly(measure_of(share.times(100), '%'))}" for where, kind, share in found if where == each]
        said.append(f"{each}, {listed(own)}")
    others = "; of the others there are too few rounds" if len(said) < len({where for where, _, _ in found}) else ""
    return " ".join(sentence(text) for text in (first, f"of that peak reach: {'; '.join(said)}{others}"))
