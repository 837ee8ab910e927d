"""Rounds in which a worker may compute several shares, and a share may be computed by several workers.

    batch     | share 0 | share 1 | share 2 | share 3 |        an update takes each share once
    worker 0  share 0 --> share 3 --> copy of share 1
    worker 1  share 1 ---------------------------------x       recalled: the copy came first
    worker 2  share 2 ---> (idle)

A contribution is a share; it waits at the server until the update is made. Whoever is free asks for another share, or
for a copy of one that somebody else computes. The first copy to come counts, the others are recalled.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lockstep.engine.policies.base import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    Left,
    Needs,
    Policy,
    Progressed,
    Ranges,
    Setting,
    Use,
    Work,
)
from lockstep.engine.policies.given import Tasks
from lockstep.engine.policies.pool import Pool


@dataclass
class HeldShare:
    """A piece of a batch, and who computes it."""

    ranges: Ranges
    samples: int
    holders: dict[int, float] = field(default_factory=dict)  # worker: when it was given out
    computed: dict[int, int] = field(default_factory=dict)  # worker: samples that it has computed so far
    done: Contribution | None = None
    seconds: float = float("nan")  # from being given out to its arrival
    judged: tuple[float, float] | None = None  # what a policy has made of the above, until something of it changes


class SharesPolicy(Policy):
    """Asks `cut` for the shares of a round, and `copy_for` what somebody does who is free when all are given out."""

    needs = Needs(recall=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.pool, self.tasks = Pool(setting), Tasks(setting.workers)
        self.round = -1
        self.shares: list[HeldShare] = []
        self.done = 0  # shares of this round that are here
        self._unheld: deque[HeldShare] = deque()
        self._held: dict[int, HeldShare] = {}  # by worker
        self._idle: set[int] = set()
        self._gone: set[int] = set()

    # --- the questions -------------------------------------------------------------------------------------------

    @abstractmethod
    def cut(self, samples: int) -> list[int]:
        """The sizes of the shares of a batch of so many samples."""

    @abstractmethod
    def copy_for(self, worker: int, now: float) -> HeldShare | None:
        """The share that `worker`, who is free, computes a copy of; None: it waits."""

    def needed(self) -> int:
        """Shares that make an update."""
        return len(self.shares)

    # --- the events ----------------------------------------------------------------------------------------------

    def begin(self, now: float) -> Decision:
        return Decision(release=self._open(now))

    def on(self, event: Event, now: float) -> Decision:
        if isinstance(event, Arrived):
            return self._arrived(event.contribution, now)
        if isinstance(event, Progressed):
            return self._measured(event, now)
        return self._left(event.worker, now) if isinstance(event, Left) else NOTHING

    def woke(self, now: float) -> Decision:
        return self._assigned(now)

    def _arrived(self, one: Contribution, now: float) -> Decision:
        self.tasks.finish(one)
        share = self._held.pop(one.worker)
        share.seconds = now - share.holders.pop(one.worker)
        share.done = one
        self.pool.give_back(share.ranges, one.samples)
        self.done += 1
        recalled = self._recall(share)
        self._idle.update(recalled, (one.worker,))
        if self.done < self.needed():
            return Decision(recall=recalled, release=self._assign(now))
        return self._close(recalled, now)

    def _recall(self, share: HeldShare) -> tuple[int, ...]:
        workers = tuple(sorted(share.holders))
        for worker in workers:
            self.tasks.recall(worker)
            del self._held[worker]
        share.holders.clear()
        return workers

    def _close(self, recalled: tuple[int, ...], now: float) -> Decision:
        here = [share.done for share in self.shares if share.done is not None]  # summed in the order of the batch
        total = sum(one.samples for one in here)
        uses = tuple(Use(one.worker, one.task, one.samples / total if total else 0.0) for one in here)
        for share in self.shares:
            if share.done is None:
                workers = self._recall(share)
                self._idle.update(workers)
                recalled += workers
                self.pool.give_back(share.ranges)
        self.closed()
        return Decision(apply=uses, recall=recalled, release=self._open(now))

    def closed(self) -> None:
        """An update has been decided on; the next round has not begun."""

    def _measured(self, event: Progressed, now: float) -> Decision:
        share = self._held.get(event.worker)
        if share is None or event.task != self.tasks.given[event.worker] - 1:
            return NOTHING
        share.computed[event.worker], share.judged = event.samples, None
        return self._assigned(now)

    def _left(self, worker: int, now: float) -> Decision:
        self._gone.add(worker)
        self._idle.discard(worker)
        share = self._held.pop(worker, None)
        if share is not None:
            self.tasks.recall(worker)
            del share.holders[worker], share.computed[worker]
            share.judged = None
            if not share.holders:
                self._unheld.append(share)
        return self._assigned(now)

    def _open(self, now: float) -> tuple[tuple[int, Work], ...]:
        self.round += 1
        self.done = 0
        self.shares = [HeldShare(self.pool.take(size), size) for size in self.cut(self.pool.batch_size()) if size]
        self._unheld = deque(self.shares)
        self._idle = {worker for worker in range(self.workers) if worker not in self._gone}
        return self._assign(now)

    def _assigned(self, now: float) -> Decision:
        released = self._assign(now) if self._idle else ()
        return Decision(release=released) if released else NOTHING

    def _assign(self, now: float) -> tuple[tuple[int, Work], ...]:
        released = []
        for worker in self.free_workers():
            share = self._unheld.popleft() if self._unheld else self.copy_for(worker, now)
            if share is not None:
                share.holders[worker] = now
                share.computed[worker], share.judged = 0, None
                self._held[worker] = share
                self._idle.discard(worker)
                released.append(self.tasks.give(worker, Work(share.ranges, share.samples, self.micro_batch(share))))
        return tuple(released)

    def free_workers(self) -> list[int]:
        """Who waits for a share, in the order in which they get one."""
        return sorted(self._idle)

    def micro_batch(self, share: HeldShare) -> int:
        """Samples that a worker computes at once."""
        return min(self.setting.micro_batch or share.samples, share.samples)

    def state(self) -> dict[str, Any]:
        """The round under way is given out anew."""
        places = [share.ranges for share in self.shares]
        waiting = [share.done.worker for share in self.shares if share.done is not None]
        started = 1 if self.shares else 0
        return {"round": self.round - started, "pool": self.pool.state(places), "tasks": self.tasks.state(waiting)}

    def load(self, state: dict[str, Any]) -> None:
        self.round = int(state["round"])
        self.pool.load(state["pool"])
        self.tasks.load(state["tasks"])
