"""The first line of an answer: what to do, and what it gains, as a range."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.advisor.advice import Span, Way
from lockstep.advisor.calibration import Calibration
from lockstep.advisor.question import Question
from lockstep.engine.units import bytes_text, number_text

NAMES = {"shared_memory": "shared memory", "allreduce": "all-reduce", "ddp": "DDP", "pipeline": "pipeline"}


def way_text(way: Way) -> str:
    """`4 workers on 2 machines by all-reduce`."""
    if way.workers == 1:
        return "one worker" if way.threads_per_worker == 1 else f"one worker of {way.threads_per_worker} threads"
    where = "one machine" if way.hosts == 1 else f"{way.hosts} {'emulated ' * way.emulated}machines"
    threads = f" of {way.threads_per_worker} threads" if way.threads_per_worker > 1 else ""
    how = f"by {name_of(way.sync)}" if way.sync != "pipeline" else f"as a pipeline ({way.detail})"
    return f"{way.workers} workers{threads} on {where} {how}"


def name_of(sync: str) -> str:
    return NAMES.get(sync, sync.replace("_", " "))


def first_line(
    calibration: Calibration, question: Question, recommended: Way | None, fastest: Way | None, alone: Way | None,
    gain: Span | None, ways: Sequence[Way],
) -> str:  # fmt: skip
    """One sentence: the way to take and its gain over one worker, or why there is none."""
    if recommended is None:
        return _does_not_fit(calibration, question, alone)
    rate = f"{span_text(recommended.images_per_second)} images/s"
    told = recommended.workers > 1 and gain is not None
    faster = f"{span_text(gain)} times the speed of one worker" if told and gain else ""
    if recommended.hosts > 1:
        return f"Train with {way_text(recommended)}: {'; '.join(filter(None, (faster, rate)))}."
    others = "" if fastest is None or fastest is recommended else _no_faster(recommended, fastest)
    if recommended.workers > 1:
        start = "Stay on one machine: train with" if any(way.hosts > 1 for way in ways) else "Train with"
        return f"{start} {way_text(recommended)}: {'; '.join(filter(None, (faster, rate)))}{others}."
    if max(question.workers) == 1 and recommended.threads_per_worker == 1:
        return f"One worker trains {rate}{others}."
    return f"Stay with {way_text(recommended)}: {rate}{others}."


def _no_faster(recommended: Way, fastest: Way) -> str:
    ratio = fastest.images_per_second.over(recommended.images_per_second)
    return f"; {way_text(fastest)} may be faster ({span_text(ratio)} times), which the prediction can't tell"


def _does_not_fit(calibration: Calibration, question: Question, alone: Way | None) -> str:
    limit = calibration.machine.memory_bytes if question.memory_bytes is None else question.memory_bytes
    if alone is None:
        return f"It does not fit: no way that was asked about stays below {bytes_text(limit)} of memory per machine."
    return (
        f"It does not fit: one worker with batch {alone.per_worker_batch_size} needs {bytes_text(alone.memory_bytes)}, "
        f"and the machine has {bytes_text(limit)}."
    )


def span_text(span: Span) -> str:
    """`112 to 130`."""
    low, high = number_text(span.low), number_text(span.high)
    return low if low == high else f"{low} to {high}"
