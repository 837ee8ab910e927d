"""States: a worker is slower at certain times of the run's clock, whatever it does then.

Factors are multiples of the work: `slow=3` means that work takes three times as long. Durations are in units of the
option `seconds`, seconds of the run's clock: `seconds=0.1` plays the same story ten times as fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.delays.base import Delays, Floats
from lockstep.engine.delays.draws import STREAM_CLOCK, STREAM_START, row_keys, uniforms
from lockstep.engine.delays.timeline import WIDTH, Timeline
from lockstep.engine.options import option

_PERIODS = 8  # of a window
_CYCLES = 2  # of a fast and a slow time, of a window: then WIDTH segments suffice but once in 1e9 windows


def _seconds() -> Any:
    return option(1.0, "one unit of time, in seconds of the run's clock", above=0)


def _slow() -> Any:
    return option(3.0, "times as long as work takes otherwise", least=1)


class States(Delays):
    """Work is stretched by the factors of a timeline that has a row per worker."""

    family = "states"
    _timeline: Timeline

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        return self._timeline.end(worker, start, work_seconds)

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        return _along(self._timeline, self._who(workers), tasks, starts, work_seconds)


def _along(
    timeline: Timeline, rows: NDArray[np.int64], tasks: ArrayLike, starts: ArrayLike, works: ArrayLike
) -> Floats:
    """`timeline.ends` for what is broadcast against each other."""
    shape = np.broadcast_shapes(np.shape(rows), np.shape(tasks), np.shape(starts), np.shape(works))
    who, begun, work = (np.broadcast_to(each, shape).ravel() for each in (rows, starts, works))
    return timeline.ends(who, begun.astype(np.float64), work.astype(np.float64)).reshape(shape)


class TwoStates(Timeline):
    """Rows that alternate between factor 1 and `slow`, for exponentially distributed times."""

    def __init__(self, rows: int, seed: int, slow: float, fast_seconds: float, slow_seconds: float) -> None:
        """`fast_seconds`, `slow_seconds`: the mean duration of either state. A row begins in the stationary law."""
        self._keys = row_keys(seed, STREAM_CLOCK, rows)[:, None]
        self._slow, self._means = slow, (fast_seconds, slow_seconds)
        share = slow_seconds / (fast_seconds + slow_seconds)
        first = uniforms(row_keys(seed, STREAM_START, rows), 0) < share
        super().__init__(rows, _CYCLES * (fast_seconds + slow_seconds), first)

    def make(self, window: int, carried: NDArray[Any]) -> tuple[Floats, Floats, NDArray[Any]]:
        """`carried`: whether a row is slow. That its state began before does not matter: the law has no memory."""
        counters = np.arange(window * WIDTH, (window + 1) * WIDTH, dtype=np.uint64)
        slow = carried[:, None] ^ (np.arange(WIDTH) % 2 == 1)
        fast_seconds, slow_seconds = self._means
        durations = -np.log(uniforms(self._keys, counters)) * np.where(slow, slow_seconds, fast_seconds)
        edges = np.empty((self.rows, WIDTH + 1))
        edges[:, 0], end = window * self.window_seconds, (window + 1) * self.window_seconds
        np.minimum(edges[:, :1] + np.cumsum(durations, axis=1), end, out=edges[:, 1:])
        edges[:, WIDTH] = end  # switches that do not fit, see _CYCLES, move into the next window
        odd = np.count_nonzero(edges[:, 1:WIDTH] < end, axis=1) % 2 == 1
        return edges, np.where(slow, self._slow, 1.0), carried ^ odd


class Markov(States):
    """A worker is slow or not, and changes at random: a continuous-time Markov chain of two states.

    The two-state model of Yang, Pedarsani, Avestimehr (2019), "Timely-Throughput Optimal Coded Computing over Cloud
    Networks", in continuous time. A worker is slow for enter / (enter + leave) of the time, 1 / leave units at a
    stretch.
    """

    name = "markov"

    @dataclass(frozen=True)
    class Options:
        slow: float = _slow()
        enter: float = option(0.05, "times per unit that a fast worker becomes slow", above=0)
        leave: float = option(0.2, "times per unit that a slow worker becomes fast", above=0)
        seconds: float = _seconds()

    options_kind = Options

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        super().__init__(options, workers, seed)
        means = (options.seconds / options.enter, options.seconds / options.leave)
        self._timeline = TwoStates(self._rows(), seed, self._factor(), *means)

    def _rows(self) -> int:
        return self.workers

    def _factor(self) -> float:
        """Of a slow row."""
        factor: float = self.options.slow
        return factor


class Groups(Markov):
    """The workers of a rack share a Markov state, so that they are slow together: a switch, a cooler, a neighbor.

    Workers `size` × r to `size` × (r + 1) - 1 are rack r; the last one may be smaller.
    """

    name = "groups"

    @dataclass(frozen=True)
    class Options(Markov.Options):
        size: int = option(4, "workers of a rack", least=1)

    options_kind = Options

    def _rows(self) -> int:
        rows: int = -(-self.workers // self.options.size)
        return rows

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        if worker >= self.workers:
            self._refuse(worker)
        return self._timeline.end(worker // self.options.size, start, work_seconds)

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        racks = self._who(workers) // self.options.size
        return _along(self._timeline, racks, tasks, starts, work_seconds)


class Decoding(Markov):
    """At times, decoding takes `slow` times as long: the `share` of the work that is input is stretched, the rest not.

    What a worker's neighbours do to its input: they read the same disk or take the cores that decode. In a slow state
    work takes 1 + share × (slow - 1) times as long.
    """

    name = "decoding"

    @dataclass(frozen=True)
    class Options(Markov.Options):
        share: float = option(0.3, "of the work that is input", above=0, most=1)

    options_kind = Options

    def _factor(self) -> float:
        return 1.0 + self.options.share * (self.options.slow - 1.0)


class Link(Markov):
    """At times, a worker's link is busy, and its messages take `slow` times as long; its work does not.

    What background traffic does to a link: the states are those of `markov`, of the worker's link.
    """

    name = "link"
    of_messages = True
    options_kind = Markov.Options

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        return start + work_seconds

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        return Delays.message_ends(self, workers, tasks, starts, work_seconds)

    def message_end(self, worker: int, task: int, start: float, seconds: float) -> float:
        return self._timeline.end(worker, start, seconds)

    def message_ends(self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, seconds: ArrayLike) -> Floats:
        return _along(self._timeline, self._who(workers), tasks, starts, seconds)


class _Pulses(Timeline):
    """Rows that are slow once per period, each in a phase of its own."""

    def __init__(self, rows: int, seed: int, slow: float, share: float, period_seconds: float) -> None:
        self._phases = uniforms(row_keys(seed, STREAM_START, rows), 0)[:, None]
        self._slow, self._share, self._period = slow, share, period_seconds
        super().__init__(rows, _PERIODS * period_seconds, np.zeros(0))

    def make(self, window: int, carried: NDArray[Any]) -> tuple[Floats, Floats, NDArray[Any]]:
        # A slow time that began in the period before may reach into the window.
        number = np.arange(window * _PERIODS - 1, (window + 1) * _PERIODS) + self._phases
        start, end = window * self.window_seconds, (window + 1) * self.window_seconds
        edges = np.full((self.rows, WIDTH + 1), end)
        edges[:, 0] = start
        edges[:, 1 : 2 * _PERIODS + 3 : 2] = np.clip(number * self._period, start, end)
        edges[:, 2 : 2 * _PERIODS + 4 : 2] = np.clip((number + self._share) * self._period, start, end)
        factors = np.ones((self.rows, WIDTH))
        factors[:, 1 : 2 * _PERIODS + 3 : 2] = self._slow
        return edges, factors, carried


class Periodic(States):
    """A worker is slow for a share of each period, such as a nightly backup; each worker in a phase of its own."""

    name = "periodic"

    @dataclass(frozen=True)
    class Options:
        slow: float = _slow()
        period: float = option(20.0, "of a worker's slow times, in units", above=0)
        share: float = option(0.2, "of the period in which the worker is slow", above=0, below=1)
        seconds: float = _seconds()

    options_kind = Options

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        super().__init__(options, workers, seed)
        self._timeline = _Pulses(workers, seed, options.slow, options.share, options.period * options.seconds)


class _Walk(Timeline):
    """Rows whose factor moves one level up or down in each unit of time and is reflected at the ends."""

    def __init__(self, rows: int, seed: int, most: float, levels: int, unit_seconds: float) -> None:
        self._keys = row_keys(seed, STREAM_CLOCK, rows)[:, None]
        self._most, self._levels, self._unit = most, levels, unit_seconds
        # A walk on a circle of twice the levels, folded: to reflect is to go on around.
        first = (uniforms(row_keys(seed, STREAM_START, rows), 0) * (2 * levels)).astype(np.int64)
        super().__init__(rows, WIDTH * unit_seconds, first)

    def make(self, window: int, carried: NDArray[Any]) -> tuple[Floats, Floats, NDArray[Any]]:
        counters = np.arange(window * WIDTH, (window + 1) * WIDTH, dtype=np.uint64)
        moves = np.where(uniforms(self._keys, counters) < 0.5, -1, 1)
        after = (carried[:, None] + np.cumsum(moves, axis=1)) % (2 * self._levels)
        places = np.concatenate([carried[:, None], after[:, :-1]], axis=1)
        levels = self._levels - np.abs(self._levels - places)
        edges = np.arange(window * WIDTH, (window + 1) * WIDTH + 1) * self._unit
        factors = 1.0 + (self._most - 1.0) / self._levels * levels
        return np.tile(edges, (self.rows, 1)), factors, after[:, -1]


class Drift(States):
    """Slow drift: a worker's factor is a random walk between 1 and `most`, reflected there: heat, a filling memory.

    In each unit of time it goes one of `levels` equal steps up or down. It begins, and so stays, uniformly distributed
    over them, but for the two ends, which are half as likely.
    """

    name = "drift"

    @dataclass(frozen=True)
    class Options:
        most: float = option(3.0, "the largest factor", above=1)
        levels: int = option(20, "steps from 1 to the largest factor", least=1)
        seconds: float = _seconds()

    options_kind = Options

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        super().__init__(options, workers, seed)
        self._timeline = _Walk(workers, seed, options.most, options.levels, options.seconds)
