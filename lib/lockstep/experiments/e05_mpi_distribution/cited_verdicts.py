"""Verdicts on what section 2 of the paper quotes from others: speed on several nodes, compressed gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from lockstep.analysis.published_speedups import beside, cores_of_ranks
from lockstep.analysis.statistics import MIN_ROUNDS, per_round, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, Claim, NotNow, Verdict, Verdicts, cell, within

RULES = Verdicts()

EPOCHS = 90
"""Of a run to convergence: about as many as AlexNet was trained for (Krizhevsky et al. 2012, section 5)."""
_HOURS = 3600.0


def linked(records: pd.DataFrame, strategy: str, fastest: bool) -> dict[str, Any]:
    """Conditions of a strategy of `links` at the highest or the lowest rate. Raises NotNow as `cell` does."""
    shared = {"experiment": "links", "use_case": "SimpleBig", "strategy": strategy}
    rates = select(records, shared, status=None)["link_bits_per_second"]
    if rates.empty:
        return cell(records, **shared)  # raises
    return cell(records, **shared, link_bits_per_second=float(rates.max() if fastest else rates.min()))


def _das(claim: Claim, records: pd.DataFrame, nodes: int) -> Verdict:
    """Images/s of all-reduce on `nodes` hosts over sequential training, over the fastest link of `links`."""
    ours = linked(records, "allreduce", fastest=True)
    ran = select(records, ours)
    if nodes not in set(ran["hosts"]):
        most = int(records.loc[(records["status"] == "ok") & records["images_per_second"].notna(), "hosts"].max())
        raise NotNow(NEEDS_HARDWARE, f"the most hosts that trained here are {most}, not {nodes}")
    ours |= {"hosts": nodes}
    base = cell(records, experiment="links", use_case="SimpleBig", strategy="sequential")
    return beside(claim, records, ours, base, cores_of_ranks(select(records, ours)))


@RULES.add
def das_2_nodes(claim: Claim, stored: Stored) -> Verdict:
    """Das et al. 2016: 1.8 times the throughput on 2 nodes."""
    return _das(claim, stored.records, 2)


@RULES.add
def das_16_nodes(claim: Claim, stored: Stored) -> Verdict:
    """Das et al. 2016: 6.4 times the throughput on 16 nodes."""
    return _das(claim, stored.records, 16)


@RULES.add
def terngrad_speed(claim: Claim, stored: Stored) -> Verdict:
    """Images/s of TernGrad over all-reduce of whole gradients, over the slowest link of `links`."""
    ours, base = (linked(stored.records, strategy, fastest=False) for strategy in ("terngrad", "allreduce"))
    ratio = ratio_with_interval(stored.records, ours, base, "images_per_second")
    rate = ours["link_bits_per_second"] / 1e9
    return within(float(claim["value"]), ratio, f"{ratio} over all-reduce in images/s at {rate:g} Gbit/s")


@RULES.add
def sparse_compression(claim: Claim, stored: Stored) -> Verdict:
    """Bytes that a rank sends with all-reduce over those with top-k; sending a share d gives at most 1/d times."""
    ours, base = (linked(stored.records, strategy, fastest=False) for strategy in ("topk", "allreduce"))
    ratio = ratio_with_interval(stored.records, base, ours, "bytes_sent")
    density = float(select(stored.records, ours)["density"].iloc[0])
    found = within(float(claim["value"]), ratio, f"{ratio} times fewer bytes sent, top-k of {density:g}")
    if float(claim["value"]) <= 1 / density:
        return found
    why = f"a share of {density:g} in every step can't send more than {1 / density:g} times fewer bytes; the cited "
    return replace(found, answer=NEEDS_HARDWARE, reason=f"{why}method also skips exchanges and codes what it sends")


@RULES.add
def compressed_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """What compression costs in accuracy needs runs to convergence, with it and without; says how long they take."""
    if stored.records.loc[stored.records["strategy"].isin(["topk", "terngrad"]), "test_accuracy"].notna().any():
        raise NotNow(NOT_YET, "there are scores of compressed training, but no rule to judge them by")
    base = cell(stored.records, experiment="links", use_case="SimpleBig", strategy="sequential")
    seconds = per_round(stored.records, base, "epoch_seconds")
    if seconds.empty:
        raise NotNow(NOT_YET, "the length of an epoch is not known")
    runs = 2 * MIN_ROUNDS
    hours = float(seconds.median()) * EPOCHS * runs / _HOURS
    why = f"needs {runs} runs of {EPOCHS} epochs ({MIN_ROUNDS} seeds, with and without): {hours:.3g} h of sequential"
    raise NotNow(NEEDS_HARDWARE, f"{why} training here; these records are of speed alone")
