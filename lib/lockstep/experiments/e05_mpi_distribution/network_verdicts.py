"""Verdicts on what MPI training does to the network, and what waiting for it does to the CPU."""

from __future__ import annotations

from lockstep.analysis.rules import enough, graded, within
from lockstep.analysis.statistics import interval_of, per_round, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import BOUND, Claim, Verdict, Verdicts, cell, each
from lockstep.experiments.e05_mpi_distribution import regimes

RULES = Verdicts()

KIB = 1024
EXCLUDE = (
    "where a CPU waits for the network during most of a step, the network is a bottleneck, and the paper finds none"
)


@RULES.add
def network_no_bottleneck(claim: Claim, stored: Stored) -> Verdict:
    """The share of a step on the wire, below a tenth: without the network training would hardly be faster.

    Of counted bytes over the link's nominal rate and a measured step, for every batch that the paper may have used.
    """

    def one(use_case: str) -> Verdict:
        return regimes.over_batches(regimes.worker(stored.records, use_case), regimes.NO_BOTTLENECK, more=False)

    return each(claim, one)


@RULES.add
def cpu_inactive(claim: Claim, stored: Stored) -> Verdict:
    """The share of a step in which the cores have nothing to do but wait for the network, above a half.

    CPU use as measured here can't tell: MPI looks for messages without pause, so waiting keeps a core busy.
    """

    def one(use_case: str) -> Verdict:
        found = regimes.over_batches(regimes.worker(stored.records, use_case), regimes.INACTIVE, more=True)
        return graded(found, found.grade, EXCLUDE)

    return each(claim, one)


@RULES.add
def network_peak(claim: Claim, stored: Stored) -> Verdict:
    """KiB per step through the busiest link, in its busier direction; the paper gives no unit of time.

    Whatever that unit is, a peak is at least the mean: so few bytes per second are a step of hours.
    """

    def one(use_case: str) -> Verdict:
        found = cell(stored.records, experiment="weak", use_case=use_case, strategy="allreduce", workers=2)
        sent = per_round(stored.records, found, "bytes_sent") / KIB
        enough(len(sent))
        ratio, published = interval_of(sent), float(claim["value"])
        hours = ratio.value / published / 3600
        why = f"per second it would be a step of {hours:.2g} hours"
        batch = int(select(stored.records, found)["global_batch_size"].iloc[0])
        text = f"{ratio} KiB sent by each of two ranks per step, headers not counted, at any batch (here {batch})"
        return graded(within(published, ratio, text), BOUND, why)

    return each(claim, one)
