"""Verdicts on training over MPI: its speed beside sequential training and other strategies."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.published_speedups import Expectation, core_free_ratio, implied_cores, printed, same_on_any_cores
from lockstep.analysis.rules import graded, has_more, with_seconds
from lockstep.analysis.sentences import way_name
from lockstep.analysis.statistics import AnalysisError, Estimate, is_difference, ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import PAPER, UNDECIDED, Claim, NotNow, Verdict, Verdicts, cell, each
from lockstep.experiments.e05_mpi_distribution.factors import cluster_table
from lockstep.experiments.e05_mpi_distribution.tables import HEADLINE, LOCAL, RANKING_BASE

RULES = Verdicts()

OVER_MPI, WITHOUT_MPI = "mpi_shared_memory", "processes"
"""Both are a process per core whose parameters the cores of a host share; only the first one's are MPI ranks."""


def _without_mpi(records: pd.DataFrame, use_case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """MPI ranks and processes without MPI, on the same cores of one host."""
    shared = {"experiment": "bars", "use_case": use_case}
    return cell(records, **shared, strategy=OVER_MPI, workers=2), cell(records, **shared, strategy=WITHOUT_MPI)


@RULES.add
def mpi_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 3, MPI on the CPU: how many cores it takes at least, and how MPI stands to processes of one node.

    The paper states neither cores nor nodes. By one reading MPI used the cores of that one node; by the other, as few
    nodes as could give that much more, each of which added as much as the first.
    """
    published, use_case = float(claim["value"]), str(claim["use_case"])
    ours, base = _without_mpi(stored.records, use_case)
    ratio = ratio_with_interval(stored.records, ours, base, "images_per_second")
    local = printed(use_case, "CPU multi-process")
    nodes = math.ceil(published / local)
    readings = {
        "on the cores of one node": same_on_any_cores(),
        f"on {nodes} nodes": Expectation(lambda ratio, _: ratio / nodes),
    }
    found = core_free_ratio(published, local, ratio, "times the images/s of processes without MPI", readings)
    why = f"it takes at least {implied_cores(published)} cores, one for each time it is faster; the paper states none"
    found = with_seconds(graded(found, found.grade, why), stored.records, (ours, base))
    return replace(found, numbers=_over_one_core(stored.records, use_case))


def _over_one_core(records: pd.DataFrame, use_case: str) -> tuple[tuple[str, Estimate], ...]:
    """Our own speedup, which stands beside the published one; none where it was not measured."""
    shared = {"experiment": "weak", "use_case": use_case, "device": "cpu", "precision": "float32", "variant": "a"}
    try:
        ratio = ratio_with_interval(
            records, {**shared, "strategy": "allreduce"}, {**shared, "strategy": "sequential"}, "images_per_second"
        )
    except AnalysisError:
        return ()
    return (("", ratio),) if math.isfinite(ratio.half_width) else ()


@RULES.add
def mpi_cpu_best(claim: Claim, stored: Stored) -> Verdict:
    """MPI ranks that share memory against processes without MPI, the paper's best of one node, on the same cores.

    More cores than one host's would speed MPI up for another reason than the way it works.
    """

    def one(use_case: str) -> Verdict:
        ours, base = _without_mpi(stored.records, use_case)
        return has_more(stored.records, ours, base, "times the images/s of processes without MPI, on the same cores")

    return each(claim, one)


# The headline


@RULES.add
def local_decides(claim: Claim, stored: Stored) -> Verdict:
    """Does the strategy inside each node decide the speedup of the cluster? Undecided, with what speaks against it.

    Emulated hosts share the cores of one machine: four workers on two cores measure its scheduler, and neither threads
    inside operators nor a pipeline in each node, which the paper's Figure 1 shows, stand beside them. What the paper
    prints can be held against it: a strategy that decides would leave one factor from a node to the cluster.
    """
    rows = cluster_table().to_dict("records")
    factors = ", ".join(f"{row['factor']:.3g} ({row['one node']}, {row['use_case']})" for row in rows)
    against = f"by the paper's own tables the cluster is {factors} times as fast as one node: no constant factor"
    why = (
        "emulated hosts share this machine's cores, so the scheduler is measured with them; pipelines and threads "
        "inside operators are not among the local strategies"
    )
    return Verdict(UNDECIDED, _orders(stored.records), f"{against}; {why}", grade=PAPER, rounds_more=math.inf)


def _orders(records: pd.DataFrame) -> str:
    """How many differences between local strategies on one host return on several; empty where not measured."""
    shared: dict[str, Any] = {"experiment": HEADLINE, "device": "cpu", "precision": "float32", "variant": "a"}
    counts = sorted(int(count) for count in set(records.loc[records["experiment"] == HEADLINE, "hosts"]))
    noise, orders = aa_noise(records), {}
    for hosts in counts:
        for name in LOCAL:
            here = {**shared, "hosts": hosts}
            if name == RANKING_BASE:
                continue
            try:
                ratio = ratio_with_interval(
                    records, {**here, "strategy": name}, {**here, "strategy": RANKING_BASE}, "images_per_second"
                )
            except (AnalysisError, NotNow):
                continue
            told = "" if is_difference(ratio, noise) else " (no difference)"
            orders[hosts, name] = f"{way_name(name)} {ratio}{told} on {hosts} host{'s' if hosts > 1 else ''}"
    return f"times {way_name(RANKING_BASE)}: {', '.join(orders.values())}" if orders else ""
