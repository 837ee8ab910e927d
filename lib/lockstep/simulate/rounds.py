"""All workers of a round at once: for policies that decide round by round, about as fast as sorting the arrivals.

The server's queue in closed form: messages are received in the order in which they are ready, each takes as long, and
message i has been received at

    received(i) = max over j <= i of (ready(j) - j x message) + (i + 1) x message

Times are whole nanoseconds, so that every step ends at the same nanosecond as event by event (`simulate.events`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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
    """The messages of a round, in the order in which the server takes them. `fresh` are the places of those of the
    round's tasks; None where no others are among them."""

    workers: Whole
    fresh: Whole | None
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
        self._turns = cluster.latency + cluster.message * np.arange(1, len(self.workers) + 1)
        self._crossed = Crossed(np.empty(0, np.int64), np.empty(0, np.int64))
        self._batches = _Batches(policy.setting)
        self._updates: list[tuple[float, int, int]] = []
        self._lost: tuple[int, ...] = ()
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
        return SimulatedRun(name, self.cluster.workers, updates, None, self._sums, facts, self._lost)

    def _round(self) -> bool:
        policy, cluster = self.policy, self.cluster
        policy.round += 1
        opened = self._decided
        sizes = np.asarray(policy.sizes(self._batches.size(), self.workers))
        self._batches.take(int(sizes.sum()))
        working = self.workers if policy.everyone or sizes.all() else self.workers[sizes > 0]
        free, tasks = self._free, self._tasks
        if len(working) < len(self.workers):
            free, tasks, sizes = free[working], tasks[working], sizes[working]
        began = np.maximum(self.now + self._turns[: len(working)], free)
        self.now += cluster.message * len(working)
        courses = courses_of(policy, working, tasks, sizes, began, cluster.costs, self.delays)
        self._tasks = self._tasks.copy()
        self._tasks[working] += 1
        queue = self._queue(courses)
        if policy.round and len(queue.starts) and queue.starts[0] > self.now:
            policy.idle(int(queue.starts[0] - self.now) / NANOSECONDS)
        found = self._close(queue, opened, working)
        if found is None:
            self._lost = tuple(np.setdiff1d(working, queue.workers).tolist())
            return False
        self._finish(queue, found, opened, courses)
        return True

    def _queue(self, courses: Courses) -> Queue:
        """Sorted by ready time, then worker. What crossed a recall was ready before anything of this round is."""
        fresh, ended = courses.workers, courses.ended
        if ended.max(initial=0) >= NEVER:
            fresh, ended = fresh[ended < NEVER], ended[ended < NEVER]
        ready, workers, crossed = ended + self.cluster.latency, fresh, len(self._crossed.ready)
        if crossed:
            ready = np.concatenate([self._crossed.ready, ready])
            workers = np.concatenate([self._crossed.workers, workers])
        order, ready = in_order(ready)
        workers, is_fresh = workers[order], np.flatnonzero(order >= crossed) if crossed else None
        message = self.cluster.message
        if type(self.delays).message_end is not Delays.message_end:
            return self._one_by_one(workers, is_fresh, ready, courses)
        received = np.maximum(ready, self.now) + message
        if message:
            before = message * np.arange(len(ready))
            received = np.maximum.accumulate(received - before) + before
        return Queue(workers, is_fresh, ready, received - message, received)

    def _one_by_one(self, workers: Whole, fresh: Whole | None, ready: Times, courses: Courses) -> Queue:
        """Messages that take longer or shorter, each according to when it begins to be received. Those that never end,
        for their worker was lost while it sent, are left out."""
        now, starts, received = self.now, np.empty_like(ready), np.empty_like(ready)
        tasks, is_fresh = np.zeros(len(self.workers), np.int64), np.ones(len(ready), np.bool_)
        tasks[courses.workers] = courses.tasks
        if fresh is not None:
            is_fresh[:] = False
            is_fresh[fresh] = True
        for place, (worker, of_round) in enumerate(zip(workers.tolist(), is_fresh.tolist(), strict=True)):
            starts[place] = max(now, int(ready[place]))
            task = int(tasks[worker]) - (not of_round)
            seconds = int(starts[place]) / NANOSECONDS
            received[place] = nanoseconds(self.delays.message_end(worker, task, seconds, self.cluster.message_seconds))
            now = int(received[place]) if received[place] < NEVER else now
        come = received < NEVER
        return Queue(workers[come], np.flatnonzero(is_fresh[come]), ready[come], starts[come], received[come])

    def _close(self, queue: Queue, opened: int, working: Whole) -> tuple[int, int] | None:
        """(messages received, time) when the round closes; None if it never does."""
        policy, fresh = self.policy, np.arange(len(queue.workers)) if queue.fresh is None else queue.fresh
        enough = policy.closes_at(queue.workers if queue.fresh is None else queue.workers[fresh], len(working))
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
        arrived = slice(received) if queue.fresh is None else queue.fresh[: np.searchsorted(queue.fresh, received)]
        here = queue.workers[arrived]
        late = np.zeros(self.policy.workers, np.bool_)
        late[courses.workers], late[here] = True, False
        self.policy.note_missing(courses.workers, late[courses.workers])
        if type(self.policy).closed is not RoundPolicy.closed:
            self.policy.closed(self._over(queue, arrived, here, opened, courses, late))
        missing = np.flatnonzero(late[courses.workers])
        self._recall(courses, missing, queue, received)
        used = int(courses.samples.sum() - courses.samples[missing].sum())
        self._batches.give_back(int(courses.sizes.sum()) - used)
        self.now += self.cluster.update
        self._updates.append((self.now / NANOSECONDS, used, len(here)))
        self._sums["events"] += 2 * len(here) + len(missing)

    def _over(
        self, queue: Queue, arrived: slice | Whole, here: Whole, opened: int, courses: Courses, late: NDArray[np.bool_]
    ) -> Closed:
        """What the policy hears of the round. `late`: who was given work and is not here, [workers]."""
        arrivals = np.full(self.policy.workers, np.nan)
        arrivals[here] = queue.received[arrived] / NANOSECONDS - opened / NANOSECONDS
        seconds = self._of_all(courses, courses.ended / NANOSECONDS - courses.began / NANOSECONDS, np.nan)
        samples, given = self._of_all(courses, courses.samples, 0), self._of_all(courses, courses.sizes, 0)
        if len(here) < len(courses.workers):
            seconds, samples = np.where(late, np.nan, seconds), np.where(late, 0, samples)
        tasks = np.zeros(self.policy.workers, np.int64)
        tasks[self.workers] = self._tasks - 1
        lasted, system = self._decided / NANOSECONDS - opened / NANOSECONDS, None
        if self.delays.readings:
            ended = np.full(self.policy.workers, np.nan)
            ended[here] = self._of_all(courses, courses.ended, 0)[here] / NANOSECONDS
            system = self.delays.systems(ended)
        return Closed(arrivals, seconds, samples, given, tasks, lasted, system=system)

    def _of_all(self, courses: Courses, values: NDArray[Any], others: float) -> NDArray[Any]:
        """`values` of the tasks' workers as those of all, [workers]."""
        if len(values) == self.policy.workers:
            return values
        found = np.full(self.policy.workers, others, values.dtype)
        found[courses.workers] = values
        return found

    def _recall(self, courses: Courses, late: Whole, queue: Queue, received: int) -> None:
        """Call off the tasks at these places of `courses`."""
        stopped, compute, crossing = courses.ended, int(courses.compute.sum()), late[:0]
        if len(late):
            heard, stopped = self.now + self.cluster.latency, courses.ended.copy()
            crosses = courses.ended[late] <= heard
            crossing = late[crosses]
            stopped[late] = np.where(crosses, courses.ended[late], courses.listens(heard, late))
            compute += int(courses.computed(stopped, late).sum() - courses.compute[late].sum())
        if len(stopped) == len(self._free):
            self._free = stopped
        else:
            self._free[courses.workers] = stopped
        stale = slice(0) if queue.fresh is None else np.setdiff1d(np.arange(received, len(queue.workers)), queue.fresh)
        ready = np.concatenate([queue.ready[stale], courses.ended[crossing] + self.cluster.latency])
        workers = np.concatenate([queue.workers[stale], courses.workers[crossing]])
        order = np.lexsort((workers, ready))
        self._crossed = Crossed(ready[order], workers[order])
        compute_seconds = compute / NANOSECONDS
        self._sums["compute_seconds"] += compute_seconds
        self._sums["delay_seconds"] += float((stopped - courses.began).sum()) / NANOSECONDS - compute_seconds
        self._sums["recalled"] += float(courses.sizes[late].sum())


def in_order(times: Times) -> tuple[Whole, Times]:
    """`np.argsort(times, kind="stable")` and the times in that order, several times as fast: time and place are sorted
    as one number, where they fit."""
    low, high = int(times.min(initial=NEVER)), int(times.max(initial=0))
    bits = len(times).bit_length()
    if high - low >= 1 << (62 - bits):
        order = np.argsort(times, kind="stable")
        return order, times[order]
    keys = ((times - low) << bits) | np.arange(len(times))
    keys.sort()
    return keys & ((1 << bits) - 1), (keys >> bits) + low


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
