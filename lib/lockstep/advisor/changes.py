"""What would change the answer: the link, the batch or the length of a step from which one more machine or worker pays.

Each is found on the middles of the predictions, by halving an interval, for what pays once pays beyond. "Pays" is: more
images per second with the same global batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from lockstep.advisor.advice import Way
from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.coefficients import ALONE, places
from lockstep.advisor.links import ASSUMED_LATENCY_SECONDS
from lockstep.advisor.question import MOST_BATCH, Question
from lockstep.advisor.steps import COMPUTING, CROWDING, Predictor
from lockstep.engine.units import bits_text, took
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
    if recommended.workers == 1 and recommended.hosts == 1:
        yield from _second_worker(predictor, recommended, [w for w in ways if w.workers > 1 and w.hosts == 1])
    if batch < 2:
        return
    try:
        yield from _another_machine(predictor, question, recommended)
    except CalibrationError:  # a calibration without an all-reduce says nothing of sending between machines
        return


def _second_worker(predictor: Predictor, recommended: Way, teams: Sequence[Way]) -> Iterator[str]:
    """From which seconds per step two workers pay on this machine, beside the recommended one worker."""
    batch, threads = recommended.global_batch_size, recommended.threads_per_worker
    if not teams or places(predictor.calibration) < 2 or batch < 2:
        return
    one = predictor.terms(ALONE, 1, 1, batch, threads)
    now, computing = sum(one.values()), one[COMPUTING] + one[CROWDING]
    found = []
    for sync in dict.fromkeys(sync for sync, of in predictor.middle.teams if of == 1):
        two = predictor.terms(sync, 2, 1, math.ceil(batch / 2))
        added = predictor.middle.team(sync, 1).added_seconds  # moving gradients takes no longer in a longer step
        theirs = two[COMPUTING] + two[CROWDING] - added
        found.append((_paying_seconds(now, computing, sum(two.values()), theirs), sync))
    if not found:
        return
    needed, sync = min(found)
    beside = "one worker" if threads == 1 else f"one worker of {threads} threads"
    if math.isinf(needed):
        yield f"Two workers on this machine pay for no length of step at batch {batch}: their computing is not quicker."
        return
    why = "" if now <= needed else f", {_why_not_taken(sync, teams)}"
    length = "for any length of step" if needed <= 0 else f"from {took(needed)} of a step of {beside} on"
    yield f"Two workers on this machine ({sync}) pay {length}; this one takes {took(now)}{why}."


def _paying_seconds(one: float, one_computes: float, two: float, two_compute: float) -> float:
    """The step of one worker from which on two are quicker, if only the computing of both grows, in proportion:
    f one_computes + rest of one = f two_compute + rest of two. 0: any step; infinite: none."""
    more, saved = (two - two_compute) - (one - one_computes), one_computes - two_compute
    if saved <= 0:
        return math.inf
    return one_computes * more / saved + one - one_computes if more > 0 else 0.0


def _why_not_taken(sync: str, teams: Sequence[Way]) -> str:
    two = [way for way in teams if way.workers == 2 and way.sync == sync]
    if two and not any(way.fits for way in two):
        return "but two do not fit into its memory"
    return "but the ranges of both overlap, so the prediction can't tell them apart"


def _another_machine(predictor: Predictor, question: Question, recommended: Way) -> Iterator[str]:
    hosts, batch = recommended.hosts + 1, recommended.global_batch_size
    of_host = max(1, recommended.workers // recommended.hosts)
    workers = of_host * hosts
    if recommended.sync == "pipeline" or workers > batch:
        return
    latency = question.link.alpha_seconds if question.link else ASSUMED_LATENCY_SECONDS
    asked = f"one more machine ({hosts} with {of_host} worker{'s' if of_host > 1 else ''} each, the same global batch)"

    threads = recommended.threads_per_worker

    def gains(link: AlphaBeta, images: int) -> bool:
        now = _best(predictor, recommended.workers, recommended.hosts, images, link, threads)
        return _best(predictor, workers, hosts, images, link, threads) < now

    rate = smallest(lambda speed: gains(AlphaBeta(latency, 1 / speed), batch), SLOWEST_LINK, FASTEST_LINK)
    link = question.link
    over = "over no link" if rate is None else f"from a link of {bits_text(8 * rate)} on"
    if rate is not None and link is not None and rate * link.beta_seconds_per_byte <= 1:
        over += ", so over yours, too, by the middle of its range; "
        over += "of ways whose ranges overlap the simpler is recommended"
    yield f"At batch {batch} {asked} pays {over}."
    if link is None:
        return
    images = smallest(lambda size: gains(link, math.ceil(size)), workers, MOST_BATCH)
    if images is not None and images > batch:
        yield f"Over your link {asked.replace(', the same global batch', '')} pays from a global batch of about " + (
            f"{_round_up(images)} on, {_round_up(images / workers)} images per worker."
        )
    yield from _busy(predictor, workers, hosts, threads, link)


def _busy(predictor: Predictor, workers: int, hosts: int, threads: int, link: AlphaBeta) -> Iterator[str]:
    """The images per worker from which on BUSY of a step computes, over all turns on a core."""
    turns = predictor.middle.costs(ALONE, threads).turns(math.ceil(workers / hosts))

    def computes(images: float) -> bool:
        terms = _best_terms(predictor, workers, hosts, math.ceil(images), link, threads)
        return turns * (terms[COMPUTING] + terms[CROWDING]) >= BUSY * sum(terms.values())

    images = smallest(computes, 1, MOST_BATCH)
    if images is not None:
        each = f"{hosts} machines with {workers // hosts} worker{'s' if workers > hosts else ''} each"
        yield f"With {math.ceil(images)} images per worker and step, {BUSY:.0%} of a step on {each} computes."


def _best(predictor: Predictor, workers: int, hosts: int, batch: int, link: AlphaBeta, threads: int) -> float:
    """Seconds of a step by the quickest sync."""
    share = math.ceil(batch / workers)
    return sum(_best_terms(predictor, workers, hosts, share, link, threads).values())


def _best_terms(
    predictor: Predictor, workers: int, hosts: int, share: int, link: AlphaBeta, threads: int
) -> dict[str, float]:
    """A step by the quickest sync: of those with as many threads per worker, or else of all that were calibrated."""
    if workers == 1:
        return predictor.terms(ALONE, 1, 1, share, threads)
    teams = predictor.middle.teams
    syncs = [sync for sync, of in teams if of == threads] or list(dict.fromkeys(sync for sync, _ in teams))
    each = [predictor.terms(sync, workers, hosts, share, threads, link) for sync in syncs]
    return min(each, key=lambda terms: sum(terms.values()))


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
