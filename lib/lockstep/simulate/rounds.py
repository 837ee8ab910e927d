"""All workers of a round at once: for policies that decide round by round, about as fast as sorting the arrivals.

The server's queue in closed form: messages are received in the order in which they are ready, each takes as long, and
message i has been received at

    received(i) = max over j <= i of (ready(j) - j x message) + (i + 1) x message

Times are whole nanoseconds, so that every step ends at the same nanosecond as event by event (`simulate.events`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import Delays
from lockstep.engine.policies.base import Policy, Setting
from lockstep.engine.policies.rounds import Closed, RoundPolicy
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds
from lockstep.simulate.cluster import Cluster
from lockstep.simulate.courses import Courses, courses_of
from lockstep.simulate.ending import Until
from lockstep.simulate.tasks import SimulatedRun

Times = NDArray[np.int64]
Whole = NDArray[np.int64]

ONLY_EVENTS = ("progress", "loss", "coded", "local_steps")
"""What a policy may need and only the event-driven path has."""


def refusal(policy: Policy) -> str:
    """Why this path can't run the policy; empty if it can."""
    if not isinstance(policy, RoundPolicy):
        return "it does not decide round by round"
    missing = [name.replace("_", " ") for name in ONLY_EVENTS if getattr(policy.needs, name)]
    return f"it needs {' and '.join(missing)}, which only the event-driven path has" if missing else ""


class Crossed(NamedTuple):
    """Messages of recalled workers that were on their way already: they are received, and discarded."""

    ready: Times
    workers: Whole


class Queue(NamedTuple):
    """The messages of a round, in the order in which the server takes them; `fresh` are those of the round's tasks."""

    workers: Whole
    fresh: NDArray[np.bool_]
    ready: Times
    starts: Times
    received: Times


