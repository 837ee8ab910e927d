"""An answer as text of at most WIDTH columns: what to do, a small table, what would change it, how far it reaches."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lockstep.advisor.advice import Advised, Span, Way
from lockstep.advisor.question import Question
from lockstep.advisor.sentences import name_of, span_text
from lockstep.engine.units import bytes_text, took

WIDTH = 100
MOST_ROWS = 10
_MARKS = "> recommended   * extrapolated   ! does not fit   batch, memory: per worker   mostly: of the step"
_THREADS = "2x2: 2 workers with 2 threads each"
_MISSED_FIRST = ("step, ms", "sent", "memory", "mostly")
"""Columns that are left out, one after the other, of a table that is too wide."""


def shown_lines(advised: Advised, question: Question) -> Iterator[str]:
    """The whole answer, line by line."""
    yield from _wrapped(advised.sentence)
    if advised.ways:
        yield ""
        yield from _table(rows := shown_ways(advised, question), _columns(advised, question))
        yield _MARKS
        yield from [_THREADS] * any(way.threads_per_worker > 1 for way in rows)
    for title, lines in (("What would change this", advised.changes), ("How far this reaches", advised.scope)):
        if lines:
            yield from ("", f"{title}:")
            for line in lines:
                yield from _wrapped(line, "  - ", "    ")
    if advised.sharded:
        yield from ("", "Memory per worker if its state is divided, by arithmetic:")
        yield from _table(advised.sharded, _OF_SHARDS)


def shown_ways(advised: Advised, question: Question) -> list[Way]:
    """The quickest way of each number of workers and hosts (and of threads of one worker), today's batch first.

    Thinned to powers of two where they are many; always with those that the answer speaks of.
    """
    kept = [way for way in (advised.alone, advised.recommended, advised.fastest) if way is not None]
    rows: list[Way] = []
    for batch in question.global_batch_sizes:
        best: dict[tuple[int, ...], Way] = {}
        for way in advised.ways:
            if way.global_batch_size == batch:
                key = (way.workers, way.hosts, way.threads_per_worker if way.workers == 1 else 0)
                best[key] = min(best.get(key, way), way, key=lambda one: one.step_seconds.middle)
        ordered = [best[key] for key in sorted(best)]
        if len(ordered) > MOST_ROWS:
            last = ordered[-1].workers
            ordered = [way for way in ordered if way.workers & (way.workers - 1) == 0 or way.workers == last]
        if batch != question.global_batch_sizes[0]:  # another training: its best way alone
            ordered = sorted(ordered, key=lambda way: way.step_seconds.middle)[:1]
        rows += ordered
    rows += [way for way in kept if way not in rows]
    today = question.global_batch_sizes[0]
    return sorted(rows, key=lambda way: (way.global_batch_size != today, way.simplicity, way.step_seconds.middle))


Column = tuple[str, Callable[[Way], str]]


def _columns(advised: Advised, question: Question) -> list[Column]:
    def mark(way: Way) -> str:
        first = ">" if way == advised.recommended else ""
        return first + ("*" if way.extrapolated else "") + ("" if way.fits else "!")

    found: list[Column] = [
        ("", mark),
        ("workers", lambda way: str(way.workers) + (f"x{way.threads_per_worker}" * (way.threads_per_worker > 1))),
        ("hosts", lambda way: str(way.hosts)),
        ("by", lambda way: "-" if way.workers == 1 else name_of(way.sync)),
        ("batch", lambda way: str(way.per_worker_batch_size)),
        ("step, ms", lambda way: _short(way.step_seconds.times(1e3))),
        ("images/s", lambda way: _short(way.images_per_second)),
        ("memory", lambda way: bytes_text(way.memory_bytes)),
    ]
    if not question.images:
        found.append(("sent", lambda way: bytes_text(way.sent_bytes) if way.sent_bytes else "-"))
    else:
        found.append(("time", lambda way: took(way.seconds_to_images.middle) if way.seconds_to_images else ""))
    if question.price_per_hour:
        found.append(("price", lambda way: f"{way.price_to_images.middle:.2f}" if way.price_to_images else ""))
    return [*found, ("mostly", lambda way: f"{way.dominating} {way.terms[way.dominating] / _total(way):.0%}")]


_OF_SHARDS = [
    ("workers", lambda one: str(one.workers)),
    ("replication", lambda one: bytes_text(one.replicated_bytes)),
    ("optimizer sharded", lambda one: bytes_text(one.optimiser_sharded_bytes)),
    ("fully sharded", lambda one: bytes_text(one.fully_sharded_bytes)),
]


def _short(span: Span) -> str:
    return span_text(span).replace(" to ", "-")


def _total(way: Way) -> float:
    return sum(way.terms.values()) or 1.0


def _table(rows: Sequence[Any], columns: Sequence[tuple[str, Callable[[Any], str]]]) -> Iterator[str]:
    """Columns to the right; as long as they are too wide without those that can be missed."""
    cells = [[title, *(text(row) for row in rows)] for title, text in columns]
    for missed in _MISSED_FIRST:
        if sum(max(map(len, column)) + 2 for column in cells) - 2 > WIDTH:
            cells = [column for column in cells if column[0] != missed]
    padded = [[text.rjust(max(map(len, column))) for text in column] for column in cells]
    for line in zip(*padded, strict=True):
        yield "  ".join(line).rstrip()


def _wrapped(text: str, first: str = "", later: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=later)
