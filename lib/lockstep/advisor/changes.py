"""What would change the answer: the link, the batch or the length of a step from which one more machine or worker pays.

Each is found on the middles of the predictions, by halving an interval, for what pays once pays beyond. "Pays" is: more
images per second with the same global batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from lockstep.advisor.advice import Way
from lockstep.advisor.coefficients import ALONE, Coefficients, chain_name, places
from lockstep.advisor.links import ASSUMED_LATENCY_SECONDS
from lockstep.advisor.question import MOST_BATCH, Question
from lockstep.advisor.steps import COMPUTING, CROWDING, Predictor
from lockstep.predict.cost_model import BUSY
from lockstep.predict.link_model import AlphaBeta

SLOWEST_LINK, FASTEST_LINK = 1e5, 1e13  # bytes per second
_HALVINGS = 60


def what_would_change(
    predictor: Predictor, question: Question, recommended: Way | None, ways: Sequence[Way]
) -> Iterator[str]:
    """Sentences, each with its number; none where nothing fits or no team was calibrated."""
    if recommended is None or not predictor.middle.teams:
        return
    batch = recommended.global_batch_size
    if recommended.workers == 1:
        yield from _second_worker(predictor, batch, [way for way in ways if way.workers > 1 and way.hosts == 1])
    if batch < 2:
        return
    try:
        yield from _another_machine(predictor, question, recommended)
    except ValueError:  # a calibration without an all-reduce says nothing of sending between machines
        return


def _second_worker(predictor: Predictor, batch: int, teams: Sequence[Way]) -> Iterator[str]:
    """From which seconds per step two workers pay on this machine: halves of the computing, crowded, and the rest."""
    if not teams or places(predictor.calibration) < 2 or batch < 2:
        return
    alone = sum(predictor.terms(ALONE, 1, 1, batch).values())
    found = []
    for sync, threads in predictor.middle.teams:
        if threads == 1:
            terms = predictor.terms(sync, 2, 1, math.ceil(batch / 2))
            rest = sum(terms.values()) - terms[COMPUTING] - terms[CROWDING]
            # Computing grows in proportion; what does not shrink with half the batch stays as it is now.
            saved = alone - terms[COMPUTING] - terms[CROWDING]
            if saved > 0:
                found.append((alone * rest / saved, sync))
    if not found:
        yield f"Two workers on this machine pay for no length of step at batch {batch}: computing alone is not quicker."
        return
    needed, sync = min(found)
    yield (
        f"Two workers on this machine ({sync}) pay from {_seconds(needed)} of a step of one worker on; "
        f"this one takes {_seconds(alone)}."
    )


def _another_machine(predictor: Predictor, question: Question, recommended: Way) -> Iterator[str]:
    hosts, batch = recommended.hosts + 1, recommended.global_batch_size
    of_host = max(1, recommended.workers // recommended.hosts)
    workers = of_host * hosts
    if recommended.sync == "pipeline" or workers > batch:
        return
    latency = question.link.alpha_seconds if question.link else ASSUMED_LATENCY_SECONDS
    asked = f"one more machine ({hosts} with {of_host} worker{'s' if of_host > 1 else ''} each, the same global batch)"

    def gains(link: AlphaBeta, images: int) -> bool:
        now = _best(predictor, recommended.workers, recommended.hosts, images, link, recommended.threads_per_worker)
        return _best(predictor, workers, hosts, images, link, recommended.threads_per_worker) < now

    def pays_at(rate: float) -> bool:
        return gains(AlphaBeta(latency, 1 / rate), batch)

    rate = smallest(pays_at, SLOWEST_LINK, FASTEST_LINK)
    if rate is None:
        yield f"At batch {batch} {asked} pays over no link: each worker would have too few images."
    else:
        yield f"At batch {batch} {asked} pays from a link of {_rate(rate)} on."
    if question.link is None:
        return
    link = question.link
    images = smallest(lambda size: gains(link, math.ceil(size)), workers, MOST_BATCH)
    if images is not None and images > batch:
        yield f"Over your link {asked.replace(', the same global batch', '')} pays from a global batch of about " + (
            f"{_round_up(images)} on, {_round_up(images / workers)} images per worker."
        )
    yield from _busy(predictor.middle, hosts, link)


def _busy(known: Coefficients, hosts: int, link: AlphaBeta) -> Iterator[str]:
    sync = chain_name(next(iter(known.teams))[0])
    images = known.alone[min(known.alone)].busy_share(hosts, sync, link)
    yield f"With {images} images per worker and step, {BUSY:.0%} of a step on {hosts} machines computes."


def _best(predictor: Predictor, workers: int, hosts: int, batch: int, link: AlphaBeta, threads: int) -> float:
    share, syncs = math.ceil(batch / workers), [sync for sync, of in predictor.middle.teams if of == threads]
    if workers == 1 or not syncs:
        return sum(predictor.terms(ALONE, 1, 1, share, threads).values()) if workers == 1 else math.inf
    return min(sum(predictor.terms(sync, workers, hosts, share, threads, link).values()) for sync in syncs)


def smallest(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """The smallest number from `low` to `high` from which `holds`, if it does at the high end; to one in a million."""
    if not holds(high):
        return None
    if holds(low):
        return low
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
        if high / low < 1 + 1e-6:
            break
    return high


def _round_up(number: float) -> int:
    return math.ceil(number - 1e-4 * number)


def _seconds(number: float) -> str:
    return f"{1e3 * number:.3g} ms" if number < 1 else f"{number:.3g} s"


def _rate(bytes_per_second: float) -> str:
    bits = 8 * bytes_per_second
    for name, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if bits >= size:
            return f"{bits / size:.3g} {name}"
    return f"{bits / 1e3:.3g} kbit/s"
