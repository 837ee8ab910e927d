"""What can be said of the paper's claims about GPUs where no GPU measured them, each with its grade.

    paper    the text against the paper's own tables
    bound    N GPUs give at most N times what one gives
    model    what 95 % of the draws of `lockstep.predict.gpus` hold; memory counted by `lockstep.predict.gpu_memory`

Whatever GPUs did measure stands above all of these (`measured_or`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from lockstep.analysis.anytime import AMONG_MANY, MISS
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.published_speedups import printed
from lockstep.analysis.rules import enough
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    PAPER,
    SUPPORTED,
    TOLERANCE,
    UNDECIDED,
    USE_CASES,
    Claim,
    Verdict,
    settle,
    use_cases,
)
from lockstep.predict import gpu_memory, gpus
from lockstep.predict.networks import network

TWO_GPUS = "measuring it takes one host with two CUDA GPUs of one kind"
FOUR_GPUS = "measuring it takes one host with four CUDA GPUs of one kind"
ONE_GPU = "measuring it takes one CUDA GPU"
GPU_NODES = "measuring it takes several hosts with CUDA GPUs behind one 10 Gbit/s Ethernet"
_COUNTS = (2, 4, 8)
_CROWD = 4  # processes on one GPU, beside two
_REPLICAS = 2
_AS_MUCH = 0.99


def measured_or(measured: Callable[[], Verdict], otherwise: Callable[[], Verdict], hardware: str) -> Verdict:
    """What GPUs measured; where there are no such records, what can be said without, and what measuring would take."""
    found = settle(measured)
    return found if found.answer not in (NEEDS_HARDWARE, NOT_YET) else without_gpus(otherwise, hardware)


def without_gpus(otherwise: Callable[[], Verdict], hardware: str) -> Verdict:
    """What can be said without, and what measuring would take: of what no record holds, GPUs or not."""
    instead = settle(otherwise)
    return replace(instead, reason="; ".join(part for part in (instead.reason, hardware) if part))


def only_measured(measured: Callable[[], Verdict], hardware: str) -> Verdict:
    """For what neither the paper's tables nor a model speak of: a measurement, or the hardware that it takes."""
    found = settle(measured)
    if found.answer not in (NEEDS_HARDWARE, NOT_YET):
        return found
    return replace(found, answer=NEEDS_HARDWARE, reason=f"{found.reason}; {hardware}")


# The paper against itself


Printed = tuple[str, float]
"""What a table calls a speedup, and the speedup."""


def of_table(use_case: str, row: str, table: str, device: str = "cuda") -> Printed:
    name = f"{row}, {table.replace('table', 'Table ')}"
    return name, printed(use_case, row, device, table)


def in_tables(pairs: Iterable[tuple[str, Printed, Printed]]) -> Verdict:
    """Whether the paper's tables say what its text says: in each pair the first speedup above the second."""
    measured, against = [], []
    for use_case, (above, high), (under, low) in pairs:
        measured.append(f"{use_case}: {high:g} ({above}) to {low:g} ({under})")
        if high <= low:
            against.append(f"{use_case}: {above} is not above {under}")
    why = "; ".join(against) or "the text says what the paper's own tables say"
    return Verdict(CONTRADICTED if against else SUPPORTED, "; ".join(measured), why, grade=PAPER)


# Bounds


def over_one_gpu(claim: Claim, what: str) -> Verdict:
    """A published speedup against the most that the GPUs which the paper describes can give over one of them."""
    published, use_case = float(claim["value"]), str(claim["use_case"])
    most = gpus.GPUS_DESCRIBED
    measured = f"at most {most} over one GPU, by the {most} GPUs of §3.3.1"
    if published <= most:
        return Verdict(UNDECIDED, measured, f"{published:g} is possible", grade=BOUND, rounds_more=math.inf)
    fits = " and one GPU's memory holds it" if gpu_memory.processes_that_fit(use_case, 8, 32, gpu_memory.HIGH) else ""
    why = (
        f"{what} computes what one GPU computes{fits}, so N GPUs give at most N: {published:g} takes at least "
        f"{gpus.fewest_gpus(published)} GPUs, or a base that is no GPU, or one that waits for its images more than the "
        "pipeline does; the paper states neither base nor number"
    )
    return Verdict(CONTRADICTED, measured, why, grade=BOUND)


