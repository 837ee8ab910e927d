"""Verdicts on training over MPI: its speed beside sequential training and other strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.published_speedups import beside, cores_of_ranks
from lockstep.analysis.statistics import (
    Conditions,
    Estimate,
    is_difference,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    above_one,
    cell,
    each,
    enough,
    join,
    settle,
)
from lockstep.experiments.e05_mpi_distribution.choosing import fastest
from lockstep.experiments.e05_mpi_distribution.tables import HEADLINE, LOCAL

RULES = Verdicts()

BEST_OF_MPI = "mpi_shared_memory"
RIVALS: Mapping[str, str] = {"host_threads": HEADLINE, "processes": HEADLINE, "ddp": "bars"}
"""What uses the cores of one host without MPI between its workers, and the experiment that compares it with MPI."""


def _over(records: pd.DataFrame, above: Conditions, under: Conditions, text: str) -> Verdict:
    """Whether `above` has more images/s than `under`."""
    ratio = ratio_with_interval(records, above, under, "images_per_second")
    return above_one(ratio, aa_noise(records), text)


@RULES.add
def mpi_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 3, MPI on the CPU: the fastest of the strategies that exchange gradients, batch per worker fixed."""
    shared = {"experiment": "weak", "use_case": claim["use_case"]}
    ours, chosen = fastest(stored.records, **shared)
    base = cell(stored.records, **shared, strategy="sequential")
    return beside(claim, stored.records, ours, base, cores_of_ranks(select(stored.records, ours)), chosen)


@RULES.add
def mpi_cpu_best(claim: Claim, stored: Stored) -> Verdict:
    """MPI ranks that share memory against all that uses the same cores of one host without MPI: RIVALS.

    More cores than one host's would speed MPI up for another reason than the way it works. DDP counts where `bars`
    holds it; the other rivals must have been measured before MPI may be called the best.
    """

    def one(use_case: str) -> Verdict:
        ours = cell(stored.records, experiment=HEADLINE, use_case=use_case, hosts=1, strategy=BEST_OF_MPI)
        shared = {"use_case": use_case, "hosts": 1, "workers": int(select(stored.records, ours)["workers"].max())}
        parts = []
        for rival, experiment in RIVALS.items():
            place = {"experiment": experiment, **shared}
            if experiment == HEADLINE or len(_rows(stored.records, place, rival)):
                parts.append((rival, settle(partial(_against, stored.records, place, rival))))
        return _lead(parts)

    return each(claim, one)


def _rows(records: pd.DataFrame, place: dict[str, Any], rival: str) -> pd.DataFrame:
    """Whatever became of them."""
    return select(records, {**place, "strategy": rival, "precision": "float32"}, status=None)


def _against(records: pd.DataFrame, place: dict[str, Any], rival: str) -> Verdict:
    """Whether MPI is above one rival. Raises NotNow where one of the two has no rows that ran."""
    if _rows(records, place, rival).empty:
        raise NotNow(NOT_YET, "no such rows")
    mpi, other = (cell(records, **place, strategy=strategy) for strategy in (BEST_OF_MPI, rival))
    return _over(records, mpi, other, f"times the images/s of {rival}, by {BEST_OF_MPI} on one host")


def _lead(parts: list[tuple[str, Verdict]]) -> Verdict:
    """Of comparisons with all rivals: one that MPI is not above settles it, whatever is still to be measured."""
    found = join(parts)
    if found.answer == SUPPORTED:
        return replace(found, reason=f"above {', '.join(rival for rival, _ in parts)}; {found.reason}")
    said = "beaten or equalled by" if found.answer == CONTRADICTED else "not compared with"
    why = [f"{said} {rival}: {part.reason}" for rival, part in parts if part.answer == found.answer]
    return replace(found, reason="; ".join(why))


@dataclass(frozen=True)
class Order:
    """Images/s of one local strategy over another on some number of hosts, and whether that is a difference."""

    ratio: Estimate
    differs: bool

    @property
    def sign(self) -> int:
        return int(np.sign(self.ratio.value - 1))


