"""The path behind "slower with more workers", for the reader's own model: observations -> causes. A pure function.

    a step of the asked kind
      │
      ├─ 1  do the workers wait for images? ────────────────────── input
      ├─ 2  more threads than cores? ───────────────────────────── threads
      │     fewer, and would more be quicker? ──────────────────── few threads
      │        from here on: the same workers with threads that fit
      ├─ 3  how much of the step is exchange? ──────────────────── exchange, beside what link or memory can move
      │     does computing together take longer than alone? ────── memory bandwidth
      ├─ 4  does one worker compute longer than another? ───────── unequal workers, or unequal shares
      ├─ 5  does a step take as long with fewer images? ────────── batch
      ├─ 6  does the reader's clock include the start? ─────────── start-up
      ├─ 7  is it slower where denormals are not flushed? ──────── denormals
      │     does the allocator give memory back in each step? ──── page faults
      └─ 8  do other programs use the cores? ───────────────────── others

Every question is asked, whatever the answers before it, and the causes are returned by what each would gain. A cause is
judged where those above it are absent: an exchange between workers that share their cores with too many threads says
nothing about the exchange. So too many threads come first, whatever they cost: they are a fact of what was asked, and
what the other causes would gain is what they would gain once these threads are gone.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.advisor.why import thresholds
from lockstep.advisor.why.comparing import (
    alone_step_seconds,
    cause_of,
    growth_of,
    is_busy,
    undisturbed_step_seconds,
)  # fmt: skip
from lockstep.advisor.why.exchange import exchange_cause
from lockstep.advisor.why.observations import (
    BATCH,
    CROWDING,
    DENORMALS,
    FEW_THREADS,
    INPUT,
    OTHERS,
    PAGE_FAULTS,
    START,
    THREADS,
    UNEQUAL,
    Cause,
    Observations,
    ordered,
)  # fmt: skip
from lockstep.advisor.why.wording import with_option
from lockstep.engine.units import took
from lockstep.measure.contention import CONTENTION_THRESHOLD

Step = Callable[[Observations], Cause | None]


def find_causes(seen: Observations) -> list[Cause]:
    """What slows this training down: too many threads, then the largest gain first; empty where nothing is above its
    threshold, in all turns together and in most parts of them: what fewer show is the moment's."""
    parts = [{cause.kind for cause in _named(part)} for part in seen.parts]
    lasting = [cause for cause in _named(seen) if not parts or _in_most(cause.kind, parts)]
    return sorted(ordered(lasting), key=lambda cause: cause.kind != THREADS)


def _in_most(kind: str, parts: list[set[str]]) -> bool:
    return 2 * sum(kind in part for part in parts) > len(parts)


def _named(seen: Observations) -> list[Cause]:
    causes = [cause for step in _STEPS if (cause := step(seen)) is not None]
    return [cause for cause in causes if cause.gain_share >= thresholds.LEAST_GAIN or cause.kind == THREADS]


def _input(seen: Observations) -> Cause | None:
    cell = seen.fits
    least = thresholds.BUSY_INPUT_SHARE if is_busy(seen) else thresholds.INPUT_SHARE
    waits = max(rank.input_seconds for rank in cell.ranks)
    share = waits / cell.step_seconds
    if share < least:
        return None
    return cause_of(
        seen, INPUT, waits, share, least,
        f"A worker waits {took(waits)} of each {took(cell.step_seconds)} step for its images, {share:.0%} of it.",
        "the share of a step that a worker waits for its input",
        "at most that wait: decode smaller images, decode once (input='memory'), or give decoding cores of its own",
        seen.command,
    )  # fmt: skip


