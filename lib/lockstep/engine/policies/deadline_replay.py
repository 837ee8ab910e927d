"""What settings of the deadline would have made of the last rounds: between waiting for all and never waiting.

    infinite   a round takes its slowest share
    seconds    a round takes as long; a worker brings the micro-batches that end in it, or one late to a later update
    auto       the same with the deadline that is best by the round before
    none       every worker goes on by itself; a micro-batch takes its own time, and that of its messages

All are measured alike, in progress per second. A sample's gradient makes 1 / (s + B) of progress, where s are the
samples that its parameters have not seen when it is applied, itself included, and B is the noise scale
(`noise_scale`). A synchronous update of b samples makes b / (b + B) so, as `deadlines.best_deadline` has it. A gradient
that is late misses the updates between as if they were part of its own, which is our assumption, and no paper's: n
equal workers that never wait learn as much from a micro-batch each as from one update of n micro-batches.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from lockstep.engine.policies.deadlines import SLACK, best_deadline
from lockstep.engine.policies.rounds import Floats

FIXED = 7
"""Deadlines of so many seconds are tried, beside infinite, auto and none: ten settings."""


class World(NamedTuple):
    """What the settings are compared in. Samples; seconds."""

    global_batch: int
    share: float  # of the global batch, for one worker
    micro_batch: int
    noise: float
    transit: float  # of a task, what its worker does not spend
    overhead: float  # of a round beyond its deadline
    bound: int  # updates that a contribution may be late
    most: float  # samples of an update


class LastRounds:
    """Seconds per sample of every worker in the last `window` rounds; a round is over when somebody comes again."""

    def __init__(self, workers: int, window: int) -> None:
        self.workers = workers
        self._over: deque[Floats] = deque(maxlen=window)
        self._open = np.full(workers, np.nan)

    def heard(self, worker: int, seconds: float) -> None:
        """A task of `worker` took so long per sample."""
        if not np.isnan(self._open[worker]):
            self._over.append(self._open)
            self._open = np.full(self.workers, np.nan)
        self._open[worker] = seconds

    def table(self, least: Floats) -> Floats:
        """[rounds, workers]. A round in which a worker did not come is part of its next task, and since its last one it
        has taken at least `least`, [workers], NaN where that is unknown. NaN for a worker of whom nothing is known."""
        rows = np.array([*self._over, self._open])
        known = ~np.isnan(rows)
        for worker in range(self.workers):
            places = np.flatnonzero(known[:, worker])
            if len(places):
                following = np.searchsorted(places, np.arange(len(rows)))
                rows[:, worker] = rows[places[np.minimum(following, len(places) - 1)], worker]
                rows[places[-1] + 1 :, worker] = np.fmax(rows[places[-1], worker], least[worker])
            else:
                rows[:, worker] = least[worker]
        return rows

    def state(self) -> dict[str, Any]:
        return {"over": [one.tolist() for one in self._over], "open": self._open.tolist()}

    def load(self, state: dict[str, Any]) -> None:
        self._over.clear()
        self._over.extend(np.array(one, np.float64) for one in state["over"])
        self._open = np.array(state["open"], np.float64)


def best_setting(rows: Floats, world: World) -> float | None:
    """The deadline with the most progress per second in these rounds, [rounds, workers] seconds per sample: seconds,
    infinite, 0 for none, None for auto. Of equal ones the one that waits longer."""
    settings = [math.inf, None, *fixed_deadlines(rows, world)[::-1], 0.0]
    return settings[int(np.argmax([replayed_progress(one, rows, world) for one in settings]))]


def fixed_deadlines(rows: Floats, world: World) -> list[float]:
    """From a usual micro-batch to a usual worker's part of the largest update, in equal ratios."""
    each = float(np.median(rows)) * (1 + 1e-9)  # a micro-batch that ends just then counts
    longest = max(world.share * world.most / world.global_batch, world.micro_batch)
    return [float(one) for one in np.geomspace(each * world.micro_batch, each * longest, FIXED)]


def replayed_progress(deadline: float | None, rows: Floats, world: World) -> float:
    """Progress per second that this setting would have made in these rounds."""
    if deadline == 0:
        return float(np.mean([_never_waiting(world.micro_batch * row, world) for row in rows]))
    if deadline == math.inf:
        seconds = float((rows.max(axis=1) * world.share + world.transit).mean())
        return min(world.global_batch, world.most) / (world.global_batch + world.noise) / seconds
    if deadline is not None:
        return _waiting(np.full(len(rows), deadline), rows, world)
    known = np.concatenate([rows[:1], rows[:-1]])
    chosen = [
        best_deadline(row * world.micro_batch, world.micro_batch, world.noise, world.overhead, world.bound, world.most)
        for row in known
    ]
    return _waiting(np.array(chosen), rows, world)


def _waiting(deadlines: Floats, rows: Floats, world: World) -> float:
    """A deadline for each of the rounds. One micro-batch that ends within the slack is waited for, and where none does
    the first one is."""
    micro = rows * world.micro_batch
    lasts = np.maximum(deadlines, micro.min(axis=1))[:, None]
    in_time = np.where(micro <= lasts * (1 + SLACK), np.maximum(np.floor(lasts / micro), 1.0), 0.0)
    late = np.where(in_time == 0, np.ceil((micro + world.transit) / (lasts + world.overhead)), 1.0)
    samples = world.micro_batch * np.where(in_time > 0, in_time, np.where(late <= world.bound + 1, 1 / late, 0.0))
    together = samples.sum(axis=1, keepdims=True)
    progress = samples * np.minimum(world.most / together, 1.0) / (together * late + world.noise)
    return float(progress.sum() / (lasts + world.overhead).sum())


def _never_waiting(micro: Floats, world: World) -> float:
    """Of workers whose micro-batches take so long, [workers]: during one of them each of the others applies its own."""
    cycle = micro + world.transit
    unseen = world.micro_batch * cycle * (1 / cycle).sum()
    return float((world.micro_batch / cycle / (unseen + world.noise)).sum())
