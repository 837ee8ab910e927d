"""Verdicts on what section 2 of the paper quotes from others: speed on several nodes, compressed gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.one_session import of_one_session
from lockstep.analysis.published import read_claims
from lockstep.analysis.rules import decided, enough, graded, not_below, undecided, with_seconds, within
from lockstep.analysis.seeds import MARGIN, PAIRED, paired_points
from lockstep.analysis.statistics import interval_of, per_round, ratio_or_reason, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    DECIDED,
    EMULATED,
    MODEL,
    SUPPORTED,
    TOLERANCE,
    UNDECIDED,
    Claim,
    Verdict,
    Verdicts,
    cell,
    settle,
)
from lockstep.engine.units import bits_text
from lockstep.experiments.e05_mpi_distribution import regimes
from lockstep.experiments.e05_mpi_distribution.tables import link_table

RULES = Verdicts()

DELAY = 100
"""Steps between two exchanges at the largest compression of Sattler et al. 2019, their SBC (3)."""
_ENTRY_BITS = 64  # of top-k here: an index and a value
_USE_CASE = "SimpleBig"  # of Das et al. too, networks of some hundred megabytes


def linked(records: pd.DataFrame, strategy: str, rate: float | None = None) -> dict[str, Any]:
    """Conditions of a strategy of `links`, at one rate. Raises NotNow as `cell` does."""
    more = {} if rate is None else {"link_bits_per_second": rate}
    return cell(records, experiment="links", strategy=strategy, **more)


def rates_of(records: pd.DataFrame) -> list[float]:
    """The rates (bit/s) at which uncompressed gradients were sent. Raises NotNow where none were."""
    return sorted({float(rate) for rate in select(records, linked(records, "allreduce"))["link_bits_per_second"]})


@RULES.add
def das_2_nodes(claim: Claim, stored: Stored) -> Verdict:
    """Das et al. 2016: 1.8 times the throughput on 2 nodes, for every batch that they may have used."""
    found, published = regimes.worker(stored.records, _USE_CASE), float(claim["value"])
    ends = [interval_of(regimes.speedup(found, batch, 2, regimes.PAPER_RATE, stays=False)) for batch in regimes.BATCHES]
    batches = [found.batch_of(1 - published * (1 + sign * TOLERANCE) / 2, regimes.PAPER_RATE) for sign in (-1, 1)]
    measured = (
        f"{ends[0].value:.2g} to {ends[1].value:.2g} times one node at {bits_text(regimes.PAPER_RATE)}, "
        f"{regimes.BATCHES[0]} to {regimes.BATCHES[1]} images per worker"
    )
    why = f"within ± {TOLERANCE:.0%} of {published:g} from {batches[0]} to {batches[1]} images per worker"
    found_at = [within(published, end, "") for end in ends]
    answers = {each.answer for each in found_at}
    if len(answers) == 1 and (answer := answers.pop()) in DECIDED and not _between(published, ends):
        return Verdict(answer, measured, why, grade=MODEL, chance=max(each.chance for each in found_at))
    why = f"{why}; the batch is not stated{_emulated(stored.records)}"
    return Verdict(UNDECIDED, measured, why, grade=MODEL, rounds_more=math.inf)


def _between(published: float, ends: list[Estimate]) -> bool:
    """Whether some batch between the two ends would give the published number."""
    return min(end.low for end in ends) < published < max(end.high for end in ends)


def _emulated(records: pd.DataFrame) -> str:
    """What two emulated hosts gave, where they were measured: the same two cores also move the bytes."""
    shared = {"experiment": "timeline", "use_case": _USE_CASE, "variant": "a"}
    hosts, one = ({**shared, "strategy": name} for name in ("mpi_allreduce", "sequential"))
    ratio, _ = ratio_or_reason(records, hosts, one, "images_per_second")
    if ratio is None:
        return ""
    batch = int(select(records, hosts)["per_worker_batch_size"].iloc[0])
    return f"; two emulated hosts, whose cores also move the bytes, give {ratio} at {batch} images per worker"


@RULES.add
def das_16_nodes(claim: Claim, stored: Stored) -> Verdict:
    """Das et al. 2016: 6.4 times the throughput on 16 nodes, as predicted from their own 1.8 on 2.

    They scale one batch "without altering hyper parameters" (abstract), so sixteen nodes share it. Nothing measured
    here enters: 1.8 on two nodes is a share of the wire, which an all-reduce among sixteen makes 15/8 times as long
    while each computes an eighth.
    """
    two = float(read_claims().set_index("id").loc["s2m-das-2", "value"])
    hosts, published = 16, float(claim["value"])
    compute = 1.0  # of one node
    wire = compute * (1 / two - 1 / 2)
    grown = wire * 2 * (hosts - 1) / hosts
    stays, grows = compute / (compute / hosts + grown), hosts * compute / (compute + 2 * grown)
    near = abs(stays / published - 1) <= TOLERANCE
    why = (
        f"{two:g} on 2 nodes lets one expect {stays:.3g} on {hosts} that share one batch, whatever the link and the "
        f"cores ({grows:.3g} if each had the whole batch)"
    )
    return Verdict(SUPPORTED if near else CONTRADICTED, f"{stays:.3g} times one node", why, grade=MODEL)


# Speed and bytes


@RULES.add
def terngrad_speed(claim: Claim, stored: Stored) -> Verdict:
    """Images/s of TernGrad over all-reduce without compression, over every link of `links`; the link is not stated."""
    published, parts, ratios = float(claim["value"]), [], []
    for rate in rates_of(stored.records):
        ours, base = (linked(stored.records, name, rate) for name in ("terngrad", "allreduce"))
        ratio = ratio_with_interval(stored.records, ours, base, "images_per_second")
        ratios.append(ratio)
        found = settle(partial(within, published, ratio, f"{ratio} at {bits_text(rate)}"))
        parts.append(with_seconds(found, stored.records, (ours, base)))
    measured = f"{', '.join(part.measured for part in parts)}, times all-reduce in images/s"
    reached, answers = _reached(stored, published), {part.answer for part in parts}
    why, slower = f"{published:g} times {reached}, by the bytes counted", reached.startswith("up to")
    elsewhere = _between(published, ratios) or (answers == {CONTRADICTED} and slower)  # on a link that may be meant
    if answers == {SUPPORTED} or (len(answers) == 1 and not elsewhere):
        hardest = replace(max(parts, key=lambda part: part.chance), measured=measured, numbers=parts[0].numbers)
        return graded(replace(hardest, reason=f"{hardest.reason} at every rate measured; {why}"), EMULATED)
    why = f"it depends on the link, which is not stated; {why}"
    return replace(undecided(measured, why, math.inf), numbers=parts[0].numbers, grade=EMULATED)


def _reached(stored: Stored, times: float) -> str:
    """On which links the compressed gradient would be so many times as fast, from the bytes counted on them."""
    table = link_table(of_one_session(stored, "links")[0].records)
    table = table[table["own_seconds"].notna()].drop_duplicates("strategy").set_index("strategy")
    if not {"allreduce", "terngrad"} <= set(table.index):
        return "on links that are not known"
    own, bits = table["own_seconds"], 8 * table["link_bytes_busiest"]
    gained, lost = bits["allreduce"] - times * bits["terngrad"], times * own["terngrad"] - own["allreduce"]
    if gained <= 0 or lost <= 0:
        return "at any rate" if gained > 0 else "at no rate"
    return f"up to {bits_text(gained / lost)}"


def golomb_bits(density: float) -> float:
    """The mean length of a position in Golomb's code where a share `density` of positions is sent."""
    golden = (1 + math.sqrt(5)) / 2
    power = 1 + math.floor(math.log2(math.log(golden - 1) / math.log(1 - density)))
    return power + 1 / (1 - (1 - density) ** 2**power)


