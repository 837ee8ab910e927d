"""Our own policy, whose deadline is chosen by a replay of the last rounds.

    rounds     0 ............ 24 | 25 ........... 49 | 50 ...
    deadline   auto              | none              | 0.03 s
    at its end  ten settings are asked what progress each would have made in the last rounds: the best goes on

Between two known ends, which are settings like the others: waiting for all, and never waiting. `deadline_replay` holds
the arithmetic. A round is so many samples as a global batch has, whatever updates they are of. A replay knows of a task
only when it began and ended: of a delay within it that it was somewhere. While nobody waits no noise scale can be
measured: it stays as it was.

Where it has come to wait for all, nobody is waited for longer than ten times what half of the workers need: one that
never comes must not stop all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Setting
from lockstep.engine.policies.choosing import PATIENCE
from lockstep.engine.policies.deadline import Deadline
from lockstep.engine.policies.deadline_replay import LastRounds, World, best_setting
from lockstep.engine.policies.deadlines import DeadlineOptions, parse_deadline

AUTO, NONE, INFINITE = "auto", "none", "infinite"


@dataclass(frozen=True)
class ReplayedDeadlineOptions(DeadlineOptions):
    deadline: str = option("auto", "auto alone: the replay chooses it", parse=parse_deadline)
    every: int = option(25, "global batches between two choices", least=1)
    window: int = option(50, "rounds that are replayed", least=1)

    def __post_init__(self) -> None:
        if self.deadline != AUTO:
            raise JobError(
                f"deadline={self.deadline} is not possible where a replay chooses the deadline; leave it out, or take "
                "policy='deadline'"
            )


class ReplayedDeadline(Deadline):
    """See the module. Until the first choice it is `deadline` with a deadline of its own choice in every update."""

    does = "as deadline; a replay of the last rounds chooses between waiting for all, deadlines, and never waiting"
    label = "deadline, by replay"
    Options = ReplayedDeadlineOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.choices: dict[str, int] = {}  # how often each setting has been chosen
        self._rounds = LastRounds(setting.training, self.options.window)
        self._samples = 0  # of the updates since the last choice

    @property
    def survives_loss(self) -> int:
        """Whatever it has chosen by then."""
        return (self.setting.training - 1) // 2

    @property
    def patience(self) -> float | None:
        return PATIENCE if self.deadline == math.inf else super().patience

    def heard(self, worker: int, task: int, seconds: float, system: Any = None) -> None:
        super().heard(worker, task, seconds, system)
        self._rounds.heard(worker, seconds)

    def choose(self, now: float, samples: int) -> None:
        """After each update, of so many samples."""
        self._samples += samples
        if self._samples < self.options.every * self.setting.global_batch:
            return
        rows = self._rounds.table(self._least(now))
        if np.isnan(rows).any():
            return
        self._samples = 0
        chosen = best_setting(rows, self._world())
        self._chosen = chosen is None
        if chosen is not None:
            self.deadline = chosen
        elif self.deadline in (0, math.inf):
            self.deadline = None  # until one is chosen, as the next update begins
        kind = {None: AUTO, 0.0: NONE, math.inf: INFINITE}.get(chosen, "fixed")
        self.choices[kind] = self.choices.get(kind, 0) + 1

    def _least(self, now: float) -> Any:
        """Seconds per sample, [training workers], that the tasks under way have taken already; NaN for who has none."""
        found = np.full(self.setting.training, np.nan)
        for worker, (_, released) in self._since.items():
            work = self.tasks.under_way[worker]
            assert work is not None, "it is under way"
            found[worker] = (now - released) / self.planned(worker, work.deadline_seconds, work.samples)
        return found

    def _world(self) -> World:
        setting, options = self.setting, self.options
        return World(
            setting.global_batch, setting.global_batch / setting.training, self.micro_batch, self.noise.assumed,
            self.clock.transit_seconds, self.clock.overhead_seconds, options.bound, options.most * setting.global_batch,
        )  # fmt: skip

    def facts(self) -> dict[str, float]:
        """Beside those of `deadline`, how often each setting was chosen."""
        return super().facts() | {f"chose_{kind}": float(count) for kind, count in sorted(self.choices.items())}

    def state(self) -> dict[str, Any]:
        own = {"rounds": self._rounds.state(), "samples": self._samples, "by_forecast": self._chosen}
        return super().state() | {"replay": own | {"choices": dict(self.choices)}}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        own = state["replay"]
        self._rounds.load(own["rounds"])
        self._samples, self._chosen, self.choices = int(own["samples"]), bool(own["by_forecast"]), dict(own["choices"])