class Rounds:
    """One run of a policy that decides round by round, timing only. It keeps no table of tasks, which would be larger
    than all else. Raises AnalysisError for a policy that it can't run."""

    def __init__(self, policy: RoundPolicy, cluster: Cluster, delays: Delays, until: Until) -> None:
        if why := refusal(policy):
            raise AnalysisError(f"{type(policy).__name__} can't be simulated with all workers at once: {why}")
        if policy.workers != cluster.workers:
            there = f"a cluster of {cluster.workers}"
            raise AnalysisError(f"a policy for {policy.workers} workers on {there}: give as many")
        self.policy, self.cluster, self.delays, self.until = policy, cluster, delays, until
        self.workers = np.arange(policy.eligible)
        self.now = self._decided = 0  # the policy counts a round from its decision, before the update is made
        self._free = np.zeros(len(self.workers), np.int64)
        self._tasks = np.zeros(len(self.workers), np.int64)
        self._crossed = Crossed(np.empty(0, np.int64), np.empty(0, np.int64))
        self._batches = _Batches(policy.setting)
        self._updates: list[tuple[float, int, int]] = []
        self._sums = dict.fromkeys(("compute_seconds", "delay_seconds", "applied", "recalled", "events"), 0.0)

    def run(self) -> SimulatedRun:
        """Until `until` is reached, or nobody comes any more."""
        while self._round():
            ended, samples, _ = self._updates[-1]
            self._sums["applied"] += samples
            if self.until.reached(len(self._updates), self._sums["applied"], ended, math.nan):
                break
        updates = pd.DataFrame(self._updates, columns=["ended_seconds", "samples", "contributions"])
        updates["loss"] = np.nan
        name, facts = type(self.policy).__name__, self.policy.facts()
        return SimulatedRun(name, self.cluster.workers, updates, None, self._sums, facts)

    def _round(self) -> bool:
        policy, cluster = self.policy, self.cluster
        policy.round += 1
        opened = self._decided
        sizes = np.asarray(policy.sizes(self._batches.size(), self.workers))
        self._batches.take(int(sizes.sum()))
        working = self.workers if policy.everyone else self.workers[sizes > 0]
        sizes = sizes[working]
        sent = self.now + cluster.message * np.arange(1, len(working) + 1)
        began = np.maximum(sent + cluster.latency, self._free[working])
        self.now += cluster.message * len(working)
        courses = courses_of(policy, working, self._tasks[working], sizes, began, cluster.costs, self.delays)
        self._tasks[working] += 1
        queue = self._queue(courses)
        if policy.round and len(queue.starts) and queue.starts[0] > self.now:
            policy.idle(int(queue.starts[0] - self.now) / NANOSECONDS)
        found = self._close(queue, opened, working)
        if found is None:
            return False
        self._finish(queue, found, opened, courses)
        return True

    def _queue(self, courses: Courses) -> Queue:
        """Sorted by ready time, then worker. What crossed a recall was ready before anything of this round is."""
        fresh, ended = courses.workers, courses.ended
        if ended.max(initial=0) >= NEVER:
            fresh, ended = fresh[ended < NEVER], ended[ended < NEVER]
        crossed = len(self._crossed.ready)
        ready = np.concatenate([self._crossed.ready, ended + self.cluster.latency])
        workers = np.concatenate([self._crossed.workers, fresh])
        order = in_order(ready)
        workers, is_fresh, ready = workers[order], order >= crossed, ready[order]
        message = self.cluster.message
        if type(self.delays).message_end is not Delays.message_end:
            return self._one_by_one(workers, is_fresh, ready, courses)
        before = message * np.arange(len(ready))
        received = np.maximum.accumulate(np.maximum(ready, self.now) - before) + before + message
        return Queue(workers, is_fresh, ready, received - message, received)

    def _one_by_one(self, workers: Whole, fresh: NDArray[np.bool_], ready: Times, courses: Courses) -> Queue:
        """Messages that take longer or shorter, each according to when it begins to be received. Those that never end,
        for their worker was lost while it sent, are left out."""
        now, starts, received = self.now, np.empty_like(ready), np.empty_like(ready)
        tasks = np.zeros(len(self.workers), np.int64)
        tasks[courses.workers] = courses.tasks
        for place, (worker, is_fresh) in enumerate(zip(workers.tolist(), fresh.tolist(), strict=True)):
            starts[place] = max(now, int(ready[place]))
            task = int(tasks[worker]) - (not is_fresh)
            seconds = int(starts[place]) / NANOSECONDS
            received[place] = nanoseconds(self.delays.message_end(worker, task, seconds, self.cluster.message_seconds))
            now = int(received[place]) if received[place] < NEVER else now
        come = received < NEVER
        return Queue(workers[come], fresh[come], ready[come], starts[come], received[come])

    def _close(self, queue: Queue, opened: int, working: Whole) -> tuple[int, int] | None:
        """(messages received, time) when the round closes; None if it never does."""
        policy, fresh = self.policy, np.flatnonzero(queue.fresh)
        enough = policy.closes_at(queue.workers[fresh], len(working))
        by_count = int(fresh[enough - 1]) + 1 if enough else None
        after = policy.limit_after(len(working))
        if after is not None and 1 <= after <= len(fresh):
            began = opened / NANOSECONDS
            arrivals = queue.received[fresh[:after]] / NANOSECONDS - began
            wake = nanoseconds(began + policy.limit_seconds(arrivals, len(working)))
            known = int(fresh[after - 1]) + 1
            received = known + int(np.searchsorted(queue.starts[known:], wake, side="left"))
            if by_count is None or received < by_count:
                return received, max(int(queue.received[received - 1]), wake)
        return None if by_count is None else (by_count, int(queue.received[by_count - 1]))

    def _finish(self, queue: Queue, found: tuple[int, int], opened: int, courses: Courses) -> None:
        """Learn, recall, update."""
        received, self._decided = found
        self.now = self._decided
        arrived = np.flatnonzero(queue.fresh[:received])
        here = queue.workers[arrived]
        place = np.empty(len(self.workers), np.int64)
        place[courses.workers] = np.arange(len(courses.workers))
        arrivals, seconds = np.full((2, self.policy.workers), np.nan)
        samples, given, tasks = np.zeros((3, self.policy.workers), np.int64)
        own = place[here]
        arrivals[here] = queue.received[arrived] / NANOSECONDS - opened / NANOSECONDS
        seconds[here] = courses.ended[own] / NANOSECONDS - courses.began[own] / NANOSECONDS
        samples[here] = courses.samples[own]
        given[courses.workers] = courses.sizes
        tasks[self.workers] = self._tasks - 1
        lasted = self._decided / NANOSECONDS - opened / NANOSECONDS
        system = None
        if self.delays.readings:
            ended = np.full(self.policy.workers, np.nan)
            ended[here] = courses.ended[own] / NANOSECONDS
            system = self.delays.systems(ended)
        self.policy.closed(Closed(arrivals, seconds, samples, given, tasks, lasted, system=system))
        late = np.flatnonzero(np.isnan(arrivals[courses.workers]))
        self._recall(courses, late, queue, received)
        left = courses.sizes.sum() - samples.sum()
        self._batches.give_back(int(left))
        self.now += self.cluster.update
        self._updates.append((self.now / NANOSECONDS, int(samples.sum()), len(here)))
        self._sums["events"] += 2 * len(here) + len(late)

    def _recall(self, courses: Courses, late: Whole, queue: Queue, received: int) -> None:
        """Call off the tasks at these places of `courses`."""
        heard = self.now + self.cluster.latency
        crossing = np.zeros(len(courses.workers), np.bool_)
        crossing[late] = courses.ended[late] <= heard
        stopped = courses.ended.copy()
        stopped[late] = np.where(crossing, courses.ended, courses.listens(heard))[late]
        self._free[courses.workers] = stopped
        stale = ~queue.fresh[received:]
        ready = np.concatenate([queue.ready[received:][stale], courses.ended[crossing] + self.cluster.latency])
        workers = np.concatenate([queue.workers[received:][stale], courses.workers[crossing]])
        order = np.lexsort((workers, ready))
        self._crossed = Crossed(ready[order], workers[order])
        compute = float(courses.computed(stopped).sum()) / NANOSECONDS
        self._sums["compute_seconds"] += compute
        self._sums["delay_seconds"] += float((stopped - courses.began).sum()) / NANOSECONDS - compute
        self._sums["recalled"] += float(courses.sizes[late].sum())


def in_order(times: Times) -> Whole:
    """`np.argsort(times, kind="stable")`, several times as fast: time and place are sorted as one number, where they
    fit."""
    low, high = int(times.min(initial=NEVER)), int(times.max(initial=0))
    bits = len(times).bit_length()
    if high - low >= 1 << (62 - bits):
        return np.argsort(times, kind="stable")
    keys = ((times - low) << bits) | np.arange(len(times))
    keys.sort()
    return keys & ((1 << bits) - 1)


class _Batches:
    """The sizes of `lockstep.engine.policies.pool.Pool`'s batches, without its places."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self._returned, self._next = setting, 0, 0

    def size(self) -> int:
        """Of the next global batch."""
        setting = self.setting
        return min(setting.global_batch, self._returned + setting.samples - self._next % setting.samples)

    def take(self, samples: int) -> None:
        """A policy whose workers may stop early gives out more than a batch."""
        used = min(samples, self._returned)
        self._returned -= used
        self._next += samples - used

    def give_back(self, samples: int) -> None:
        self._returned += samples