# The model


def within_range(published: float, found: gpus.Range, text: str) -> Verdict:
    """As `lockstep.analysis.rules.within`, by what 95 % of all draws hold: a range of assumptions and of no sample, so
    that no chance is involved."""
    low, high = published * (1 - TOLERANCE), published * (1 + TOLERANCE)
    measured = f"{found} {text}"
    if low <= found.low and found.high <= high:
        return Verdict(SUPPORTED, measured, f"all of it lies within {published:g} ± {TOLERANCE:.0%}", (), MODEL)
    if found.high < low or found.low > high:
        return Verdict(CONTRADICTED, measured, f"all of it lies outside {published:g} ± {TOLERANCE:.0%}", (), MODEL)
    why = f"{published:g} is possible: what the paper leaves unsaid decides"
    return Verdict(UNDECIDED, measured, why, grade=MODEL, rounds_more=math.inf)


def in_all_draws(holds: np.ndarray, measured: str, why: str) -> Verdict:
    """Supported if something holds in nearly all draws, contradicted if in nearly none."""
    share = f"holds in {holds.mean():.1%} of the draws: {why}"
    if (against := gpus.chance_that(~holds)) <= MISS:
        return Verdict(SUPPORTED, measured, share, grade=MODEL, chance=against)
    if (favour := gpus.chance_that(holds)) <= MISS:
        return Verdict(CONTRADICTED, measured, share, grade=MODEL, chance=favour)
    return Verdict(UNDECIDED, measured, share, grade=MODEL, rounds_more=math.inf)


_UNSAID = (
    f"which GPUs, {gpus.BATCHES[0]} to {gpus.BATCHES[1]} images per GPU, what of PCIe arrives, how gradients are summed"
)


def data_parallel_speedup(claim: Claim) -> Verdict:
    """Table 1's speedups over GPUs: the model's range for the two GPUs of section 3.3.1, and for more."""
    use_case, published = str(claim["use_case"]), float(claim["value"])
    ranges = {count: gpus.range_of(gpus.data_parallel(use_case, count, gpus.drawn_machines())) for count in _COUNTS}
    found = within_range(published, ranges[gpus.GPUS_DESCRIBED], "times one GPU by two, modelled")
    more = ", ".join(f"{each} by {count}" for count, each in ranges.items() if count != gpus.GPUS_DESCRIBED)
    return replace(found, reason=f"{found.reason} ({_UNSAID}); {more} GPUs")


def simple_big_gains_least() -> Verdict:
    """Data parallel training of AlexNet gains less than that of VGG16 on the same GPUs at the same batch."""
    drawn = gpus.drawn_machines()
    big, small = (gpus.data_parallel(name, gpus.GPUS_DESCRIBED, drawn) for name in ("SimpleBig", "ComplexSmall"))
    ratio, less = gpus.range_of(big / small), (big < _AS_MUCH * small).mean()
    kilo = {name: network(name).gradient_bytes / network(name).training_flops * 1e9 for name in USE_CASES}
    why = (
        f"no more, and less in {less:.0%}, on the same GPUs with as many images; AlexNet sends "
        f"{kilo['SimpleBig'] / kilo['ComplexSmall']:.3g} times as many bytes of gradients per FLOP as VGG16. How many "
        "photos there are, which the paper puts it down to, is in no step's time"
    )
    return in_all_draws(big <= small, f"{ratio} (SimpleBig's speedup over ComplexSmall's, two GPUs, modelled)", why)


def model_against_data() -> str:
    """A remark: how often a pipeline over two GPUs is ahead of data parallelism over the same."""
    drawn, shares = gpus.drawn_machines(), []
    for name in USE_CASES:
        ahead = gpus.pipeline(name, drawn) > gpus.data_parallel(name, gpus.GPUS_DESCRIBED, drawn)
        shares.append(f"{name} in {ahead.mean():.0%}")
    return f"modelled on two equal GPUs, the pipeline is ahead in part of the draws only: {', '.join(shares)}"


