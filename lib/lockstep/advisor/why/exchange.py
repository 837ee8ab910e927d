"""How much of a step is exchange, beside what the link or memory can move, and what helps for this way to agree."""

from __future__ import annotations

from lockstep.advisor.why import thresholds
from lockstep.advisor.why.comparing import cause_of, growth_of, is_busy
from lockstep.advisor.why.observations import EXCHANGE, Cause, Observations
from lockstep.advisor.why.wording import with_option
from lockstep.engine.units import bytes_text, took


def exchange_cause(seen: Observations) -> Cause | None:
    """The exchange, where it is a large share of a step; None where it is not."""
    cell = seen.fits
    if cell.workers == 1 or (seen.exchange_is_hidden and seen.alone is None):
        return None
    spent = growth_of(cell, seen.alone) if seen.exchange_is_hidden else min(r.exchange_seconds for r in cell.ranks)
    moved = _moved_bytes(seen)
    least, step = seen.least_exchange_seconds(moved), cell.step_seconds
    if is_busy(seen):  # only what the link's rate explains by itself
        spent = least if seen.link_bytes_per_second else 0.0
        step = spent + max(rank.cpu_seconds for rank in cell.ranks)
    if not step or (share := spent / step) < thresholds.EXCHANGE_SHARE:
        return None
    found = f"The exchange takes {took(spent)} of each {took(step)} step, {share:.0%} of it"
    found += " (by how much a step grows beside other workers)" if seen.exchange_is_hidden else ""
    found += f", for {bytes_text(moved)} " + ("of gradients in shared memory." if _shares(seen) else
                                               "that a worker sends.")  # fmt: skip
    if least:
        what = "the link" if seen.link_bytes_per_second else "the memory"
        found += f" At the rate of {what} it would take {took(least)}."
    helps, command = _what_helps(seen)
    bound = 0.0 if seen.link_bytes_per_second else least
    return cause_of(
        seen, EXCHANGE, max(0.0, spent - bound), share, thresholds.EXCHANGE_SHARE, found,
        "the share of a step that is exchange, of the worker that waits least",
        f"at most what is not at that bound; {helps}", command,
    )  # fmt: skip


def _shares(seen: Observations) -> bool:
    """Whether gradients move through shared memory alone: then nothing is sent."""
    return seen.fits.sync == "shared_memory" and not seen.link_bytes_per_second


def _moved_bytes(seen: Observations) -> float:
    """What a worker sends in a step, or reads of all gradients in shared memory."""
    if _shares(seen):
        return seen.gradient_bytes
    workers = seen.fits.workers
    return max(rank.bytes_sent for rank in seen.fits.ranks) or 2 * (workers - 1) / workers * seen.gradient_bytes


def _what_helps(seen: Observations) -> tuple[str, str]:
    """In words, and the command that shows it."""
    larger = with_option(seen.command, "batch", 4 * seen.fits.per_worker_batch_size)
    if seen.link_bytes_per_second:
        return "exchange less: a larger batch, --sync local_sgd, compression='topk'; or a quicker link", larger
    if _shares(seen):
        return "a larger batch exchanges less often, and --sync local_sgd after several steps only", larger
    shared = with_option(seen.command, "sync", "shared_memory")
    return "on one host --sync shared_memory sends nothing; a larger batch exchanges less often", shared
