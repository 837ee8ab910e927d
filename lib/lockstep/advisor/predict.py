"""From a calibration and a question to an answer. Pure: nothing is measured and no framework is loaded.

    every way that was asked about      steps.py, stages.py: seconds with a range;  memory.py: does it fit?
      -> of those that fit, with today's batch: the fastest
      -> recommended: the simplest whose range overlaps the fastest one's, for these two can't be told apart
      -> what would change that         changes.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from lockstep.advisor.advice import Advised, Span, Way
from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.changes import what_would_change
from lockstep.advisor.coefficients import ALONE, Coefficients, chain_name, places
from lockstep.advisor.errors import PIPELINE, KindError, error_of
from lockstep.advisor.memory import SHARDED_OVER, sharded, worker_bytes
from lockstep.advisor.question import Question, shown_counts
from lockstep.advisor.scope import beyond, scope_lines
from lockstep.advisor.sentences import first_line
from lockstep.advisor.spreads import spread_beyond_ordinary
from lockstep.advisor.stages import best_pipeline, stage_bytes
from lockstep.advisor.steps import COMPUTING, EXCHANGE, OPTIMIZER, Predictor, kind_of_cell, ranged, shows_sending
from lockstep.advisor.verifying import ways_to_verify
from lockstep.predict.cost_model import chain_of_sync

PIPELINED = "pipeline"


def advise(calibration: Calibration, question: Question, errors: Mapping[str, KindError] | None = None) -> Advised:
    """The answer to a question about the calibrated model on machines as the calibrated one.

    `errors`: of each kind of cell, in place of those that notebook 13 has measured. Raises CalibrationError for a
    calibration that lacks what the question needs, and for a question of which nothing is possible.
    """
    predictor = Predictor(calibration, errors)
    ways = tuple(_ways(predictor, question))
    if not ways:
        raise CalibrationError(
            f"--workers {shown_counts(question.workers)} with --hosts {shown_counts(question.hosts)} leaves nothing to "
            "predict: workers must be a multiple of the hosts and no more than images of the batch, and several need "
            "cells of two workers in the calibration"
        )
    today = [way for way in ways if way.global_batch_size == question.global_batch_sizes[0]]
    possible = sorted((way for way in today if way.fits), key=lambda way: way.step_seconds.middle)
    alone = next((way for way in today if way.workers == 1 and way.threads_per_worker == 1), None)
    fastest = possible[0] if possible else None
    recommended = simplest_of_the_best(possible)
    gain = None
    if recommended and alone:
        gain = recommended.images_per_second.over(alone.images_per_second)
    return Advised(
        sentence=first_line(calibration, question, recommended, fastest, alone, gain, ways),
        recommended=recommended,
        fastest=fastest,
        alone=alone,
        gain=gain,
        ways=ways,
        verify=ways_to_verify(predictor, question, possible, [way for way in (alone, recommended) if way]),
        changes=tuple(what_would_change(predictor, question, recommended, ways)),
        scope=tuple(scope_lines(calibration, question, ways, predictor.errors)),
        sharded=()
        if all(way.fits for way in today)
        else tuple(
            sharded(calibration, workers, math.ceil(question.global_batch_sizes[0] / workers))
            for workers in SHARDED_OVER
        ),
    )


def simplest_of_the_best(possible: list[Way]) -> Way | None:
    """Of ways sorted by their middle, the simplest whose range of seconds overlaps the fastest one's; of equally simple
    ones the fastest. None of none."""
    near = [way for way in possible if way.step_seconds.overlaps(possible[0].step_seconds)]
    return min(near, key=lambda way: way.simplicity) if near else None


def _ways(predictor: Predictor, question: Question) -> Iterator[Way]:
    known, calibration = predictor.middle, predictor.calibration
    for batch in question.global_batch_sizes:
        for workers in question.workers:
            if workers > batch:
                continue  # somebody would have no image
            for sync, threads in _options(known, workers):
                for hosts in question.hosts_of(workers, places(calibration) // threads):
                    if hosts > 1 and not shows_sending(known):
                        continue
                    if hosts < workers and workers > 1 and (sync, threads) not in known.teams:
                        continue  # two of so many threads on one machine were not calibrated
                    yield _way(predictor, question, sync, workers, hosts, batch, threads)
            for hosts in question.hosts_of(workers, places(calibration)):
                if (pipelined := _pipelined(predictor, question, workers, hosts, batch)) is not None:
                    yield pipelined


def _options(known: Coefficients, workers: int) -> list[tuple[str, int]]:
    """Sync and threads of a worker: as calibrated, and on a machine each as many threads as one worker had, too."""
    if workers == 1:
        return [(ALONE, threads) for threads in known.alone]
    syncs = dict.fromkeys(sync for sync, _ in known.teams)
    return list(dict.fromkeys([*known.teams, *((sync, threads) for threads in known.alone for sync in syncs)]))


def _way(
    predictor: Predictor, question: Question, sync: str, workers: int, hosts: int, batch: int, threads: int
) -> Way:
    calibration, share = predictor.calibration, math.ceil(batch / workers)
    step = predictor.step_seconds(sync, workers, hosts, share, threads, question.link)
    of_host = math.ceil(workers / hosts)
    memory = worker_bytes(calibration, sync, of_host, share)
    size = calibration.model.gradient_bytes
    sent = chain_of_sync(chain_name(sync), workers, size, hosts=hosts).bytes if workers > 1 else 0.0
    return Way(
        sync, workers, hosts, threads, batch, share,
        kind_of_cell(calibration, sync, workers, hosts, share, threads),
        step,
        step.inverse(batch),
        predictor.terms(sync, workers, hosts, share, threads, question.link),
        memory,
        sent,
        memory * of_host <= _limit(calibration, question),
        beyond(calibration, workers, share),
        *_until(calibration, question, step, batch, workers, hosts),
    )  # fmt: skip


def _pipelined(predictor: Predictor, question: Question, workers: int, hosts: int, batch: int) -> Way | None:
    calibration, known = predictor.calibration, predictor.middle
    found = best_pipeline(calibration, known, workers, hosts, batch, question.link)
    if found is None:
        return None
    layout, cost = found
    error, differing = error_of(PIPELINE, predictor.errors), spread_beyond_ordinary(calibration, batch)
    step = ranged(cost.step_seconds, [cost.step_seconds], error, differing)
    memory = stage_bytes(calibration, known, layout, batch)
    exchanged = cost.transfer_seconds + cost.exchange_seconds
    terms = {COMPUTING: cost.compute_seconds, EXCHANGE: exchanged, OPTIMIZER: cost.update_seconds}
    share = math.ceil(batch / layout.replicas)
    return Way(
        PIPELINED, workers, hosts, 1, batch, share, PIPELINE, step, step.inverse(batch), terms, memory, 0.0,
        memory * math.ceil(workers / hosts) <= _limit(calibration, question), beyond(calibration, workers, share),
        *_until(calibration, question, step, batch, workers, hosts), detail=str(layout),
    )  # fmt: skip


def _limit(calibration: Calibration, question: Question) -> float:
    return calibration.machine.memory_bytes if question.memory_bytes is None else question.memory_bytes


def _until(
    calibration: Calibration, question: Question, step: Span, batch: int, workers: int, hosts: int
) -> tuple[Span | None, Span | None]:
    """Seconds and price until so many images are trained, from the start of several workers on."""
    if not question.images:
        return None, None
    start = calibration.start_seconds if workers > 1 else 0.0
    training = step.times(question.images / batch)
    seconds = Span(start + training.low, start + training.middle, start + training.high)
    price = seconds.times(hosts * question.price_per_hour / 3600) if question.price_per_hour else None
    return seconds, price
