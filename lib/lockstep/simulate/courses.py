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
    """Tasks of as many workers. Arrays are int64 [workers]; those of pieces, of one micro-batch of each worker, hold the
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
        found = np.full(len(self.workers), heard)
        open_ = np.ones(len(self.workers), np.bool_)
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
    deadline, margin = policy.deadline_seconds(), 0.0
    start = now = began / NANOSECONDS
    at, samples, compute = began, np.zeros(len(workers), np.int64), np.zeros(len(workers), np.int64)
    active, pieces = np.ones(len(workers), np.bool_), []
    for place in range(int(counts.max(initial=1))):
        active = active & (place < counts)
        if place and deadline is not None:
            active = active & (now - start < deadline) & (now - start + margin <= deadline)
        if not active.any():
            break
        own = np.minimum(micro, sizes - place * micro)
        seconds = _compute_seconds(costs, own)
        ends = delays.ends(workers, tasks, now, seconds, place, counts)
        now = np.where(active, ends, now)
        computed = np.where(active, at + nanoseconds_of(seconds), at)
        ended = np.where(active, nanoseconds_of(ends), at)
        pieces.append((at, computed, ended))
        compute += computed - at
        samples += np.where(active, own, 0)
        at = ended
        active = active & (ended < NEVER)
    return Courses(workers, tasks, sizes, samples, began, at, compute, tuple(pieces))


def _compute_seconds(costs: Costs, images: Whole) -> NDArray[np.float64]:
    """`Costs.compute_seconds` of each; workers have few different shares."""
    distinct, place = np.unique(images, return_inverse=True)
    return np.array([costs.compute_seconds(int(one)) for one in distinct])[place]
