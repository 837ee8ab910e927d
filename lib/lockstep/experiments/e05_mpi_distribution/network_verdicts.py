"""Verdicts on what MPI training does to the network, and what waiting for it does to the CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd

from lockstep.analysis.statistics import AnalysisError, interval_of, per_round, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import trace_table
from lockstep.analysis.verdicts import (
    NEEDS_HARDWARE,
    NOT_YET,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    above_one,
    below,
    cell,
    cores_given,
    each,
    enough,
    join,
    settle,
    within,
)

RULES = Verdicts()

BOTTLENECK_PERCENT = 10.0
"""A network that takes less of a step than this is no bottleneck: without it training would hardly be faster."""
INACTIVE_PERCENT = 50.0
"""A CPU that is used less than this is mostly inactive."""
LOW_IO_WAIT_PERCENT = 5.0
"""Less I/O wait than this is little; the paper speaks of a low percentage and gives none."""
BUSY_WAITING = (
    "MPI here moves bytes and waits by looking, so waiting for the network keeps cores busy: the CPU use that was "
    "measured includes that"
)
STRATEGY = "mpi_allreduce"
KIB = 1024


def _distributed(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    """All-reduce over several hosts and a link, as `timeline` traces it. Raises NotNow as `cell` does."""
    return cell(records, experiment="timeline", use_case=use_case, strategy=STRATEGY)


def _link(records: pd.DataFrame, ours: dict[str, Any]) -> str:
    rate = float(select(records, ours)["link_bits_per_second"].max())
    return f"{rate / 1e9:g} Gbit/s link"


@RULES.add
def network_no_bottleneck(claim: Claim, stored: Stored) -> Verdict:
    """The share of a step that goes into exchanging gradients, below BOTTLENECK_PERCENT.

    The wait at the barrier before it does not count: it is for the slowest rank's gradients, not for the network.
    """

    def one(use_case: str) -> Verdict:
        ours = _distributed(stored.records, use_case)
        exchange, step = (per_round(stored.records, ours, f"{name}_seconds") for name in ("exchange", "step"))
        shares = (100 * exchange / step).dropna()
        enough(len(shares))
        return below(
            interval_of(shares), BOTTLENECK_PERCENT, "%", f"of a step in exchange, {_link(stored.records, ours)}"
        )

    return each(claim, one)


@RULES.add
def network_peak(claim: Claim, stored: Stored) -> Verdict:
    """KiB per step through the busiest link, in its busier direction; the paper gives no unit of time."""

    def one(use_case: str) -> Verdict:
        ours = _distributed(stored.records, use_case)
        carried = per_round(stored.records, ours, "link_bytes_busiest") / KIB
        enough(len(carried))
        ratio = interval_of(carried)
        return within(float(claim["value"]), ratio, f"{ratio} KiB per step, {_link(stored.records, ours)}")

    return each(claim, one)


@RULES.add
def finer_split_more_traffic(claim: Claim, stored: Stored) -> Verdict:
    """Bytes through all links per exchange: do more workers, each on a host of its own, send more?

    From experiment `traffic`: the gradients of a model, or a message of one size, summed by 2, 3, ... workers.
    """
    rows = select(stored.records, {"experiment": "traffic", "strategy": STRATEGY, "variant": "a"}, status=None)
    rows = rows[rows["message_bytes"] == rows["message_bytes"].max()] if len(rows) else rows
    parts = []
    for use_case, own in rows.groupby("use_case", sort=False):
        shared = {"experiment": "traffic", "strategy": STRATEGY, "use_case": use_case}
        shared["message_bytes"] = int(own["message_bytes"].max())
        for few, many in pairwise(sorted(int(count) for count in set(own["workers"]))):
            found = settle(partial(_more_bytes, stored.records, shared, few, many))
            parts.append((f"{use_case}, {few} to {many}", found))
    if not parts:
        raise NotNow(NOT_YET, "no records of one exchange among different numbers of workers")
    return join(parts)


def _more_bytes(records: pd.DataFrame, shared: dict[str, Any], few: int, many: int) -> Verdict:
    above, under = (cell(records, **shared, workers=workers) for workers in (many, few))
    ratio = ratio_with_interval(records, above, under, "link_bytes_sent")
    return above_one(ratio, 0.0, f"times the bytes through all links, {many} workers over {few}")


# Figure 5a


def _trace(records: pd.DataFrame, resources: pd.DataFrame | None, use_case: str, column: str) -> pd.Series:
    """A column of `trace_table`, one value per round. Raises NotNow without a trace or what it lacks."""
    _distributed(records, use_case)  # raises with the reason of rows that did not run
    if resources is None or resources.empty:
        raise NotNow(NOT_YET, "no resource traces were stored")
    wanted = {"experiment": "timeline", "use_case": use_case, "strategy": STRATEGY}
    traces = select(resources, wanted, status=None)
    if traces.empty:
        raise NotNow(NOT_YET, f"no resource trace of {use_case} with {STRATEGY}")
    table = trace_table(traces)
    if table["round"].duplicated().any():
        raise AnalysisError(f"several traces of {use_case} with {STRATEGY} in one round")
    return table.set_index("round")[column].dropna()


@RULES.add
def cpu_inactive(claim: Claim, stored: Stored) -> Verdict:
    """Mean CPU use during the measured steps, when images are being decoded as training goes, of the cell's cores.

    It counts what waiting itself uses (BUSY_WAITING), so it can refute the claim for this MPI only.
    """

    def one(use_case: str) -> Verdict:
        cores = cores_given(select(stored.records, _distributed(stored.records, use_case)))
        use = _trace(stored.records, stored.table("resources"), use_case, "cpu_percent_mean") / cores
        enough(len(use))
        return below(interval_of(use), INACTIVE_PERCENT, "%", f"of {cores} cores in use")

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; {BUSY_WAITING}") if found.measured else found


@RULES.add
def low_io_wait(claim: Claim, stored: Stored) -> Verdict:
    """Mean I/O wait of the whole machine during the measured steps."""

    def one(use_case: str) -> Verdict:
        waited = _trace(stored.records, stored.table("resources"), use_case, "io_wait_percent_mean")
        if waited.empty:
            raise NotNow(NEEDS_HARDWARE, "this system does not tell how long it waits for I/O")
        enough(len(waited))
        return below(interval_of(waited), LOW_IO_WAIT_PERCENT, "%", "of the time in I/O wait")

    return each(claim, one)
