"""Verdicts on scaling: Table 3, the speedup on five nodes, accuracy against workers; and on the FLOP of Table 4."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.seeds import MARGIN, diverged, mean_of, paired_points
from lockstep.analysis.statistics import AnalysisError, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import SHARED_CORES
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    cell,
    enough,
    ran,
    within,
)
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.experiments.e08_convlstm_scaling.flops import beside_table2, recomputed, table4, totals
from lockstep.experiments.e08_convlstm_scaling.table3 import FIVE_NODES
from lockstep.experiments.e08_convlstm_scaling.tables import LEARNING, one_worker_of
from lockstep.predict.cost_model import modelled

RULES = Verdicts()

PAPER_NETWORK, PAPER_EPOCHS = "convlstm", 10
SERVED = "parameter_server"
STAND_IN = "the stand-in's accuracy says nothing about the paper's images"


def _own_core(records: pd.DataFrame, claim: Claim) -> pd.DataFrame:
    """Rows of strong scaling, data parallel, in which every rank had a core of its own. Raises NotNow for none."""
    rows = modelled(records, ("strong",)) if len(records) else records
    wanted = {"use_case": claim["use_case"], "network": PAPER_NETWORK}
    good = ran(select(rows, wanted, status=None) if len(rows) else rows, f"strong scaling of {claim['use_case']}")
    return good[~good["reason"].astype(str).str.contains(SHARED_CORES)]


def _too_few(rows: pd.DataFrame, workers: int) -> NotNow:
    most = int(rows["workers"].max())
    return NotNow(
        NEEDS_HARDWARE,
        f"{workers} workers need a core each; the most that had one here are {most}: what the cost model says of more "
        "is drawn apart, and is no measurement",
    )


@RULES.add
def table3_time_ratio(claim: Claim, stored: Stored) -> Verdict:
    """The time on 5 nodes over that on more, a parameter server and the rest workers: both must have been measured."""
    nodes = int(re.findall(r"(\d+) nodes", str(claim["statement"]))[-1])
    rows = _own_core(stored.records, claim)
    rows = rows[rows["strategy"] == SERVED]
    counts = {int(count) for count in rows["workers"]}
    if not {FIVE_NODES - 1, nodes - 1} <= counts:
        raise _too_few(_own_core(stored.records, claim), nodes - 1)
    batch = int(rows["global_batch_size"].max())
    sides: list[dict[str, Any]] = [
        {"experiment": "strong", "use_case": claim["use_case"], "network": PAPER_NETWORK, "strategy": SERVED}
        | {"workers": count - 1, "global_batch_size": batch}
        for count in (FIVE_NODES, nodes)
    ]
    ratio = ratio_with_interval(stored.records, sides[0], sides[1], "step_seconds")
    return within(float(claim["value"]), ratio, f"{ratio} times, a step of {batch} images")


@RULES.add
def speedup_five_nodes(claim: Claim, stored: Stored) -> Verdict:
    """The fastest way to spread one batch, on four workers (and a server) or as many as had a core each."""
    rows = _own_core(stored.records, claim)
    rows = rows[rows["workers"] <= FIVE_NODES]
    batch, workers = int(rows["global_batch_size"].max()), int(rows["workers"].max())
    if workers == 1:
        raise _too_few(rows, FIVE_NODES - 1)
    rows = rows[(rows["workers"] == workers) & (rows["global_batch_size"] == batch)]
    shared = {"experiment": "strong", "use_case": claim["use_case"], "network": PAPER_NETWORK}
    shared |= {"global_batch_size": batch, "variant": "a"}
    best = str(rows.groupby("strategy")["images_per_second"].median().idxmax())
    base = cell(stored.records, **shared, strategy="sequential")
    ratio = ratio_with_interval(
        stored.records, shared | {"strategy": best, "workers": workers}, base, "images_per_second"
    )
    enough(ratio.rounds)
    measured = f"{ratio} times one worker, {workers} workers with a core each, batch {batch} ({STRATEGIES[best].label})"
    if workers < FIVE_NODES - 1:
        why = (
            f"{claim['value']:g} on 5 nodes is {claim['value'] / 4:.3g} times the ideal of its 4 workers and "
            f"{claim['value'] / 5:.3g} times that of 5; {workers} cores can't show what 5 nodes do"
        )
        return Verdict(NEEDS_HARDWARE, measured, why, (("", ratio),))
    return within(float(claim["value"]), ratio, measured)


# Accuracy


def _learned(records: pd.DataFrame, claim: Claim) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Cells of Figure 8: the paper's "proposed model" after its epochs, on real images. Raises NotNow for none."""
    wanted = {"experiment": LEARNING, "use_case": claim["use_case"], "network": PAPER_NETWORK, "variant": "a"}
    rows = select(records, wanted, status=None) if len(records) else records
    ran(rows, f"accuracy of {PAPER_NETWORK} on {claim['use_case']} against workers")
    if (rows["epochs"] != PAPER_EPOCHS).all():
        lengths = ", ".join(f"{count:.0f}" for count in sorted(set(rows["epochs"])))
        raise NotNow(NOT_YET, f"trained for {lengths} epochs; the paper's are {PAPER_EPOCHS}")
    rows = rows[rows["epochs"] == PAPER_EPOCHS]
    good = ran(rows, f"accuracy of {PAPER_NETWORK} on {claim['use_case']} after {PAPER_EPOCHS} epochs")
    if lost := diverged(rows):
        raise NotNow(NOT_YET, f"{lost} of {len(rows)} trainings diverged: there are no means over all seeds")
    real = good[(good["data_source"] == "real") & good["test_accuracy"].notna()]
    if real.empty:
        raise NotNow(NEEDS_HARDWARE, STAND_IN)
    return cells(real)


