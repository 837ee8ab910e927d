"""How well the cost model predicts: every cell that it describes beside its measured time, and the error of those that
it was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, outcome
from lockstep.analysis.confidence import AnalysisError, Estimate, estimate
from lockstep.analysis.statistics import interval_of, median_or_nan
from lockstep.analysis.tables import SHARED_CORES, ratio_columns
from lockstep.predict.cost_model import CALIBRATION, HELD_OUT, Costs, calibrated, modelled, networks
from lockstep.predict.link_model import AlphaBeta, link_of

PART = {name: "calibration" for name in CALIBRATION} | {name: "held out" for name in HELD_OUT}


def check_table(records: pd.DataFrame) -> pd.DataFrame:
    """A row per cell that the model describes: its measured time and the modelled one.

    Columns: part (calibration | held out), experiment, use_case, network, strategy, hosts, workers, servers,
    global_batch_size, time_shared (more workers than cores), step_seconds (measured), modelled_step_seconds, ratio,
    low, high (modelled / measured, per round), rounds, error (|ratio - 1|), status, reason.
    """
    table = []
    for use_case, network in networks(records):
        own = records[(records["use_case"] == use_case) & (records["network"] == network)]
        try:
            costs: Costs | None = calibrated(records, use_case, network)
            lacking = ""
        except AnalysisError as error:
            costs, lacking = None, str(error)
        for cell, rows in cells(modelled(own)):
            table.append(_checked(cell, rows, costs, _link(records, cell), lacking))
    return pd.DataFrame(table)


def _link(records: pd.DataFrame, cell: Mapping[str, Any]) -> AlphaBeta | None:
    """The link between emulated hosts, from ping-pong over links of the same rate; None where it was not measured."""
    if cell["hosts"] == 1:
        return None
    try:
        return link_of(records[records["link_bits_per_second"] == cell["link_bits_per_second"]])
    except AnalysisError:
        return None


def _checked(
    cell: Mapping[str, Any], rows: pd.DataFrame, costs: Costs | None, link: AlphaBeta | None, lacking: str
) -> dict[str, Any]:
    status, reason = outcome(rows)
    row: dict[str, Any] = {"part": PART[cell["experiment"]]}
    kept = ("experiment", "use_case", "network", "strategy", "hosts", "workers", "servers", "global_batch_size")
    row |= {name: cell[name] for name in kept}
    row |= {"time_shared": bool(rows["reason"].astype(str).str.contains(SHARED_CORES).any())}
    measured = rows.loc[rows["status"] == "ok", "step_seconds"].astype(float)
    ratio, seconds = None, math.nan
    try:
        if costs is None:
            raise AnalysisError(lacking)
        seconds = costs.step_seconds(cell, link)
        ratio = interval_of(seconds / measured) if len(measured) else None
    except AnalysisError as error:
        reason = "; ".join(filter(None, (reason, str(error))))
    row |= {"step_seconds": median_or_nan(measured), "modelled_step_seconds": seconds}
    row |= ratio_columns(ratio, "ratio") | {"rounds": ratio.rounds if ratio else 0}
    row |= {"error": abs(ratio.value - 1) if ratio else math.nan}
    return row | {"status": status, "reason": reason}


def error_table(table: pd.DataFrame) -> pd.DataFrame:
    """The errors in a `check_table`: number of cells, median and worst |error|, for each part and kind of cell (one
    worker per core, workers that take turns on a core, emulated hosts), and for each part as a whole."""
    known = table[table["error"].notna()] if len(table) else table
    rows: list[dict[str, Any]] = []
    for part in dict.fromkeys(known["part"]) if len(known) else ():
        own = known[known["part"] == part]
        kind = np.where(
            own["hosts"] > 1, "emulated hosts", np.where(own["time_shared"], "turns on a core", "a core each")
        )
        for name, group in [("all", own), *own.groupby(kind)]:
            row = {"part": part, "cells_are": name, "cells": len(group)}
            rows.append(row | {"median_error": group["error"].median(), "worst_error": group["error"].max()})
    return pd.DataFrame(rows)


def held_out_error(records: pd.DataFrame) -> tuple[Estimate, int, list[str]]:
    """The mean of |log(ratio)| of `check_table` over held-out cells, as a share (0.05 is 5 %), with an interval over
    cells: cells are what the model is asked about, and rounds of one cell err alike. Also the number of these cells,
    and why others were left out. Raises AnalysisError if there are none."""
    errors: list[float] = []
    lacking: dict[str, None] = {}
    for use_case, network in networks(records):
        costs = calibrated(records, use_case, network)
        own = modelled(records, HELD_OUT)
        own = own[(own["use_case"] == use_case) & (own["network"] == network) & (own["status"] == "ok")]
        for cell, rows in cells(own):
            try:
                seconds = costs.step_seconds(cell, _link(records, cell))
            except AnalysisError as error:  # a strategy or a link that nobody measured
                lacking[str(error)] = None
                continue
            errors.append(abs(math.log(interval_of(seconds / rows["step_seconds"].astype(float)).value)))
    if not errors:
        raise AnalysisError(f"no ok cell of {' or '.join(HELD_OUT)} that the model speaks of")
    return estimate(errors, logarithmic=False), len(errors), list(lacking)