def _threads(seen: Observations) -> Cause | None:
    ratio = seen.asked.threads / seen.cores
    if ratio <= 1:
        return None
    asked, gain = seen.asked, 0.0
    found = f"{asked.workers} workers x {asked.threads_per_worker} threads are {asked.threads} threads for "
    found += f"{seen.cores} core{'s' * (seen.cores > 1)}."
    if seen.fitting is not None:
        gain = max(0.0, asked.step_seconds - seen.fitting.step_seconds)
        found += f" A step takes {took(asked.step_seconds)}, and {took(seen.fitting.step_seconds)} with "
        found += f"{seen.fitting.threads_per_worker} per worker."
        each = f"--threads-per-worker {seen.fitting.threads_per_worker}"
        how = f"measured: {each}" if gain else f"nothing that was measured: a step was no shorter with {each}"
        shows = with_option(seen.command, "threads-per-worker", seen.fitting.threads_per_worker)
    elif asked.threads_per_worker > (least := max(1, seen.cores // asked.workers)):
        how = f"not measured within the time: --threads-per-worker {least}"
        shows = with_option(seen.command, "threads-per-worker", least)
    else:
        how = f"with as many workers as cores, {seen.cores}, none waits for another's turn; not measured"
        shows = with_option(seen.command, "workers", seen.cores)
    rule = "threads of all workers for each core that they may use"
    return cause_of(seen, THREADS, gain, ratio, 1.0, found, rule, how, shows)


def _few_threads(seen: Observations) -> Cause | None:
    if seen.fitting is None or seen.asked.threads >= seen.cores or is_busy(seen):
        return None
    gain = seen.asked.step_seconds - seen.fitting.step_seconds
    share = gain / seen.asked.step_seconds
    if share < thresholds.MORE_THREADS_GAIN:
        return None
    threads = seen.fitting.threads_per_worker
    return cause_of(
        seen, FEW_THREADS, gain, share, thresholds.MORE_THREADS_GAIN,
        f"{seen.asked.workers} x {seen.asked.threads_per_worker} threads leave some of {seen.cores} cores idle: a step "
        f"takes {took(seen.asked.step_seconds)}, and {took(seen.fitting.step_seconds)} with {threads} per worker.",
        "the share of a step that more threads save",
        f"measured: --threads-per-worker {threads}", with_option(seen.command, "threads-per-worker", threads),
    )  # fmt: skip


def _crowding(seen: Observations) -> Cause | None:
    cell, alone = seen.fits, seen.alone
    if alone is None or cell.workers == 1 or cell.threads > seen.cores or seen.exchange_is_hidden:
        return None
    by_itself, gain = alone.ranks[0].compute_seconds, growth_of(cell, alone)
    if by_itself <= 0 or (ratio := 1 + gain / by_itself) < thresholds.CROWDING_RATIO:
        return None
    least = min(rank.cpu_seconds for rank in cell.ranks)
    if is_busy(seen) and least < thresholds.CROWDING_RATIO * alone.ranks[0].cpu_seconds:
        return None
    return cause_of(
        seen, CROWDING, gain, ratio, thresholds.CROWDING_RATIO,
        f"The same passes take a worker {took(by_itself)} by itself and {took(by_itself + gain)} beside the others, "
        f"{ratio:.2f} times as long, though each has cores of its own: they share memory bandwidth, or two 'cores' are "
        "the hardware threads of one.",
        "forward and backward pass, together over alone, of the worker that grows least",
        "at most that growth; fewer workers with more threads each read the parameters less often",
        with_option(seen.command, "workers", "1"),
    )  # fmt: skip


def _unequal(seen: Observations) -> Cause | None:
    cell = seen.fits
    busy = [rank.cpu_seconds if is_busy(seen) else rank.compute_seconds for rank in cell.ranks]
    least = thresholds.BUSY_UNEQUAL_RATIO if is_busy(seen) else thresholds.UNEQUAL_RATIO
    if len(busy) < 2 or min(busy) <= 0 or (ratio := max(busy) / min(busy)) < least:
        return None
    images = [rank.images for rank in cell.ranks]
    slowest = busy.index(max(busy))
    found = f"Worker {slowest} computes {took(max(busy))} a step and another {took(min(busy))}, {ratio:.2f} times."
    if min(images) and max(images) / min(images) >= thresholds.UNEQUAL_RATIO:
        found += f" Their shares are unequal: {max(images):.0f} and {min(images):.0f} images."
    even = len(busy) / sum(1 / seconds for seconds in busy)
    return cause_of(
        seen, UNEQUAL, max(busy) - even, ratio, least, found,
        "seconds that the slowest worker computes over those of the quickest",
        "at most what shares in proportion to speed would save; or a policy that does not wait for the slowest",
        "lockstep simulate --delays bad_node:slow=2",
    )  # fmt: skip


def _batch(seen: Observations) -> Cause | None:
    if seen.alone is None or seen.larger is None:
        return None
    small, large = seen.alone.per_worker_batch_size, seen.larger.per_worker_batch_size
    step, longer = undisturbed_step_seconds(seen), alone_step_seconds(seen, seen.larger)
    if not step:
        return None
    per_image = max(0.0, (longer - step) / (large - small))
    share = max(0.0, step - per_image * small) / step
    if share < thresholds.FIXED_SHARE:
        return None
    together = max(rank.cpu_seconds for rank in seen.fits.ranks) if is_busy(seen) else seen.fits.step_seconds
    fixed = max(0.0, together - per_image * small)
    return cause_of(
        seen, BATCH, fixed * (1 - small / large), share, thresholds.FIXED_SHARE,
        f"One worker's step takes {took(step)} with {small} image{'s' * (small > 1)} and {took(longer)} with {large}: "
        f"{share:.0%} of it does not depend on the batch.",
        "the share of one worker's step that a batch of no images would still take",
        f"with {large} images per worker, for as many images; what that does to accuracy is notebook 07's question",
        with_option(seen.command, "batch", large),
    )  # fmt: skip


def _start(seen: Observations) -> Cause | None:
    if not seen.images_timed:
        return None
    asked = seen.asked
    steps = max(1.0, seen.images_timed / (asked.workers * asked.per_worker_batch_size))
    share = seen.start_seconds / (seen.start_seconds + steps * asked.step_seconds)
    if share < thresholds.START_PART:
        return None
    return cause_of(
        seen, START, seen.start_seconds / steps, share, thresholds.START_PART,
        f"Starting the workers takes {took(seen.start_seconds)}, {share:.0%} of a run of {seen.images_timed} images.",
        "the share of the timed run in which nothing is trained yet",
        "of what was timed, not of training: begin the clock behind the first step, or train for longer",
        seen.command, of=asked.step_seconds + seen.start_seconds / steps,
    )  # fmt: skip


def _denormals(seen: Observations) -> Cause | None:
    if seen.alone is None or seen.kept_denormals is None:
        return None
    flushed, kept = alone_step_seconds(seen, seen.alone), alone_step_seconds(seen, seen.kept_denormals)
    if not flushed or (ratio := kept / flushed) < thresholds.DENORMAL_RATIO:
        return None
    return cause_of(
        seen, DENORMALS, kept - flushed, ratio, thresholds.DENORMAL_RATIO,
        f"Where denormal numbers are kept, as in any script, a step takes {took(kept)}, and {took(flushed)} where "
        f"they are flushed to zero, as Lockstep's workers do: {ratio:.1f} times.",
        "one worker's step with denormals kept over flushed",
        "measured; in a script of your own: torch.set_flush_denormal(True) in each thread that trains",
        seen.command, of=kept,
    )  # fmt: skip


def _page_faults(seen: Observations) -> Cause | None:
    cell = seen.asked
    faults = max(rank.page_faults for rank in cell.ranks)
    spent = faults * thresholds.FAULT_SECONDS
    if (share := spent / cell.step_seconds) < thresholds.FAULT_SHARE:
        return None
    why, helps, other = "that the allocator has just given back", "--environment tuned keeps the memory", "tuned"
    if seen.environment == "tuned":
        why, other = "that is touched for the first time", "plain"
        helps = "the allocator keeps its memory already: look for what each step makes anew and how large it is"
    return cause_of(
        seen, PAGE_FAULTS, spent, share, thresholds.FAULT_SHARE,
        f"A worker takes {faults:.0f} page faults a step: some {took(spent)} in which the kernel clears memory {why}.",
        f"page faults x {thresholds.FAULT_SECONDS * 1e6:g} microsecond, as a share of a step",
        f"an estimate; {helps}", with_option(seen.command, "environment", other),
    )  # fmt: skip


def _others(seen: Observations) -> Cause | None:
    share = seen.others_share
    if share < CONTENTION_THRESHOLD:
        return None
    return cause_of(
        seen, OTHERS, share * seen.asked.step_seconds, share, CONTENTION_THRESHOLD,
        f"Other programs, or other machines of this host, took {share:.0%} of the cores' time meanwhile.",
        "their share of the cores' time",
        "at most that share, and steadier numbers: end them, or measure at another time",
        "top -o %CPU",
    )  # fmt: skip


_STEPS: tuple[Step, ...] = (
    _input, _threads, _few_threads, exchange_cause, _crowding, _unequal, _batch, _start, _denormals, _page_faults,
    _others,
)  # fmt: skip
