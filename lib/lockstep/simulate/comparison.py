"""Policies side by side under the same delays: what each gains, and how much of what could be gained at all.

    seconds        of the policy, for the same number of samples as wait-for-all
    mitigation     (wait-for-all - policy) / (wait-for-all - no delays): 1 is as if nothing was ever delayed
    of the bound   (wait-for-all - policy) / (wait-for-all - bound): 1 is the best without calling anybody off
    bound          nobody ever waits, and messages and updates are free: each node computes at its own mean rate and
                   sits out its pauses. Whoever is called off leaves a pause behind, so more than 1 is possible

Every policy meets the same delays, worker by worker and task by task (common random numbers). A policy that leaves
workers out makes updates of fewer samples; so times are compared per sample, and beside them stands the time until a
problem with real gradients is solved (`problems.Logistic`), where the learning rate of an update is in proportion to
its samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import Delays, make_delays
from lockstep.engine.options import JobError
from lockstep.engine.policies import Policy, Setting, WaitForAll
from lockstep.simulate.cluster import Cluster
from lockstep.simulate.ending import Until
from lockstep.simulate.learner import SgdLearner
from lockstep.simulate.problems import Logistic
from lockstep.simulate.running import simulate
from lockstep.simulate.tasks import SimulatedRun

MakePolicy = Callable[[Setting], Policy]


@dataclass(frozen=True)
class Trial:
    """The world in which policies are compared: until they have used the samples of `updates` full updates, or, with a
    `loss`, until they have come to it; then in at most ten times as many samples."""

    setting: Setting
    cluster: Cluster
    delays: str
    updates: int
    loss: float | None = None

    @property
    def share(self) -> int:
        """Images that a worker gets of an update, if all get as many."""
        return math.ceil(self.setting.global_batch / self.setting.training)

    @property
    def until(self) -> Until:
        samples = self.updates * self.setting.global_batch
        return Until(samples=samples) if self.loss is None else Until(samples=10 * samples, loss=self.loss)

    @functools.cached_property
    def made_delays(self) -> Delays:
        """One object for all policies: what it says depends on nobody who has asked before, and it says it sooner."""
        return make_delays(self.delays, self.setting.workers, self.setting.seed)

    def run(self, make: MakePolicy, keep_tasks: bool = False) -> SimulatedRun:
        """One policy."""
        setting, learner = self.setting, None
        if self.loss is not None:
            learner = SgdLearner(
                problem_of(setting.samples, setting.seed), LEARNING_RATE, setting.workers, setting.seed,
                setting.global_batch, target=self.loss,
            )  # fmt: skip
        return simulate(
            make(setting), self.cluster, self.made_delays, self.until, learner=learner, keep_tasks=keep_tasks
        )


LEARNING_RATE = 0.5
DISTANCE, CONDITION, DECAY = 4.5, 10.0, 1e-4
"""Of the two classes: so far apart that a loss of 0.1 can be reached, so unlike in scale that it takes many updates."""


@functools.lru_cache(maxsize=2)
def problem_of(samples: int, seed: int) -> Logistic:
    """The problem that all policies solve."""
    return Logistic(samples, distance=DISTANCE, decay=DECAY, seed=seed, condition=CONDITION)


BASE = "wait_for_all"


def seconds_per_sample(run: SimulatedRun) -> float:
    """NaN if no update was made."""
    return run.total_seconds / run.samples if run.samples else math.nan


def ideal_seconds_per_sample(trial: Trial) -> float:
    """Of wait-for-all without delays, where every update of a whole batch takes as long."""
    delays = make_delays("none", trial.setting.workers, 0)
    return seconds_per_sample(simulate(WaitForAll(trial.setting), trial.cluster, delays, Until(updates=1)))


def bound_seconds_per_sample(trial: Trial) -> float:
    """Seconds per sample where all nodes, those that stand by included, add up their mean rates over as many tasks as
    waiting for all has updates, one after the other without a pause between them. A worker that never comes adds
    nothing."""
    nodes, tasks = trial.setting.workers, trial.updates
    workers, now, done = np.arange(nodes), np.zeros(nodes), np.zeros(nodes)
    work = np.full(nodes, trial.cluster.costs.compute_seconds(trial.share))
    for task in range(tasks):
        ended = trial.made_delays.ends(workers, np.full(nodes, task), now, work)
        comes = np.isfinite(ended)
        now, done = np.where(comes, ended, now), done + comes
    rates = np.divide(done * trial.share, now, out=np.zeros(nodes), where=(now > 0) & (done == tasks))
    return 1 / float(rates.sum()) if rates.sum() else math.inf


def compare_policies(policies: Mapping[str, MakePolicy], trials: Iterable[Trial]) -> pd.DataFrame:
    """A row per policy and kind of delays.

    Columns: delays, policy, updates, step_seconds, seconds_per_sample, mitigation, of_the_bound, seconds (until the end
    of the run), regret (of these, above the quickest policy's), wasted_share (of the computing time, in samples that no
    update used), facts (`Policy.facts` as text), reason (why there is no number).
    """
    rows = []
    for trial in trials:
        own = [_row(name, make, trial) for name, make in policies.items()]
        known = [row for row in own if row["policy"] == BASE]
        waiting = (known[0] if known else _row(BASE, WaitForAll, trial))["seconds_per_sample"]
        ideal = ideal_seconds_per_sample(trial)
        bound = bound_seconds_per_sample(trial)
        quickest = np.fmin.reduce([float(row["seconds"]) for row in own])
        for row in own:
            row["mitigation"] = share_of_way(waiting, row["seconds_per_sample"], ideal)
            row["of_the_bound"] = share_of_way(waiting, row["seconds_per_sample"], bound)
            row["regret"] = float(row["seconds"]) / quickest - 1
        rows += own
    return pd.DataFrame(rows, columns=list(COLUMNS))


COLUMNS = (
    "delays", "policy", "updates", "step_seconds", "seconds_per_sample", "mitigation", "of_the_bound", "seconds",
    "regret", "wasted_share", "facts", "reason",
)  # fmt: skip


def _row(name: str, make: MakePolicy, trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS, math.nan) | {"delays": trial.delays, "policy": name}
    row |= {"facts": "", "reason": ""}
    try:
        run = trial.run(make)
    except (JobError, AnalysisError) as error:
        return row | {"reason": str(error)}
    row |= {"updates": len(run.updates), "step_seconds": run.step_seconds, "wasted_share": wasted_share(run)}
    row["seconds_per_sample"] = seconds_per_sample(run)
    row["facts"] = ", ".join(f"{fact} {value:.4g}" for fact, value in run.facts.items())
    why = unfinished(run, trial)
    return row | ({"reason": why} if why else {"seconds": run.total_seconds})


def unfinished(run: SimulatedRun, trial: Trial) -> str:
    """Why a run did not end as it should; empty if it did."""
    if run.samples < trial.until.samples or not len(run.updates):  # type: ignore[operator]
        if trial.loss is not None and len(run.updates) and run.updates["loss"].iloc[-1] <= trial.loss:
            return ""
        whom = f" for worker {', '.join(map(str, run.lost))}" if run.lost else ""
        return f"waits{whom} for ever after {len(run.updates)} updates"
    return "" if trial.loss is None else f"did not come to a loss of {trial.loss:g}"


def wasted_share(run: SimulatedRun) -> float:
    """Samples that were computed or given out and that no update used, as a share of all."""
    used = run.sums["applied"] + run.sums.get("late", 0.0)
    lost = run.sums["recalled"] + run.sums.get("dropped", 0.0)
    return lost / (used + lost) if used + lost else math.nan


def share_of_way(waiting: float, own: float, best: float) -> float:
    """How much of the way from `waiting` to `best` was gone; NaN where there is none."""
    way = waiting - best
    return (waiting - own) / way if way > 1e-9 * waiting else math.nan