@RULES.add
def table3_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """The most accurate of the cells with the most workers: the same test images chose it, which favours the paper."""
    found = _learned(stored.records, claim)
    workers = max(one["workers"] for one, _ in found)
    means = [(mean_of(100 * rows["test_accuracy"]), one) for one, rows in found if one["workers"] == workers]
    mean, best = max(means, key=lambda pair: pair[0].value)
    enough(mean.rounds)
    inside = mean.low - MARGIN <= float(claim["value"]) <= mean.high + MARGIN
    text = (
        f"{mean} %, {best['network']}, {workers} workers, batch {best['global_batch_size']}, the best of {len(means)}"
    )
    why = f"the interval ± {MARGIN:g} points {'holds' if inside else 'does not hold'} {claim['value']:g}"
    why += "; Table 3 does not say on which images"
    return Verdict(SUPPORTED if inside else CONTRADICTED, text, why, (("", mean),))


@RULES.add
def scaling_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Is training on the most workers more accurate than on one, at every batch and paired by seed?"""
    found = [one for one, _ in _learned(stored.records, claim)]
    workers = max(one["workers"] for one in found)
    if workers == 1:
        raise NotNow(NOT_YET, "trained by one worker only")
    parts, signs = [], []
    for one in (each for each in found if each["workers"] == workers):
        try:
            points = paired_points(stored.records, one, one_worker_of(one))
        except AnalysisError:
            continue
        enough(points.rounds)
        parts.append(f"{one['network']}, batch {one['global_batch_size']}: {points}")
        signs.append((points.low > 0) - (points.high < 0))
    if not parts:
        raise NotNow(NOT_YET, f"no seed was trained by one worker and by {workers}")
    measured = f"{workers} workers minus one, in points: {'; '.join(parts)}"
    rises, falls = signs.count(1), signs.count(-1)
    if rises == len(signs):
        return Verdict(SUPPORTED, measured, "every interval is above 0")
    why = f"{rises} of {len(signs)} intervals are above 0, {falls} below"
    return Verdict(CONTRADICTED, measured, why)


# FLOP


@RULES.add
def flops_equation(claim: Claim, stored: Stored) -> Verdict:
    """Arithmetic on Table 4's own operands; nothing is measured."""
    table = table4()
    rows = recomputed(table)
    own = rows[rows["published_flops"] == float(claim["value"])]
    if own.empty:
        raise NotNow(NOT_YET, f"no row of Table 4 has {claim['value']:g}")
    row, network = own.iloc[0], beside_table2(table).loc[own.index[0]]
    measured = f"{row['equation_flops']:.7g} FLOP = {row['product']}"
    if not row["follows"]:
        return Verdict(CONTRADICTED, measured, "the equation gives another number")
    why = (
        f"it follows from the table's operands; these are {row['kernels_are']} and {row['outputs_are']}, and the same "
        f"layer of Table 2's network computes {network['table2_computed_flops']:,.0f} FLOP for an image"
    )
    return Verdict(SUPPORTED, measured, why)


@RULES.add
def flops_total(claim: Claim, stored: Stored) -> Verdict:
    """A printed total against the sum of Table 4: workers that share a batch compute the sum once, however many."""
    table = totals(table4())
    own = table[table["published_flops"] == float(claim["value"])]
    if own.empty:
        raise NotNow(NOT_YET, f"section 5 has no total of {claim['value']:g}")
    row = own.iloc[0]
    measured = f"{row['times_sum']:.6g} times the sum of Table 4 ({row['sharing_a_batch']:.7g} FLOP)"
    if row["follows"]:
        return Verdict(SUPPORTED, measured, "the sum, rounded; a count of one forward pass, and no rate")
    why = "more nodes share one batch, whose FLOP stay the sum; that product counts a batch for every worker"
    return Verdict(CONTRADICTED, measured, why)
