"""The options of a deadline, the clock of a round that has one, and the deadline that is worth most."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.forecasting import forecast_option
from lockstep.engine.policies.rounds import Floats

FADING = 0.95
"""By which the longest transit, and the overhead, are forgotten from one to the next."""
SLACK = 0.05
"""Of the deadline: so much later than forecast a contribution may still come, and so much later it is waited for."""
CANDIDATES = 64
CHECKED = 10
"""Updates after which it is known how short a micro-batch can be."""


def parse_deadline(text: str) -> float | None:
    """Seconds; infinite for wait for all, 0 for asynchronous, None for a deadline that is chosen."""
    known: dict[str, float | None] = {"auto": None, "infinite": math.inf, "none": 0.0}
    if text in known:
        return known[text]
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        raise JobError(f"deadline={text!r} is not possible; give auto, infinite, none, or seconds above 0")
    return seconds


@dataclass(frozen=True)
class DeadlineOptions:
    deadline: str = option("auto", "auto | infinite | none | seconds for beginning micro-batches", parse=parse_deadline)
    forecast: str = forecast_option("best")
    quantile: float = option(0.5, "of the forecast by which another micro-batch must end in time", above=0, below=1)
    bound: int = option(2, "updates between a contribution's parameters and its own update, at most", least=0)
    noise: float = option(0.0, "noise scale in samples; 0: measured, the global batch until it is known", least=0)
    most: float = option(4.0, "global batches that an update is planned for at most", above=0)


class DeadlineClock:
    """When a round is over, on the server's clock: the deadline, the time that messages take, and some slack."""

    def __init__(self) -> None:
        self.began = self._ends = 0.0
        self.limit: float | None = None  # seconds on the clock
        self._transit: float | None = None  # the longest lately: of a task, what is not spent by the worker
        self._overhead: float | None = None  # of a round, what is not its deadline

    @property
    def transit_seconds(self) -> float:
        """Of a task what its worker does not spend: the longest lately, 0 before anything is known."""
        return self._transit or 0.0

    @property
    def overhead_seconds(self) -> float:
        """Of a round beyond its deadline."""
        return self.transit_seconds if self._overhead is None else self._overhead

    def opened(self, now: float, deadline: float | None) -> None:
        """A round begins, whose workers compute for `deadline` seconds, or without one."""
        self.began, self.limit, self._ends = now, None, now
        if deadline is not None:
            self._ends = now + deadline
            allowed = deadline if self._transit is None else self._transit * (1 + SLACK)
            self.limit = now + deadline * (1 + SLACK) + allowed

    def arrived(self, transit: float) -> None:
        """A contribution, which has spent so long as a message or in a queue."""
        self._transit = max(transit, FADING * (self._transit or 0.0), 0.0)

    def limit_by_median(self, now: float, here: int, workers: int, patience: float) -> None:
        """Without a deadline: so many times the time until more than half of the workers are there."""
        if here == workers // 2 + 1:
            self.limit = self.began + patience * (now - self.began)

    def is_over(self, now: float) -> bool:
        return self.limit is not None and now >= self.limit

    def left_seconds(self, now: float) -> float:
        """Until the deadline, for a worker that is released now; 0 or less after it, or without one."""
        return self._ends - now

    def closed(self, now: float, deadline: float | None) -> None:
        """The round is over."""
        if deadline is None or not 0 < deadline < math.inf:
            return
        over = max(now - self.began - deadline, 0.0)
        self._overhead = over if self._overhead is None else FADING * self._overhead + (1 - FADING) * over

    def state(self) -> dict[str, Any]:
        return {"transit": self._transit, "overhead": self._overhead}

    def load(self, state: dict[str, Any]) -> None:
        self._transit, self._overhead = state["transit"], state["overhead"]


class ShortestMicroBatch:
    """The shortest micro-batch of the first `CHECKED` updates: a deadline that is shorter still can't be meant."""

    def __init__(self) -> None:
        self._updates = 0
        self._found = (math.inf, 0, 0)  # seconds, images, worker

    def seen(self, contributions: Iterable[tuple[int, int, float]], micro_batch: int, deadline: float) -> None:
        """An update of (worker, samples, seconds) each. Raises JobError once that is sure."""
        if self._updates >= CHECKED:
            return
        self._updates += 1
        for worker, samples, seconds in contributions:
            if samples:
                count = -(-samples // micro_batch)
                self._found = min(self._found, (seconds / count, -(-samples // count), worker))
        seconds, images, worker = self._found
        if self._updates == CHECKED and deadline < seconds < math.inf:
            raise JobError(
                f"a deadline of {deadline:g} s is shorter than one micro-batch: in {CHECKED} updates {images} images "
                f"took {seconds:.3g} s at least, on worker {worker}; give a longer one, or smaller micro-batches"
            )


def best_deadline(
    micro_seconds: Floats, micro_batch: int, noise: float, overhead: float, bound: int, most: float
) -> float:
    """The deadline in seconds with the most progress per second, b / (b + noise) / (deadline + overhead).

    micro_seconds: [workers], a micro-batch's seconds. b counts the micro-batches that end by the deadline; a worker
    whose first one does not contributes it in every second, third ... update, as long as it is at most `bound` updates
    stale. Candidates are the ends of micro-batches, and b of at most `most` samples, or else the earliest one of all.
    """
    first, speed = float(micro_seconds.min()), float((micro_batch / micro_seconds).sum())
    longest = max(most / speed, first)
    grid = np.geomspace(first, longest, CANDIDATES)
    typical = float(np.median(micro_seconds))
    ends = typical * np.arange(1, CANDIDATES + 1)
    candidates = np.unique(np.concatenate([grid, ends[(ends >= first) & (ends <= longest)]])) * (1 + 1e-9)
    each = candidates[:, None] / micro_seconds
    rounds = np.ceil(micro_seconds / (candidates[:, None] + overhead))  # that the first micro-batch spans
    late = np.where(rounds <= bound + 1, 1 / rounds, 0.0)
    samples = micro_batch * np.where(each >= 1, np.floor(each), late).sum(axis=1)
    progress = samples / (1 + samples / noise) if noise else np.minimum(samples, 1.0)
    return float(candidates[int(np.argmax(progress / (candidates + overhead)))])
