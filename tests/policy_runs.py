"""Straggler policies in tests: driven by hand, and watched while a simulation runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.delays import Delays, make_delays
from lockstep.engine.policies import Arrived, Contribution, Decision, Event, Policy, Setting, Work, policy_of
from lockstep.engine.policies.places import cut_ranges, part_of_batch
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, SimulatedRun, Until, simulate
from lockstep.simulate.learner import Floats, SgdLearner
from lockstep.simulate.problems import Logistic

COSTS = Costs(fixed_seconds=0.0, image_seconds=0.003, crowding=0.0, gradient_bytes=4e5)
LINK = AlphaBeta(1e-4, 1e-9)
WORKERS, SAMPLES, BATCH, MICRO_BATCH = 8, 1000, 64, 2

OPTIONS = {
    "anytime": "seconds=0.02",
    "drop_compute": "warm_up=3",
    "wrangler": "forecast=smoothing",
    "standby": "forecast=smoothing",
    "dpro_sm": "forecast=smoothing,stand_in=average",
    "adaptive_k": "k=5,threshold=1,burn_in=2",
}
"""What tests give a policy in place of its defaults: forecasters that need no torch, and times that fit."""


def made(name: str, options: str = "", **setting: Any) -> Policy:
    """A policy for WORKERS workers, unless the setting says otherwise."""
    usual = {"workers": WORKERS, "samples": SAMPLES, "global_batch": BATCH, "micro_batch": MICRO_BATCH}
    if name == "standby":
        usual["standby"] = 1
    if name == "local_sgd":
        usual["micro_batch"] = 0
    return policy_of(name, options or OPTIONS.get(name, ""), Setting(**(usual | setting)))


def cluster_of(policy: Policy, **rest: Any) -> Cluster:
    """As many workers."""
    costs = {"costs": COSTS, "link": LINK, "update_seconds": 5e-4, "standby": policy.setting.standby} | rest
    return Cluster(policy.workers, **costs)


def ran(
    policy: Any, delays: str | Delays = "none", updates: int = 20, learner: Any = None, **rest: Any
) -> SimulatedRun:  # fmt: skip
    """Event by event, with the table of tasks."""
    if isinstance(delays, str):
        delays = make_delays(delays, policy.workers, seed=1)
    until = Until(updates=updates)
    return simulate(policy, cluster_of(policy, **rest), delays, until, learner=learner, keep_tasks=True, path="events")


def learner_of(policy: Policy, rate: float = 0.5, features: int = 8) -> SgdLearner:
    """On a small logistic regression."""
    setting = policy.setting
    problem = Logistic(samples=setting.samples, features=features)
    return SgdLearner(problem, rate, setting.workers, setting.seed)


class Totals:
    """In place of a learner's stand-ins: keeps the weighted sum of each update."""

    def __init__(self) -> None:
        self.sums: list[Floats] = []

    def seen(self, worker: int, gradient: Floats) -> None: ...

    def moved(self, update: Floats) -> None:
        self.sums.append(update)


def gradients_of(policy: Policy, delays: str, updates: int, seed: int, problem: Any) -> list[Floats]:
    """The weighted sums of the first updates, all of the start's parameters."""
    learner = SgdLearner(problem, 0.0, policy.workers, seed)
    totals = Totals()
    learner._stand_ins = totals  # type: ignore[assignment]
    made_delays = make_delays(delays, policy.workers, seed)
    simulate(policy, cluster_of(policy), made_delays, Until(updates=updates), learner=learner, path="events")
    return totals.sums


@dataclass
class Watched:
    """A policy, and which places of the sample sequence its updates have used."""

    policy: Policy
    used: list[int] = field(default_factory=list)
    works: dict[tuple[int, int], Work] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def begin(self, now: float) -> Decision:
        return self._noted(self.policy.begin(now))

    def on(self, event: Event, now: float) -> Decision:
        if isinstance(event, Arrived):
            one = event.contribution
            key = one.worker, one.task
            work = self.works[key]
            self.works[key] = work if work.parts else work._replace(ranges=cut_ranges(work.ranges, 0, one.samples))
        return self._noted(self.policy.on(event, now))

    def woke(self, now: float) -> Decision:
        return self._noted(self.policy.woke(now))

    def _noted(self, decision: Decision) -> Decision:
        self.decisions.append(decision)
        parts: set[tuple[int, int]] = set()
        for use in decision.apply:
            work = self.works.pop((use.worker, use.task))
            if work.parts:  # several workers may have computed the same part
                for part, _ in work.parts:
                    parts.update(part_of_batch(work.ranges, work.samples, part, self.workers))
            else:
                self._use(work.ranges)
        self._use(parts)
        for worker, work in decision.release:
            self.works[worker, self.policy.tasks.given[worker] - 1] = work  # type: ignore[attr-defined]
        return decision

    def _use(self, ranges: Iterable[tuple[int, int]]) -> None:
        for first, samples in ranges:
            self.used.extend(range(first, first + samples))

    def check_fates(self) -> None:
        """Every place that was ever given out was used once, or waits to be given out or used."""
        state = self.policy.state()["pool"]
        waiting = [place for first, samples in state["returned"] for place in range(first, first + samples)]
        assert sorted(self.used + waiting) == list(range(state["next"]))


class Hand:
    """A server without a queue or a link, for hand-made arrivals."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version, self.now = policy, 0, 0.0
        self.tasks: dict[int, int] = dict(enumerate(policy.tasks.given))  # type: ignore[attr-defined]
        self.work: dict[int, Work] = {}
        self.began: dict[int, float] = {}
        self.held: dict[int, int] = {}
        self.act(policy.begin(0.0))

    def act(self, decision: Decision) -> Decision:
        """Follow it."""
        self.version += bool(decision.apply or decision.stand_in)
        for worker in decision.recall:
            del self.work[worker]
        for worker, work in decision.release:
            assert worker not in self.work, f"worker {worker} has a task already"
            self.tasks[worker] += 1
            self.work[worker], self.began[worker], self.held[worker] = work, self.now, self.version
        return decision

    def arrive(self, worker: int, now: float, samples: int | None = None, **more: Any) -> Decision:
        """Of the worker's present task."""
        self.now = now
        work = self.work.pop(worker)
        one = Contribution(
            worker, self.tasks[worker] - 1, self.held[worker], work.samples if samples is None else samples,
            self.began[worker], now, **more,
        )  # fmt: skip
        return self.act(self.policy.on(Arrived(one), now))

    def round(self, seconds: Callable[[int, Work], float], **more: Any) -> Decision:
        """Until an update: whoever is given work arrives so many seconds later; timers come in between."""
        version, last = self.version, Decision()
        while self.version == version:
            times = [(self.began[worker] + seconds(worker, work), worker) for worker, work in self.work.items()]
            time, worker = min(times)
            due = self.policy.wake_at()
            if due is not None and due <= time:
                self.now = max(self.now, due)
                last = self.act(self.policy.woke(self.now))
            else:
                last = self.arrive(worker, time, **more)
        return last


def mean_and_error(draws: list[Floats]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean, and its standard error."""
    values = np.stack(draws)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
