"""Which ways `lockstep advise --verify` should train: one machine has to do, and several can only be emulated on it.

    the two best         though it may turn out that they need machines that are not here
    the two best here    that one machine can train: on one host, and not cut into stages
    the simplest         one worker, and what is recommended
    emulated             the best of several hosts that share this machine's cores, predicted anew for that
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lockstep.advisor.advice import Way
from lockstep.advisor.coefficients import places
from lockstep.advisor.links import emulated_rate
from lockstep.advisor.question import Question
from lockstep.advisor.steps import Predictor, kind_of_cell
from lockstep.advisor.verified import why_not_here

BEST = 2
EMULATED_SYNCS = ("allreduce", "shared_memory")
"""That notebook 13 has measured between emulated hosts."""
MOST_RANKS_OF_A_CORE = 2
MOST_LATENCY_SECONDS, MOST_BITS_PER_SECOND = 2e-4, 1e10
"""Of a link that emulated hosts can stand for, chosen: they add no latency, and cores move what they send."""


def ways_to_verify(
    predictor: Predictor, question: Question, possible: Sequence[Way], simplest: Sequence[Way]
) -> tuple[Way, ...]:
    """The ways to train, the quickest first, each once; then an emulated one. `possible`: all that fit, sorted so."""
    here = [way for way in possible if not why_not_here(way)]
    chosen = {id(way) for way in (*possible[:BEST], *here[:BEST], *simplest)}
    emulated = next(_emulated(predictor, question, possible), None)
    return (*(way for way in possible if id(way) in chosen), *filter(None, (emulated,)))


def _emulated(predictor: Predictor, question: Question, possible: Sequence[Way]) -> Iterator[Way]:
    """Those of several hosts that this machine's cores and memory can stand for, the quickest (on so many real ones)
    first."""
    calibration, link = predictor.calibration, question.link
    if link is None or calibration.machine.device != "cpu":
        return
    if link.alpha_seconds > MOST_LATENCY_SECONDS or emulated_rate(link) > 1.001 * MOST_BITS_PER_SECOND:
        return
    limit = calibration.machine.memory_bytes if question.memory_bytes is None else question.memory_bytes
    for way in possible:
        if way.hosts == 1 or way.sync not in EMULATED_SYNCS or way.threads_per_worker > 1:
            continue
        if way.workers > MOST_RANKS_OF_A_CORE * places(calibration) or way.memory_bytes * way.workers > limit:
            continue
        asked = (way.sync, way.workers, way.hosts, way.per_worker_batch_size, way.threads_per_worker)
        step = predictor.step_seconds(*asked, link, emulated=True)
        yield replace(
            way,
            kind=kind_of_cell(calibration, *asked, emulated=True),
            step_seconds=step,
            images_per_second=step.inverse(way.global_batch_size),
            terms=predictor.terms(*asked, link, emulated=True),
            seconds_to_images=None,
            price_to_images=None,
            emulated=True,
        )
