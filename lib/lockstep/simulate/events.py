"""Event by event: any policy, in virtual time, with real gradients if a learner computes them.

    heap of messages on their way          server                               policy
    (ready, worker, course)  ------------> takes one after the other ---------> on(Arrived), woke
                                           update, recall, release <----------- Decision
            ^------------------------------ a course for every released worker (`worker.course_of`)

The server does one thing at a time: it receives a message, or makes an update, or sends parameters. A timer of the
policy that is due before the next message would begin to be received comes first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import pandas as pd

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import Delays
from lockstep.engine.policies.base import Arrived, Contribution, Decision, Policy, Progressed, Updated, Work
from lockstep.engine.policies.places import part_sizes
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds
from lockstep.simulate.cluster import Cluster
from lockstep.simulate.ending import Until
from lockstep.simulate.learner import Learner
from lockstep.simulate.tasks import SimulatedRun, TaskLog
from lockstep.simulate.worker import Course, Times, course_of

_MESSAGE, _PROGRESS = 0, 1


class Events:
    """One run of a policy. `keep_tasks`: make the table of tasks, a row each."""

    def __init__(
        self, policy: Policy, cluster: Cluster, delays: Delays, until: Until, learner: Learner | None = None,
        keep_tasks: bool = True,
    ) -> None:  # fmt: skip
        if policy.workers != cluster.workers:
            there = f"a cluster of {cluster.workers}"
            raise AnalysisError(f"a policy for {policy.workers} workers on {there}: give as many")
        if policy.needs.loss and learner is None:
            raise AnalysisError(f"{type(policy).__name__} decides by the loss, which nobody computes: give a learner")
        self.policy, self.cluster, self.delays = policy, cluster, delays
        self.until, self.learner = until, learner
        self.log = TaskLog() if keep_tasks else None
        self.now = 0  # the server is busy until then, in nanoseconds
        self.version = 0
        self._received = 0
        self._queue: list[tuple[int, int, int, int, Course]] = []  # ready, worker, task, kind, course
        self._under_way: dict[int, Course] = {}
        self._lost: set[tuple[int, int]] = set()  # (worker, task) whose message has not come through
        self._never_sent: set[tuple[int, int, int]] = set()  # (worker, task, kind) in the queue, recalled in time
        self._free = [0] * cluster.workers  # when a recalled worker can begin its next task
        self._given = [0] * cluster.workers
        self._waiting: dict[tuple[int, int], Course] = {}  # contributions that are here, by worker and task
        self._updates: list[tuple[float, int, int, float]] = []
        self._sums = dict.fromkeys(("compute_seconds", "delay_seconds", "applied", "late", "dropped", "recalled"), 0.0)
        self._samples = 0  # of all updates
        self._over = False
        self._updated = False  # since the server last waited
        self._latency, self._message = cluster.latency, cluster.message
        self._times = Times(cluster.costs, delays, cluster.workers)
        if learner is not None:
            learner.follow(policy)

    def run(self) -> SimulatedRun:
        """Until `until` is reached, the policy stops, or nothing can happen any more."""
        self._act(self.policy.begin(0.0))
        while not self._over and self._next():
            pass
        return self._result()

    def _next(self) -> bool:
        """The next thing that the server does; False when it would wait for ever."""
        while self._queue and self._queue[0][1:4] in self._never_sent:
            self._never_sent.discard(heapq.heappop(self._queue)[1:4])
        due = self.policy.wake_at()
        wake = NEVER if due is None else nanoseconds(due)
        starts = max(self.now, self._queue[0][0]) if self._queue else NEVER
        if min(wake, starts) >= NEVER:
            return False
        if self._updated:  # the first wait after an update, the longest one, is for forecasters that learn
            self._updated = False
            if min(wake, starts) > self.now:
                self.policy.idle((min(wake, starts) - self.now) / NANOSECONDS)
        if wake <= starts:
            self.now = max(self.now, wake)
            self._act(self.policy.woke(self.now / NANOSECONDS))
            return True
        ready, _, _, kind, course = heapq.heappop(self._queue)
        if kind == _PROGRESS:
            self._progress(course, ready - self._latency, starts)
        else:
            self._receive(course, starts)
        return True

    def _receive(self, course: Course, starts: int) -> None:
        seconds = self.cluster.message_seconds
        received = nanoseconds(self.delays.message_end(course.worker, course.task, starts / NANOSECONDS, seconds))
        expected = self._under_way.get(course.worker) is course
        if not expected:
            self._note(course, "recalled")  # it crossed the recall
        if received >= NEVER:  # its worker was lost while it sent
            self._lost.add((course.worker, course.task))
            return
        self.now = received
        self._received += 1
        if not expected:
            return
        del self._under_way[course.worker]
        self._waiting[course.worker, course.task] = course
        self._act(self.policy.on(Arrived(self._contribution(course)), self.now / NANOSECONDS))

    def _contribution(self, course: Course) -> Contribution:
        began, ended = course.began / NANOSECONDS, course.ended / NANOSECONDS
        system = self.delays.system(course.worker, ended) if self.delays.readings else None
        loss, norm = (math.nan, math.nan) if self.learner is None else self.learner.gradient(course)
        return Contribution(
            course.worker, course.task, course.version, course.samples, began, ended, loss, norm, system
        )

    def _progress(self, course: Course, at: int, starts: int) -> None:
        """A worker said `at` that time how far it is; the message is so short that it takes the server no time."""
        if self._under_way.get(course.worker) is not course:
            return
        self._received += 1
        done = 0
        for piece in course.pieces:
            if piece.ended > at:
                break
            done += piece.samples
        seen = Progressed(course.worker, course.task, done, (at - course.began) / NANOSECONDS)
        self.now = max(self.now, starts)
        self._act(self.policy.on(seen, self.now / NANOSECONDS))

    def _act(self, decision: Decision) -> None:
        for which in decision.drop:
            self._note(self._waiting.pop(which), "dropped")
            if self.learner is not None:
                self.learner.dropped(*which)
        for worker in decision.recall:
            self._recall(worker, self.now + self._latency)
        if decision.apply or decision.stand_in:
            self._apply(decision)
        self._over |= decision.stop
        if self._over:
            return
        self._updated |= bool(decision.apply)
        for worker, work in decision.release:
            self.now += self._message
            self._release(worker, work, max(self.now + self._latency, self._free[worker]))

    def _recall(self, worker: int, heard: int) -> None:
        course = self._under_way.pop(worker)
        if course.ended <= heard:
            self._free[worker] = course.ended  # its message is on its way, and will be discarded
            if (worker, course.task) in self._lost:
                self._note(course, "recalled")
            return
        self._free[worker] = course.listens(heard)
        if course.ended < NEVER:
            self._never_sent.add((worker, course.task, _MESSAGE))
        self._note(course, "recalled", ended=self._free[worker])

    def _apply(self, decision: Decision) -> None:
        used = []
        for worker, task, weight in decision.apply:
            course = self._waiting.pop((worker, task))
            used.append((course, weight))
        samples = _distinct(course for course, _ in used)
        self._samples += samples
        self.now += self.cluster.update
        loss = math.nan if self.learner is None else self.learner.update(used, decision.stand_in)
        for course, _ in used:
            self._note(course, "applied" if course.version == self.version else "late", update=self.version)
        self.version += 1
        self._updates.append((self.now / NANOSECONDS, samples, len(used), loss))
        self._over |= self.until.reached(self.version, self._samples, self._updates[-1][0], loss)
        if self.learner is not None and self.policy.needs.square_norm:
            self.policy.on(Updated(samples, self.learner.square_norm), self.now / NANOSECONDS)

    def _release(self, worker: int, work: Work, began: int) -> None:
        task = self._given[worker]
        self._given[worker] += 1
        course = course_of(worker, task, self.version, work, began, self._times)
        self._under_way[worker] = course
        if self.learner is not None:
            self.learner.released(worker, self.version)
        if self.policy.needs.progress:
            for piece in course.pieces[:-1]:
                if piece.ended < NEVER:
                    ready = piece.ended + self._latency
                    heapq.heappush(self._queue, (ready, worker, task, _PROGRESS, course))
        if course.ended < NEVER:
            heapq.heappush(self._queue, (course.ended + self._latency, worker, task, _MESSAGE, course))

    def _note(self, course: Course, fate: str, ended: int | None = None, update: int = -1) -> None:
        ended = course.ended if ended is None else ended
        compute = course.compute if ended == course.ended else course.computed(ended)
        sums = self._sums
        sums["compute_seconds"] += compute / NANOSECONDS
        sums["delay_seconds"] += (ended - course.began - compute) / NANOSECONDS
        sent = update >= 0 or fate == "dropped"
        samples = course.samples if sent else sum(part_sizes(course.work, self.cluster.workers))
        if fate != "unfinished":
            sums[fate] += samples
        if self.log is None:
            return
        staleness = update - course.version if update >= 0 else -1
        delay, forecast = ended - course.began - compute, course.work.micro_batch_seconds or math.nan
        row = (course.worker, course.task, course.version, samples, course.began, ended, compute, delay, forecast)
        self.log.rows.append((*row, fate, update, staleness))

    def _result(self) -> SimulatedRun:
        for _, worker, task, kind, course in sorted(self._queue, key=lambda entry: entry[:4]):
            crosses = kind == _MESSAGE and self._under_way.get(worker) is not course
            if crosses and (worker, task, kind) not in self._never_sent:
                self._note(course, "recalled")
        for course in (*self._under_way.values(), *self._waiting.values()):
            self._note(course, "unfinished", ended=max(min(course.ended, self.now), course.began))
        updates = pd.DataFrame(self._updates, columns=["ended_seconds", "samples", "contributions", "loss"])
        table = None if self.log is None else self.log.table()
        # An event: a task begins, or a message is received.
        events = sum(self._given) + self._received
        sums, name = self._sums | {"events": events}, type(self.policy).__name__
        under_way = self._under_way.values()
        lost = {one.worker for one in under_way if one.ended >= NEVER or (one.worker, one.task) in self._lost}
        facts = self.policy.facts()
        return SimulatedRun(name, self.cluster.workers, updates, table, sums, facts, tuple(sorted(lost)))


def _distinct(used: Iterable[Course]) -> int:
    """Samples of an update; a part of coded work that several workers have computed counts once."""
    samples = 0
    parts: dict[int, int] = {}
    for course in used:
        if course.work.parts:
            computed = zip(course.work.parts, course.pieces, strict=False)
            parts.update((part, piece.samples) for (part, _), piece in computed)
        else:
            samples += course.samples
    return samples + sum(parts.values())
