"""Clocks by which what is timed takes given seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def clock(durations: list[float]) -> Callable[[], float]:
    """A clock by which the copies take these seconds."""

    def times() -> Iterator[float]:
        now = 0.0
        for duration in durations:
            yield now
            now += duration
            yield now

    ticks = times()
    return lambda: next(ticks)
