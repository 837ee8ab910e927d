"""`simulate.worker`, for all workers of a round at once: the same operations in the same order, so the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.delays import Delays
from lockstep.engine.policies.rounds import RoundPolicy
from lockstep.predict.cost_model import Costs
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds_of

Times = NDArray[np.int64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Courses:
    """Tasks of as many workers. Arrays are int64 [workers]; those of pieces, of one micro-batch of each, hold the
    same moment in `computed` and `ended` where a worker did not begin it."""

    workers: Whole
    tasks: Whole
    sizes: Whole  # samples that were given out
    samples: Whole  # and computed, if nobody recalls
    began: Times
    ended: Times
    compute: Times
    pieces: tuple[tuple[Times, Times, Times], ...]  # began, computed, ended

    def listens(self, heard: int) -> Times:
        """When each worker hears a recall that comes at `heard`."""
        found, open_ = np.maximum(self.began, heard), self.began < heard
        for _, computed, ended in self.pieces:
            computing = open_ & (heard < computed)
            found[computing] = computed[computing]
            open_ &= ~computing & (heard >= ended)
        return found

    def computed(self, until: Times) -> Times:
        """Nanoseconds that each has computed before its own `until`."""
        total = np.zeros(len(self.workers), np.int64)
        for began, computed, _ in self.pieces:
            total += np.maximum(np.minimum(computed, until) - began, 0)
        return total


def courses_of(
    policy: RoundPolicy, workers: Whole, tasks: Whole, sizes: Whole, began: Times, costs: Costs, delays: Delays
) -> Courses:
    """How the tasks go that `workers` begin at `began`, with `sizes` samples."""
    size = policy.setting.micro_batch
    micro = np.maximum(np.minimum(size, sizes) if size else sizes, 1)
    counts = -(-sizes // micro)
    deadline = policy.deadline_seconds()
    start = now = began / NANOSECONDS
    at, samples, compute = began, np.zeros(len(workers), np.int64), np.zeros(len(workers), np.int64)
    goes_on, pieces = np.ones(len(workers), np.bool_), []
    for place in range(int(counts.max(initial=1))):
        goes_on &= (place < counts) & (at < NEVER)
        if place and deadline is not None:
            goes_on &= now - start < deadline
        who = np.flatnonzero(goes_on)
        if not len(who):
            break
        own = np.minimum(micro, sizes - place * micro)[who]
        seconds = _compute_seconds(costs, own)
        now = now.copy()
        now[who] = delays.ends(workers[who], tasks[who], now[who], seconds, place, counts[who])
        computed, ended = at.copy(), at.copy()
        ended[who] = nanoseconds_of(now[who])
        computed[who] = np.minimum(at[who] + nanoseconds_of(seconds), ended[who])
        pieces.append((at, computed, ended))
        compute += computed - at
        samples[who] += own
        at = ended
    return Courses(workers, tasks, sizes, samples, began, at, compute, tuple(pieces))


def _compute_seconds(costs: Costs, images: Whole) -> NDArray[np.float64]:
    """`Costs.compute_seconds` of each; workers have few different shares."""
    if (images == images[0]).all():
        return np.full(len(images), costs.compute_seconds(int(images[0])))
    distinct, place = np.unique(images, return_inverse=True)
    return np.array([costs.compute_seconds(int(one)) for one in distinct])[place]
