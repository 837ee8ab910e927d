"""Speculative execution: a worker that is free computes a copy of a share that looks like a straggler's.

                    finished shares                estimated end
    worker 0  |------------|                     free: computes a copy of worker 2's share
    worker 1  |--------------|
    worker 2  |-----mb-----|-----mb-----|........|........|   progress: 2 of 4 micro-batches
                            ^ slow: less progress per second than most have shown

A "task" of MapReduce is one worker's share of an update; its progress is the micro-batches that are finished. Of the
one that is under way nothing is known: it is taken to be nearly finished, so that a worker is judged slow when that is
sure. Standby nodes are free from the start, but nothing is judged before a first share has been finished.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Contribution, Decision, Needs, Setting, Work
from lockstep.engine.policies.rounds import even
from lockstep.engine.policies.shares import HeldShare, SharesPolicy

ROUNDING, EPSILON = 1e-9, 1e-15
"""Seconds by which a timer may come too early, and what the last bits of a late clock add: it would come for ever."""


class Speculating(SharesPolicy):
    """At most one copy of a share. Subclasses say from when on a share may have one."""

    needs = Needs(recall=True, progress=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._slow: list[HeldShare] | None = None  # shares that a copy is due for, as this event came
        self._usual: tuple[int, float] = (-1, math.nan)  # shares done, and `usual_seconds` then
        self._missed: set[int] = set()  # who was recalled from its last share

    def check_setting(self) -> None:
        share = int(even(self.setting.global_batch, self.setting.training)[0])
        if not 0 < self.setting.micro_batch < share:
            raise JobError(
                f"{self.label} sees a worker's progress after each micro-batch of a share of {share} images, and "
                f"micro_batch={self.setting.micro_batch} leaves one of them; give fewer images than a share"
            )

    def cut(self, samples: int) -> list[int]:
        return list(even(samples, self.setting.training).tolist())

    def free_workers(self) -> list[int]:
        """Where a short batch has fewer shares than workers, those who were recalled last time get none if it can be
        helped: they may never come, and nothing is judged slow before a share is done."""
        if self.done or len(self.shares) >= self.setting.training:
            return super().free_workers()
        return sorted(self._idle, key=lambda worker: (worker in self._missed, worker))

    def _arrived(self, one: Contribution, now: float) -> Decision:
        self._missed.discard(one.worker)
        return super()._arrived(one, now)

    def _recall(self, share: HeldShare) -> tuple[int, ...]:
        workers = super()._recall(share)
        self._missed.update(workers)
        return workers

    @abstractmethod
    def usual_seconds(self) -> float:
        """Of a share, judged by those that are done; infinite while too few are."""

    @abstractmethod
    def patience(self, share: HeldShare) -> float:
        """A share that has been under way for so many times the usual, without further progress, gets a copy."""

    def is_full(self) -> bool:
        """Are there as many copies as there may be?"""
        return False

    def is_fit(self, worker: int) -> bool:
        """Whether `worker` may compute copies."""
        del worker
        return True

    def copy_for(self, worker: int, now: float) -> HeldShare | None:
        """The slow share that would end last."""
        if not self.done or self.is_full() or not self.is_fit(worker):
            return None
        if self._slow is None:
            latest = now + ROUNDING + EPSILON * now
            slow = [share for share, since in self._slow_since() if since <= latest]
            self._slow = sorted(slow, key=lambda share: self.left_seconds(share, now))
        return self._slow.pop() if self._slow else None

    def wake_at(self) -> float | None:
        """When the next share becomes slow that somebody could copy."""
        if not self.done or not self._idle or self.is_full() or not any(map(self.is_fit, self._idle)):
            return None
        return min((since for _, since in self._slow_since()), default=None)

    def _assign(self, now: float) -> tuple[tuple[int, Work], ...]:
        self._slow = None
        if not self._unheld and (not self.done or self.is_full()):
            return ()  # there is nothing to give, and no copy to make
        return super()._assign(now)

    def _slow_since(self) -> list[tuple[HeldShare, float]]:
        """Of each share that one worker computes, from when on it is slow unless its worker reports progress."""
        if self._usual[0] != self.done:
            self._usual = self.done, self.usual_seconds()
        usual = self._usual[1]
        if usual == math.inf:
            return []
        found = []
        for share in self.shares:
            if share.done is None and len(share.holders) == 1:
                if share.judged is None:
                    share.judged = began_of(share), self.patience(share)
                began, patience = share.judged
                if (since := began + patience * usual) < math.inf:
                    found.append((share, since))
        return found

    def closed(self) -> None:
        self._usual = (-1, math.nan)

    def left_seconds(self, share: HeldShare, now: float) -> float:
        """Until the share is done, at the rate of its progress so far."""
        return (1 - self.finished(share)) * (now - began_of(share)) / self.fraction(share)

    def finished(self, share: HeldShare) -> float:
        """The part of the share that its worker has reported."""
        return max(share.computed.values()) / share.samples

    def fraction(self, share: HeldShare) -> float:
        """The same with the micro-batch that is under way."""
        return min((max(share.computed.values()) + self.setting.micro_batch) / share.samples, 1.0)

    def state(self) -> dict[str, Any]:
        return super().state() | {"missed": sorted(self._missed)}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._missed = {int(worker) for worker in state["missed"]}

    def seconds_of_done(self) -> list[float]:
        """How long the shares took that are here."""
        return [share.seconds for share in self.shares if share.done is not None]


def began_of(share: HeldShare) -> float:
    """When the share was first given out."""
    return min(share.holders.values())


@dataclass(frozen=True)
class LateOptions:
    cap: float = option(0.1, "copies at the same time, relative to all workers; one always may run", above=0, most=1)
    percentile: float = option(25.0, "of progress rates below which a share, or a worker, is slow", above=0, below=100)


class Late(Speculating):
    """LATE: Zaharia et al. 2008, "Improving MapReduce performance in heterogeneous environments" (reference 26 of
    DPro-SM): of the tasks whose progress rate is below the 25th percentile, the one with the longest approximate time
    to end gets a copy, on a node that is not slow itself, as long as few copies run. Shares that are under way when
    others have finished count as the slowest ones, so nothing is judged before less than a quarter of them is left."""

    does = "free workers compute copies of slow shares, the one with the longest approximate time to end first"
    label = "LATE"
    Options = LateOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._pace = np.full(setting.workers, np.nan)  # seconds per sample of each worker's last share
        self._unfit: set[int] = set()  # workers that are slow themselves

    @property
    def survives_loss(self) -> int:
        """One, whose share is copied by somebody who is not slow; two may hold the same share."""
        fit = 1 + int((1 - self.options.percentile / 100) * (self.setting.training - 1)) + self.setting.standby
        return int(self.setting.training > 1 and fit > 1)

    def usual_seconds(self) -> float:
        """Of the share at the percentile."""
        done = sorted(self.seconds_of_done(), reverse=True)  # the slowest first
        place = math.ceil(self.options.percentile / 100 * (len(self.shares) - 1)) - (len(self.shares) - len(done))
        return done[place] if place >= 0 else math.inf

    def patience(self, share: HeldShare) -> float:
        return self.fraction(share)

    def is_full(self) -> bool:
        copies = len(self._held) - (len(self.shares) - self.done)  # every share that is not done has a worker
        return copies >= max(1, int(self.options.cap * self.workers))

    def is_fit(self, worker: int) -> bool:
        return worker not in self._unfit

    def closed(self) -> None:
        super().closed()
        for share in self.shares:
            if share.done is not None:
                self._pace[share.done.worker] = share.seconds / share.samples
        self._judge_workers()

    def _judge_workers(self) -> None:
        known = self._pace[~np.isnan(self._pace)]
        if len(known):
            slowest = float(np.percentile(known, 100 - self.options.percentile))
            self._unfit = set(np.flatnonzero(self._pace > slowest).tolist())

    def state(self) -> dict[str, Any]:
        return super().state() | {"pace": self._pace.tolist()}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._pace = np.array(state["pace"], np.float64)
        self._judge_workers()


@dataclass(frozen=True)
class GrassOptions:
    epsilon: float = option(0.1, "of the shares that an update may do without", least=0, below=1)
    switch: float = option(0.5, "of the shares that are needed, from which on copies are greedy", least=0, most=1)


class Grass(Speculating):
    """GRASS: Ananthanarayanan et al. 2014, "GRASS: trimming stragglers in approximation analytics" (reference 44 of
    DPro-SM), for jobs with a bound on the error: an update needs 1 - epsilon of the shares, and the samples of the
    others go back to the pool. Early on copies are resource-aware (RAS): only where they save time and work, that is
    where t_rem > 2 t_new. Near the end they are greedy (GS): where t_rem > t_new. The share that would end last comes
    first. t_new is the median of the finished shares. The source learns when to switch; here that is an option."""

    does = "an update needs most of the shares; free workers compute copies that save work, then any that save time"
    label = "GRASS"
    Options = GrassOptions

    @property
    def survives_loss(self) -> int:
        """Those that an update does without, and one whose share is copied; two may hold the same share."""
        workers = self.setting.training
        return min(workers - self._needed_of(workers) + 1, workers - 1)

    def needed(self) -> int:
        return self._needed_of(len(self.shares))

    def _needed_of(self, shares: int) -> int:
        return max(1, math.ceil((1 - self.options.epsilon) * shares - 1e-9))

    def usual_seconds(self) -> float:
        """t_new, or twice as much."""
        factor = 1 if self.done >= self.options.switch * self.needed() else 2
        return factor * float(np.median(self.seconds_of_done()))

    def patience(self, share: HeldShare) -> float:
        """When t_rem, which grows while nothing is heard, has become as long."""
        left = 1 - self.finished(share)
        return self.fraction(share) / left if left else math.inf