@RULES.add
def sparse_compression(claim: Claim, stored: Stored) -> Verdict:
    """Counted bytes of all-reduce over those of top-k, times what the cited method saves besides: one sign for all, so
    that an entry is a position in Golomb's code, and an exchange every DELAY steps."""
    rate = rates_of(stored.records)[0]
    whole, ours = (linked(stored.records, name, rate) for name in ("allreduce", "topk"))
    sent = [interval_of(per_round(stored.records, side, "bytes_sent")) for side in (whole, ours)]
    enough(min(each.rounds for each in sent))
    counted = sent[0].over(sent[1])
    density = float(select(stored.records, ours)["density"].iloc[0])
    bits = golomb_bits(density)
    ratio = counted.times(_ENTRY_BITS / bits * DELAY)
    text = (
        f"{ratio.value:.5g} = {counted.value:.3g} (bytes counted, top-k of {density:g}) x {_ENTRY_BITS} / {bits:.3g} "
        f"(bits of an entry) x {DELAY} (steps between exchanges)"
    )
    return graded(within(float(claim["value"]), ratio, text), MODEL)


# Accuracy: the 50x50 network, uncompressed and compressed gradients with the same seeds


def _points(records: pd.DataFrame, **ours: Any) -> tuple[Estimate, tuple[dict[str, Any], dict[str, Any]]]:
    """Accuracy of a compressed gradient minus an uncompressed one's, in points over seeds, and the compared cells."""
    base = cell(records, experiment=PAIRED, strategy="allreduce")
    sides = cell(records, experiment=PAIRED, **ours), base
    return paired_points(records, *sides), sides