@dataclass(frozen=True)
class Pair:
    """Two local strategies, on one host and on several."""

    above: str
    under: str
    alone: Order
    many: Order


@RULES.add
def local_decides(claim: Claim, stored: Stored) -> Verdict:
    """Does the order of the local strategies on one host predict their order on several?

    Reproduced if every pair that differs on one host differs the same way on the most hosts there are. Hosts are
    emulated and share the cores of one machine, so one host is never compared with several.
    """

    def one(use_case: str) -> Verdict:
        shared: dict[str, Any] = {"experiment": HEADLINE, "use_case": use_case}
        rows = select(stored.records, shared | {"strategy": list(LOCAL)}, status=None)
        most = int(rows["hosts"].max()) if len(rows) else 1
        if len(rows) and most == 1:
            raise NotNow(NOT_YET, f"{use_case}: local strategies were measured on one host only")
        alone, many = shared | {"hosts": 1}, shared | {"hosts": most}
        pairs = [
            Pair(above, under, _order(stored.records, alone, above, under), _order(stored.records, many, above, under))
            for above, under in combinations(LOCAL, 2)
        ]
        return _predicted(pairs, most)

    return each(claim, one)


def _order(records: pd.DataFrame, shared: dict[str, Any], above: str, under: str) -> Order:
    sides = [cell(records, **shared, strategy=strategy) for strategy in (above, under)]
    ratio = ratio_with_interval(records, sides[0], sides[1], "images_per_second")
    enough(ratio.rounds)
    return Order(ratio, is_difference(ratio, aa_noise(records)))


def _predicted(pairs: list[Pair], most: int) -> Verdict:
    """Do the differences on one host return on `most` hosts?"""
    differ = [pair for pair in pairs if pair.alone.differs]
    kept = [pair for pair in differ if pair.many.differs and pair.alone.sign == pair.many.sign]
    turned = [pair for pair in differ if pair.many.differs and pair.alone.sign != pair.many.sign]
    tau = sum(pair.alone.sign * pair.many.sign for pair in pairs) / len(pairs)
    measured = (
        f"{len(differ)} of {len(pairs)} pairs differ on 1 host, {len(kept)} of these the same way on {most} hosts; "
        f"Kendall's tau of the medians {tau:.2g}"
    )
    if not differ:
        why = "no difference between local strategies on one host to predict from"
        return Verdict(NEEDS_HARDWARE, measured, why)
    if len(kept) == len(differ):
        return Verdict(SUPPORTED, measured, "every pair that differs on one host differs the same way on several")
    lost = (turned or [pair for pair in differ if pair not in kept])[0]
    how = "turns round" if turned else "is gone"
    seen = f"{lost.alone.ratio} on 1 host, {lost.many.ratio} on {most}"
    return Verdict(CONTRADICTED, measured, f"the difference between {lost.above} and {lost.under} {how}: {seen}")


@RULES.add
def ddl_can_be_slower(claim: Claim, stored: Stored) -> Verdict:
    """Is training on two hosts slower than in one node, with as many workers, a core each (`timeline`)?

    The node uses what it has to use, memory that its workers share; hosts have only a link between them. So the sync
    differs as well as the place, and the text says so. Records of one host alone can't answer.
    """
    shared = {"experiment": "timeline", "use_case": claim["use_case"]}
    hosts = cell(stored.records, **shared, strategy="mpi_allreduce", hosts=2)
    node = cell(stored.records, **shared, strategy="engines_shared_memory", hosts=1)
    many, few = select(stored.records, hosts), select(stored.records, node)
    workers = int(many["workers"].max())
    if workers != int(few["workers"].max()) or cores_of_ranks(many) != cores_of_ranks(few):
        raise NotNow(NOT_YET, "one node and two hosts had different numbers of workers or cores: no fair comparison")
    link = f"{many['link_bits_per_second'].max() / 1e9:g} Gbit/s link"
    text = f"times as many images/s in 1 node by shared memory as on 2 hosts by all-reduce over a {link}"
    return _over(stored.records, node, hosts, f"{text}, {workers} workers each")