def mpi_speedup(claim: Claim) -> Verdict:
    """Table 3's speedups over GPUs: how large batches must be on how many nodes, for an Ethernet between them."""
    use_case, published = str(claim["use_case"]), float(claim["value"])
    fewest = gpus.fewest_gpus(published)
    counts = sorted({fewest, *(count for count in (8, 16, 32, 64) if count > fewest)})
    needed = {count: gpus.fewest_images(use_case, published, count) for count in counts}
    parts = [f"{each} images per GPU on {count} nodes" for count, each in needed.items()]
    other, drawn = next(name for name in USE_CASES if name != use_case), gpus.drawn_machines()
    least = (gpus.data_parallel("ComplexSmall", 16, drawn, 16) > gpus.data_parallel("SimpleBig", 16, drawn, 16)).mean()
    why = (
        f"possible from {fewest} GPUs on, with these batches or larger ones; nodes, GPUs per node and batch are not "
        f"stated. On the same nodes at the same batch VGG16 gains more than AlexNet in {least:.0%} of the draws, while "
        f"Table 3 prints {published:g} beside {printed(other, 'MPI', 'cuda', 'table3'):g} for {other}"
    )
    measured = f"{published:g} times one GPU takes, modelled: {', '.join(parts)}"
    return Verdict(UNDECIDED, measured, why, grade=MODEL, rounds_more=math.inf)


def gpu_over_cpu(use_case: str, best: Estimate, cores: int) -> Verdict:
    """One GPU's modelled images/s over the best that this machine's CPU was measured at. The chance is that of the
    draws against it, and that of an interval of the CPU's which misses, at whichever level is the kinder."""
    enough(best.rounds, MODEL)
    rate = gpus.images_per_second(use_case, gpus.drawn_machines())
    whole, (low, high) = gpus.range_of(rate / best.value), (float(np.quantile(rate, end)) for end in (0.025, 0.975))
    slowest = gpus.Range(whole.value, low / best.high, high / best.low if best.low > 0 else math.inf)
    why = (
        f"GPUs of {gpus.specifications()['year'].min():.0f} to {gpus.specifications()['year'].max():.0f} at "
        f"{gpus.UTILISATION[0]:.0%} to {gpus.UTILISATION[1]:.0%} of their peak; {slowest.low * cores:.0f} cores such "
        "as these would keep up with the slowest of them"
    )
    measured = f"{slowest} times the images/s of {cores} cores, modelled"
    reason = f"holds in {(rate > best.high).mean():.1%} of the draws: {why}"
    ends = {miss: best.ends(miss) for miss in (0.01, AMONG_MANY, 1e-4)}
    slower = min(miss + gpus.chance_that(rate <= top) for miss, (_, top) in ends.items())
    faster = min(miss + gpus.chance_that(rate >= bottom) for miss, (bottom, _) in ends.items())
    if min(slower, faster) > MISS:
        return Verdict(UNDECIDED, measured, f"on {cores} cores here; {reason}", grade=MODEL, rounds_more=math.inf)
    return Verdict(SUPPORTED if slower < faster else CONTRADICTED, measured, reason, (), MODEL, min(slower, faster))


# Memory

_ENDS = (gpu_memory.LOW, gpu_memory.HIGH)
_SIZES = f"GPUs of {', '.join(map(str, gpu_memory.MEMORIES_GB))} GB"