def _densities(records: pd.DataFrame) -> list[float]:
    return sorted(
        {float(each) for each in select(records, cell(records, experiment=PAIRED, strategy="topk"))["density"]}
    )


@RULES.add
def terngrad_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """TernGrad loses no more than the published number of points."""
    points, sides = _points(stored.records, strategy="terngrad")
    text = f"of TernGrad against uncompressed gradients over {points.rounds} seeds"
    return with_seconds(not_below(points, float(claim["value"]), "points", text), stored.records, sides)


@RULES.add
def sparse_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """What top-k loses at its largest compression, which is weaker than the cited one: a larger loss contradicts, and
    a smaller one supports nothing."""
    density = _densities(stored.records)[0]
    points, sides = _points(stored.records, strategy="topk", density=density)
    enough(points.rounds)
    published = float(claim["value"])
    measured = f"{points} points of top-k of {density:g} against uncompressed gradients over {points.rounds} seeds"
    if points.high < published - MARGIN:
        why = f"it loses more than {-published:g} ± {MARGIN:g} points, at a weaker compression"
        found = decided(CONTRADICTED, measured, why, points, [published - MARGIN])
        return with_seconds(found, stored.records, sides)
    return undecided(measured, "the cited compression is stronger: it also skips exchanges", math.inf)


@RULES.add
def fastest_costs_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Of the compressed gradients the one that sends the fewest bytes: does it cost accuracy, by the interval, or is it
    within MARGIN points of whole ones?"""
    found = []
    options: list[dict[str, Any]] = [{"strategy": "terngrad"}]
    options += [{"strategy": "topk", "density": density} for density in _densities(stored.records)]
    for option in options:
        points, sides = _points(stored.records, **option)
        sent = float(select(stored.records, sides[0])["bytes_sent"].median())
        found.append((sent, " of ".join(f"{value}" for value in option.values()), points, sides))
    sent, name, points, sides = min(found, key=lambda each: each[0])
    enough(points.rounds)
    others = ", ".join(f"{points} by {name}" for _, name, points, _ in sorted(found, key=lambda each: each[0]))
    measured = f"points against uncompressed gradients, the fewest bytes first: {others}"
    if points.high < 0:
        verdict = decided(SUPPORTED, measured, f"{name} sends least and loses accuracy", points, [0.0])
    elif points.low > -MARGIN:
        why = f"{name} sends least and is within {MARGIN:g} points of uncompressed gradients"
        verdict = decided(CONTRADICTED, measured, why, points, [-MARGIN])
    else:
        nearer = 0.0 if points.value < -MARGIN / 2 else -MARGIN
        more = points.rounds_until(nearer) - points.rounds
        verdict = undecided(measured, f"the interval of {name} holds 0 and -{MARGIN:g}", more)
    return with_seconds(verdict, stored.records, sides)
