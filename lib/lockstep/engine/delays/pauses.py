"""Pauses: a task takes its work and, somewhere in it, a pause that is drawn for (worker, task).

A pause is a random multiple of a unit. The unit is the task's own work, or, with the option `seconds`, so many seconds
of the run's clock whatever the work. The parameters of the distributions are therefore plain factors.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lockstep.engine.delays.base import Delays, Floats
from lockstep.engine.delays.draws import STREAM_PAUSE, STREAM_PLACE, Draws
from lockstep.engine.options import option


def _unit() -> Any:
    return option(0.0, "the unit of a pause, in seconds of the run's clock; 0: the work of the task", least=0)


class Pauses(Delays):
    """A pause of `multiple(worker, task)` units, in a place of the task that is drawn for (worker, task) too."""

    family = "pauses"

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        super().__init__(options, workers, seed)
        self._unit_seconds: float = options.seconds
        self._multiples = Draws(seed, STREAM_PAUSE, workers, self._multiples_of)
        self._places = Draws(seed, STREAM_PLACE, workers, lambda uniform: uniform)

    @abstractmethod
    def _multiples_of(self, uniform: Floats) -> Floats:
        """The multiples at these quantiles: the inverse of the distribution, or of its tail."""

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        if pieces != 1 and int(self._places.one(worker, task) * pieces) != piece:
            return start + work_seconds
        return start + work_seconds + self._multiples.one(worker, task) * (self._unit_seconds or work_seconds * pieces)

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        who, what = self._who(workers), self._what(tasks)
        begun, work = np.asarray(starts, np.float64), np.asarray(work_seconds, np.float64)
        parts = np.asarray(pieces, np.int64)
        pauses = self._multiples.many(who, what) * (self._unit_seconds or work * parts)
        if np.any(parts != 1):
            pauses = np.where((self._places.many(who, what) * parts).astype(np.int64) == piece, pauses, 0.0)
        ends: Floats = begun + work + pauses
        return ends


class Exponential(Pauses):
    """A pause of shift + Exp(mean) units: where the unit is its work, a task takes 1 + shift + Exp(mean) times that.

    The model of Lee, Lam, Pedarsani, Papailiopoulos, Ramchandran (2018), "Speeding Up Distributed Machine Learning
    Using Codes", whose straggling parameter is 1 / `mean`, and of most papers on coding. `mean` and `shift` are units.
    """

    name = "exponential"

    @dataclass(frozen=True)
    class Options:
        mean: float = option(0.5, "mean of the random part of a pause, in units", above=0)
        shift: float = option(0.0, "part of every pause, in units", least=0)
        seconds: float = _unit()

    options_kind = Options

    def _multiples_of(self, uniform: Floats) -> Floats:
        return np.log(uniform) * -self.options.mean + self.options.shift


class Pareto(Pauses):
    """A heavy tail: with `scale` 1 a task takes at least x times its work with probability x ** -shape, for x >= 1.

    Task durations of Wang, Joshi, Wornell (2015), "Using Straggler Replication to Reduce Latency in Large-scale
    Parallel Computing". A pause is scale × (X - 1) units for a Pareto variable X of least value 1: its mean is
    scale / (shape - 1), and infinite for a shape of at most 1.
    """

    name = "pareto"

    @dataclass(frozen=True)
    class Options:
        shape: float = option(2.0, "the exponent of the tail; smaller is heavier", above=0)
        scale: float = option(1.0, "of the pauses, in units", above=0)
        seconds: float = _unit()

    options_kind = Options

    def _multiples_of(self, uniform: Floats) -> Floats:
        return (np.exp(np.log(uniform) * (-1.0 / self.options.shape)) - 1.0) * self.options.scale


class Bimodal(Pauses):
    """Most tasks have no pause, a share of them one of fixed length, such as a retried read or a garbage collection.

    `pause` is units: with the default of 2 such a task takes three times its work.
    """

    name = "bimodal"

    @dataclass(frozen=True)
    class Options:
        share: float = option(0.1, "of the tasks that have a pause", above=0, most=1)
        pause: float = option(2.0, "length of a pause, in units", above=0)
        seconds: float = _unit()

    options_kind = Options

    def _multiples_of(self, uniform: Floats) -> Floats:
        return np.where(uniform < self.options.share, self.options.pause, 0.0)
