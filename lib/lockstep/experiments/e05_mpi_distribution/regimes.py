"""How much of a step goes over the wire, for the batches, cores and links that a paper leaves unsaid.

    compute(b) = fixed + b x image         one worker's step; both are measured with two batch sizes (`batches`)
    wire(p)    = 2 (p - 1) / p x bytes x 8 / rate     an all-reduce among p hosts of a gradient of so many bytes
    share      = wire / (compute + wire)

The bytes are counted and the rate is the link's nominal one: the time that `exchange` takes on an emulated link is
mostly the work of moving those bytes on the same two cores that compute. What overlaps, and latency, are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from lockstep.analysis.rules import enough
from lockstep.analysis.statistics import AnalysisError, Estimate, interval_of, median_or_nan, per_round, select
from lockstep.analysis.verdicts import CONTRADICTED, MODEL, SUPPORTED, UNDECIDED, NotNow, Verdict, cell
from lockstep.engine.units import bits_text

BATCHES = (1, 256)
"""Images per worker from the fewest to the most that the paper may have used: it does not say."""
FASTER = 4.0
"""Cores of the paper's machines may have been so many times as fast as those here, or as slow."""
PAPER_RATE = 1e10
"""Bit/s: §4.2 speaks of a dedicated 10GB Ethernet connection."""
RATES = (1e9, 1e10, 2.5e10, 1e11)
CORES = (1, 4, 16)
"""Of a node, for the map: the cores share its batch."""
NO_BOTTLENECK, INACTIVE = 0.10, 0.50
"""A network that takes less of a step is no bottleneck; a CPU that waits for more of it is mostly inactive."""
_HOSTS = 2


@dataclass(frozen=True)
class Worker:
    """One core's step, a value per round: seconds that do not depend on the batch, and seconds of an image."""

    fixed: pd.Series
    image: pd.Series
    gradient_bytes: float

    def compute(self, batch: float) -> pd.Series:
        return self.fixed + batch * self.image

    def wire(self, rate: float, hosts: int = _HOSTS) -> float:
        return 2 * (hosts - 1) / hosts * 8 * self.gradient_bytes / rate

    def share(self, batch: float, rate: float, speed: float = 1.0) -> Estimate:
        """Of a step on the wire, on cores that are so many times as fast."""
        wire = self.wire(rate)
        return interval_of(wire / (wire + self.compute(batch) / speed))

    def batch_of(self, share: float, rate: float, cores: float = 1.0) -> Estimate:
        """From how many images of a node on its step spends less than `share` on the wire, at least one."""
        needed = cores * self.wire(rate) * (1 / share - 1)
        return interval_of(((needed - self.fixed) / self.image).clip(lower=1.0))


def worker(records: pd.DataFrame, use_case: str) -> Worker:
    """Raises NotNow without the steps of two batch sizes or without counted bytes."""
    alone = cell(records, experiment="batches", use_case=use_case, strategy="sequential")
    sizes = sorted(int(size) for size in set(select(records, alone)["global_batch_size"]))
    steps = [per_round(records, {**alone, "global_batch_size": size}, "step_seconds") for size in sizes]
    if len(sizes) < 2:
        raise AnalysisError(f"{use_case}: steps of one batch size only; what an image costs is not known")
    small, large = steps[0].align(steps[-1], join="inner")
    image = (large - small) / (sizes[-1] - sizes[0])
    kept = image > 0  # a round so disturbed that more images took less time tells nothing
    enough(int(kept.sum()), MODEL)
    return Worker((small - sizes[0] * image)[kept], image[kept], gradient_bytes(records, use_case))


def gradient_bytes(records: pd.DataFrame, use_case: str) -> float:
    """What one of two workers sends in an all-reduce: on the link where its interface counted it, headers included;
    otherwise as its rank counted it. Raises NotNow without either."""
    linked = {"experiment": "timeline", "use_case": use_case, "strategy": "mpi_allreduce", "hosts": 2}
    carried = median_or_nan(select(records, linked)["link_bytes_busiest"]) if len(records) else math.nan
    if not math.isnan(carried):
        return carried
    ranks = cell(records, experiment="weak", use_case=use_case, strategy="allreduce", workers=2)
    return float(select(records, ranks)["bytes_sent"].median())


def over_batches(found: Worker, limit: float, more: bool) -> Verdict:
    """Whether the wire takes less (`more`: more) than `limit` of a step, whatever the batch and the cores' speed.

    Supported or contradicted only if the answer is the same at both ends of what the paper leaves unsaid.
    """
    least = found.share(BATCHES[1], PAPER_RATE, 1 / FASTER)
    most = found.share(BATCHES[0], PAPER_RATE, FASTER)
    turns = found.batch_of(limit, PAPER_RATE)
    measured = (
        f"{100 * least.value:.2g} to {100 * most.value:.2g} % of a step on the wire at {bits_text(PAPER_RATE)}, "
        f"{BATCHES[1]} to {BATCHES[0]} images per worker"
    )
    side = "below" if not more else "above"
    where = f"from {turns} images per worker on" if not more else f"up to {turns} images per worker"
    why = f"{side} {limit:.0%} {where}, on cores as fast as these"
    below_everywhere, above_everywhere = most.high < limit, least.low > limit
    if below_everywhere or above_everywhere:
        holds = above_everywhere if more else below_everywhere
        chance = (most if below_everywhere else least).chance(limit)
        return Verdict(SUPPORTED if holds else CONTRADICTED, measured, why, grade=MODEL, chance=chance)
    why = f"{why}; the paper states neither its batch nor its cores"
    return Verdict(UNDECIDED, measured, why, grade=MODEL, rounds_more=math.inf)


def speedup(found: Worker, batch: float, hosts: int, rate: float, stays: bool) -> pd.Series:
    """Images/s on `hosts` over one, with so many images per host; `stays`: with so many on one, shared by all."""
    whole = batch if stays else batch * hosts
    step = found.compute(whole / hosts) + found.wire(rate, hosts)
    return found.compute(batch) * (whole / batch) / step


def regime_table(records: pd.DataFrame) -> pd.DataFrame:
    """From how many images of a node on less than NO_BOTTLENECK of a step is on the wire: a row per use case and number
    of cores of a node, and a column per link rate, named as
    a reader reads it, with `_low` and `_high` of the interval for PAPER_RATE."""
    own = records[records["experiment"] == "batches"] if len(records) else records
    table = []
    for use_case in own["use_case"].unique():
        try:
            found = worker(records, str(use_case))
        except (NotNow, AnalysisError) as error:
            table.append({"use_case": use_case, "reason": str(error)})
            continue
        for cores in CORES:
            row = {"use_case": use_case, "cores": cores, "gradient_bytes": found.gradient_bytes, "reason": ""}
            paper = found.batch_of(NO_BOTTLENECK, PAPER_RATE, cores)
            row |= {bits_text(rate): found.batch_of(NO_BOTTLENECK, rate, cores).value for rate in RATES}
            name = bits_text(PAPER_RATE)
            table.append(row | {f"{name}_low": paper.low, f"{name}_high": paper.high})
    return pd.DataFrame(table)
