"""Factors over the clock: a row is slow between two edges, and work that crosses edges is integrated exactly.

The clock is cut into windows of equal length. A window holds, for every row, edges and the factor between each two of
them, and is a function of (seed, row, window) and of what the row carries over from the window before, such as its
state. So windows are made when they are first asked for, the oldest are dropped and made again if need be, and what is
carried, a few bytes per row and window, is all that stays.

    row 0   |--- 1 ---|------- 3 -------|--- 1 ----||          edges of window k: its start, switches, its end;
    row 1   |-------------- 1 ---------------------||          those left over stand at its end
            start of window k                      start of window k + 1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.delays.draws import Floats

WIDTH = 32
"""Segments of a row in a window, at most."""

Rows = NDArray[np.int64]

MOST_BYTES = 32 * 2**20
"""Of the windows that are kept."""

_DONE = -1.0  # work that is left of work that has ended
_NOWHERE = (0.0, -1.0, 1.0)
_INSIDE = 1 - 1e-12  # near the end of a window, the last bits decide which window a moment is in


class ClockWindow:
    """The edges [rows, WIDTH + 1] and factors [rows, WIDTH] of one window.

    Where a row was found last is remembered, as clocks mostly move on by little; no answer depends on it.
    """

    def __init__(self, edges: Floats, factors: Floats) -> None:
        self.edges, self.factors = edges, factors
        self.views: dict[int, tuple[memoryview, memoryview]] = {}
        self._flat_edges, self._flat_factors = edges.ravel(), factors.ravel()
        self._at = np.zeros(len(edges), dtype=np.int64)
        self._low, self._high, self._factor = edges[:, 0].copy(), edges[:, 1].copy(), factors[:, 0].copy()

    def view(self, row: int) -> tuple[memoryview, memoryview]:
        """Edges and factors of one row. Raises ValueError for a row that does not exist."""
        if not 0 <= row < len(self.edges):
            raise ValueError(f"worker or group {row} has no delay; there are 0 … {len(self.edges) - 1}")
        self.views[row] = found = (self.edges[row].data, self.factors[row].data)
        return found

    def through(self, rows: Rows, start: Floats, work: Floats) -> tuple[Floats, Rows, Floats]:
        """When work of rows that begins in this window ends; whose does not, and how much of theirs is left then.

        For those the end is the window's. The steps are those of `Timeline.end`, of all rows at once.
        """
        at, high, factor = self._segments(rows, start)
        room = (high - start) / factor
        ends = start + work * factor
        now = np.flatnonzero(work > room)
        left = work[now] - room[now]
        ends[now] = high[now]
        at = at[now] + 1
        crossing = np.arange(len(now))  # those of `now` that are not done
        while len(crossing := crossing[at[crossing] < WIDTH]):
            row, of = rows[now[crossing]], at[crossing]
            begun, edge = ends[now[crossing]], self._flat_edges[row * (WIDTH + 1) + of + 1]
            factor = self._flat_factors[row * WIDTH + of]
            room = (edge - begun) / factor
            fits = left[crossing] <= room
            ends[now[crossing]] = np.where(fits, begun + left[crossing] * factor, edge)
            left[crossing] = np.where(fits, _DONE, left[crossing] - room)
            at[crossing] += 1
            crossing = crossing[~fits]
        return ends, now[left != _DONE], left[left != _DONE]

    def _segments(self, rows: Rows, start: Floats) -> tuple[Rows, Floats, Floats]:
        """The segment in which each row's clock stands, its end and its factor."""
        at, high, factor = self._at[rows], self._high[rows], self._factor[rows]
        lost = np.flatnonzero((self._low[rows] > start) | (high <= start))
        if len(lost):
            row = rows[lost]
            at[lost] = self._at[row] = found = self._bisect(row, start[lost])
            high[lost] = self._flat_edges[row * (WIDTH + 1) + found + 1]
            factor[lost] = self._flat_factors[row * WIDTH + found]
            found = self._at[row]  # where a row stands there twice, one of its places
            self._low[row] = self._flat_edges[row * (WIDTH + 1) + found]
            self._high[row] = self._flat_edges[row * (WIDTH + 1) + found + 1]
            self._factor[row] = self._flat_factors[row * WIDTH + found]
        return at, high, factor

    def _bisect(self, rows: Rows, start: Floats) -> Rows:
        """The last edge of each row that is not behind `start`; the first segment for a clock before all edges."""
        found = np.zeros(len(rows), dtype=np.int64)
        half = WIDTH
        while half:
            further = np.minimum(found + half, WIDTH)
            found = np.where(self._flat_edges[rows * (WIDTH + 1) + further] <= start, further, found)
            half //= 2
        return np.minimum(found, WIDTH - 1)


