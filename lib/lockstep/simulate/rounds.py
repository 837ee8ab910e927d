"""All workers of a round at once: for policies that decide round by round, as fast as sorting the arrivals.

The server's queue in closed form: messages are received in the order in which they are ready, and message i has been
received at

    received(i) = max over j <= i of (ready(j) - time of the messages before j) + time of the messages up to i

Times are whole nanoseconds, so that every step ends at the same nanosecond as event by event (`simulate.events`).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import Delays
from lockstep.engine.policies.rounds import RoundPolicy
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds, nanoseconds_of
from lockstep.simulate.cluster import Cluster
from lockstep.simulate.ending import Until
from lockstep.simulate.tasks import Run

Times = NDArray[np.int64]
Whole = NDArray[np.int64]


class Rounds:
    """One run of a policy that decides round by round, timing only. It keeps no table of tasks, which would be larger
    than the run."""

    def __init__(self, policy: RoundPolicy, cluster: Cluster, delays: Delays, until: Until) -> None:
        why = refusal(policy)
        if why:
            raise AnalysisError(f"{type(policy).__name__} can't be simulated all workers at once: {why}")
        self.policy, self.cluster, self.delays, self.until = policy, cluster, delays, until
        self.workers = np.arange(policy.setting.training)
        self.now = 0
        self._free: Times = np.zeros(len(self.workers), np.int64)
        self._tasks: Whole = np.zeros(len(self.workers), np.int64)
        self._crossed: Times = np.empty(0, np.int64)  # ready times of messages that nobody waits for
        self._crossed_by: Whole = np.empty(0, np.int64)
        self._crossed_task: Whole = np.empty(0, np.int64)
        self._sizes = _Sizes(policy, len(self.workers))
        self._updates: list[tuple[float, int, int]] = []
        self._sums = dict.fromkeys(("compute_seconds", "delay_seconds", "applied", "recalled", "events"), 0.0)

    def run(self) -> Run:
        """Until `until` is reached, or nobody comes any more."""
        applied = 0.0
        while self._round():
            ended, samples, _ = self._updates[-1]
            applied += samples
            if self.until.reached(len(self._updates), applied, ended, math.nan):
                break
        updates = pd.DataFrame(self._updates, columns=["ended_seconds", "samples", "contributions"])
        updates["loss"] = np.nan
        self._sums["applied"] = applied
        return Run(type(self.policy).__name__, self.cluster.workers, updates, None, self._sums)

    def _round(self) -> bool:
        policy, cluster = self.policy, self.cluster
        policy.round += 1
        sizes = self._sizes.next()
        working = self.workers[sizes > 0]
        policy._working = set() if len(working) == policy.workers else set(working.tolist())  # noqa: SLF001
        opened = self.now
        began = np.maximum(opened + cluster.message * np.arange(1, len(working) + 1) + cluster.latency, self._free[working])
        self.now += cluster.message * len(working)
        tasks = self._tasks[working]
        self._tasks[working] += 1
        return self._closes(opened, working, tasks, sizes, began)

    def _closes(self, opened: int, working: Whole, tasks: Whole, sizes: Whole, began: Times) -> bool:
        raise NotImplementedError


def refusal(policy: object) -> str:
    """Why this path can't run the policy; empty if it can."""
    if not isinstance(policy, RoundPolicy):
        return "it does not decide round by round"
    needs = policy.needs
    for name in ("progress", "single_gradients", "square_norm", "local_steps"):
        if getattr(needs, name):
            return f"it needs {name.replace('_', ' ')}, which only the event-driven path has"
    return ""
