"""`simulate.worker`, for all workers of a round at once: the same operations in the same order, so the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.delays import Delays
from lockstep.engine.policies.rounds import RoundPolicy
from lockstep.predict.cost_model import Costs
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds, nanoseconds_of

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

    def listens(self, heard: int, at: Whole) -> Times:
        """When the workers at these places hear a recall that comes at `heard`."""
        own = self.began[at]
        found, open_ = np.maximum(own, heard), own < heard
        for _, computed, ended in self.pieces:
            computing = open_ & (heard < computed[at])
            found[computing] = computed[at][computing]
            open_ &= ~computing & (heard >= ended[at])
        return found

    def computed(self, until: Times, at: Whole) -> Times:
        """Nanoseconds that the workers at these places have computed, each before its own `until` [workers]."""
        total, ends = np.zeros(len(at), np.int64), until[at]
        for began, computed, _ in self.pieces:
            total += np.maximum(np.minimum(computed[at], ends) - began[at], 0)
        return total


def courses_of(
    policy: RoundPolicy, workers: Whole, tasks: Whole, sizes: Whole, began: Times, costs: Costs, delays: Delays
) -> Courses:
    """How the tasks go that `workers` begin at `began`, with `sizes` samples."""
    size = policy.setting.micro_batch
    if not (size and size < sizes.max(initial=0)) and sizes.min(initial=1) and began.max(initial=0) < NEVER:
        return _whole(workers, tasks, sizes, began, costs, delays)
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
        seconds, computing = _computing(costs, own)
        now = now.copy()
        now[who] = delays.ends(workers[who], tasks[who], now[who], seconds, place, counts[who])
        computed, ended = at.copy(), at.copy()
        ended[who] = nanoseconds_of(now[who])
        computed[who] = np.minimum(at[who] + computing, ended[who])
        pieces.append((at, computed, ended))
        compute += computed - at
        samples[who] += own
        at = ended
    return Courses(workers, tasks, sizes, samples, began, at, compute, tuple(pieces))


def _whole(workers: Whole, tasks: Whole, sizes: Whole, began: Times, costs: Costs, delays: Delays) -> Courses:
    """The same where every share is one micro-batch, of at least a sample."""
    seconds, computing = _computing(costs, sizes)
    ended = nanoseconds_of(delays.ends(workers, tasks, began / NANOSECONDS, seconds))
    computed = np.minimum(began + computing, ended)
    return Courses(workers, tasks, sizes, sizes, began, ended, computed - began, ((began, computed, ended),))


def _computing(costs: Costs, images: Whole) -> tuple[ArrayLike, Times | int]:
    """`Costs.compute_seconds` of each, and in nanoseconds; one number where all are the same. Workers have few
    different shares."""
    if (images == images[0]).all():
        one = costs.compute_seconds(int(images[0]))
        return one, nanoseconds(one)
    distinct, place = np.unique(images, return_inverse=True)
    each = np.array([costs.compute_seconds(int(size)) for size in distinct])[place]
    return each, nanoseconds_of(each)