class Timeline(ABC):
    """The factors of `rows` rows, each from 0 on; work between two edges takes `factor` times as long."""

    def __init__(self, rows: int, window_seconds: float, carried: NDArray[Any]) -> None:
        """`carried`: what each row begins window 0 with."""
        self.rows = rows
        self.window_seconds = window_seconds
        self._carried = [carried]  # at the start of each window
        self._windows: dict[int, ClockWindow] = {}
        self._last: dict[int, tuple[float, float, float]] = {}  # row -> its last segment: from, until, factor
        self._kept = max(4, MOST_BYTES // (rows * (2 * WIDTH + 1) * 8 * 2))

    @abstractmethod
    def make(self, window: int, carried: NDArray[Any]) -> tuple[Floats, Floats, NDArray[Any]]:
        """Edges [rows, WIDTH + 1], factors [rows, WIDTH] of a window, and what its rows carry into the next."""

    def end(self, row: int, start: float, work: float) -> float:
        """When work of `work` seconds ends that a row begins at `start`.

        Raises ValueError for a row that does not exist and for a time before 0.
        """
        low, high, factor = self._last.get(row, _NOWHERE)
        if low <= start < high * _INSIDE and work <= (high - start) / factor:
            return start + work * factor
        index = int(start / self.window_seconds)
        while True:
            window = self._windows.get(index) or self._window(index)
            edges, factors = window.views.get(row) or window.view(row)
            at = bisect_right(edges, start) - 1
            at = 0 if at < 0 else min(at, WIDTH - 1)
            while at < WIDTH:
                edge, factor = edges[at + 1], factors[at]
                room = (edge - start) / factor
                if work <= room:
                    self._last[row] = edges[at], edge, factor
                    return start + work * factor
                work -= room
                start = edge
                at += 1
            index += 1

    def ends(self, rows: Rows, starts: Floats, works: Floats) -> Floats:
        """The same for arrays [n] of rows, starts and works; bit for bit equal to `end`."""
        indices = (starts / self.window_seconds).astype(np.int64)
        if not len(rows):
            return starts.copy()
        first = int(indices.min())
        if first == indices.max():
            ends, now, left = self._window(first).through(rows, starts, works)
            lefts = works
            if len(now):
                lefts = works.copy()
                lefts[now], indices[now] = left, first + 1
        else:
            ends, lefts, now = starts.copy(), works.copy(), np.arange(len(rows))
        while len(now):
            index = int(indices[now].min())
            here = now[indices[now] == index]
            ends[here], opened, left = self._window(index).through(rows[here], ends[here], lefts[here])
            lefts[here[opened]], indices[here[opened]] = left, index + 1
            now = now[indices[now] > index]
        return ends

    def _window(self, index: int) -> ClockWindow:
        found = self._windows.get(index)
        if found is None:
            if index < 0:
                raise ValueError("a run's clock begins at 0; nothing can start before")
            while len(self._carried) <= index:
                self._carried.append(self.make(len(self._carried) - 1, self._carried[-1])[2])
            edges, factors, carried = self.make(index, self._carried[index])
            if len(self._carried) == index + 1:
                self._carried.append(carried)
            while len(self._windows) >= self._kept:
                del self._windows[next(iter(self._windows))]
            self._windows[index] = found = ClockWindow(edges, factors)
        return found