def processes_overflow(claim: Claim) -> Verdict:
    """Do two processes on one GPU usually overflow its memory? Usually: in more than half of the sizes of GPU and
    batch that one process fits."""
    parts, shares = [], []
    for use_case in use_cases(claim):
        two, crowd = ([gpu_memory.overflow_share(use_case, end, count) for end in _ENDS] for count in (2, _CROWD))
        shares.append(two)
        parts.append(
            f"{use_case}: two processes overflow in {_from_to(two)} of the cases, {_CROWD} in {_from_to(crowd)}; two "
            f"fit up to {_largest_batches(use_case)}"
        )
    why = (
        f"cases: {_SIZES}, {gpu_memory.BATCHES[0]} to {gpu_memory.BATCHES[-1]} images per process, where one process "
        "fits; counted tensors, and a range for context, workspaces and slack"
    )
    # One use case in which they usually fit contradicts it.
    answer = SUPPORTED if min(min(two) for two in shares) > 0.5 else UNDECIDED
    answer = CONTRADICTED if min(max(two) for two in shares) < 0.5 else answer
    return Verdict(answer, "; ".join(parts), why, grade=MODEL, rounds_more=math.inf)


def _from_to(shares: Sequence[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"


def _largest_batches(use_case: str) -> str:
    """Of two processes, where each takes as much as it may."""
    share = gpu_memory.whole(use_case)
    return ", ".join(
        f"{share.largest_batch(memory, 2, gpu_memory.HIGH)} images each on {memory} GB"
        for memory in gpu_memory.MEMORIES_GB
    )


def hybrid_memory(claim: Claim) -> Verdict:
    """Largest global batches of one pipeline over two GPUs, and of two replicas of it that share them."""
    parts, smaller = [], []
    for use_case in use_cases(claim):
        for end, name in zip(_ENDS, ("at most", "at least"), strict=True):
            pairs = [gpu_memory.hybrid_batches(use_case, memory, _REPLICAS, end) for memory in gpu_memory.MEMORIES_GB]
            smaller += [hybrid < alone for alone, hybrid in pairs]
            parts.append(f"{use_case}, {name}: {', '.join(f'{hybrid} for {alone}' for alone, hybrid in pairs)}")
    why = (
        "largest global batches of two replicas that share two GPUs, for that of one pipeline over them, on "
        f"{_SIZES}; below them no batch has to shrink. Replicas on GPUs of their own need no more of any GPU, but the "
        "paper speaks of more space on each"
    )
    answer = SUPPORTED if all(smaller) else CONTRADICTED if not any(smaller) else UNDECIDED
    return Verdict(answer, "; ".join(parts), why, grade=MODEL, rounds_more=math.inf)


def cpu_per_image(claim: Claim, decoded_over_trained: Callable[[], Estimate]) -> Verdict:
    """Figure 4a's CPU use beside Figure 3's: the same decoding per image, at the images/s of Tables 1 and 2.

    `decoded_over_trained`: photos that a core decodes over those that it trains in the same time, measured here.
    """
    use_case = str(claim["use_case"])
    faster = printed(use_case, "model", "cuda", "table2") / printed(use_case, "GPU single-process", "cuda", "table1")
    share = float(claim["value"]) / 100 / faster
    at = f"{claim['value']:g} % at {faster:.3g} times the images/s"
    measured = f"CPU per image 1/{1 / share:.0f} of data parallelism's: {at}"
    ratio = decoded_over_trained().times(share)
    enough(ratio.rounds, BOUND)
    implied = (
        f"if both decode their photos, data parallelism spent at most {share:.2%} of its CPU on that, so its GPUs "
        f"trained at most {ratio} times what its own CPU cores would have trained by themselves"
    )
    if ratio.high < 1:
        why = f"{implied}: the data were cached, or measured otherwise"
        return Verdict(CONTRADICTED, measured, why, grade=BOUND, chance=ratio.chance(1))
    more = max(1.0, ratio.rounds_until(1) - ratio.rounds)
    return Verdict(UNDECIDED, measured, implied, grade=BOUND, rounds_more=more)


def faster_than(claim: Claim, rows: Sequence[tuple[tuple[str, str], tuple[str, str]]]) -> Verdict:
    """`in_tables` for every use case of a claim: pairs of (row, table) on GPUs."""
    return in_tables(
        (name, of_table(name, *above), of_table(name, *under)) for name in use_cases(claim) for above, under in rows
    )
