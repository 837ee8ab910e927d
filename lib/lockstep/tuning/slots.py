"""A slot of a study: a thread that keeps one team warm, on cores of its own, and trains one trial after another."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from lockstep.engine.cores import pin
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.launch.failures import WorkerFailed
from lockstep.engine.training.loop import Site
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.worker import Outcome, TrialCall, run_trial

_STARTS = 3
"""How often a team is started that can't be, before the study stops."""


class Gives(Protocol):
    """What a slot needs of the study's controller."""

    plan: StudyPlan
    study: Any
    stopped: str

    def take(self, slot: int) -> TrialCall | None: ...
    def ended(self, call: TrialCall, outcome: Outcome) -> None: ...
    def engine_died(self, call: TrialCall, failure: WorkerFailed) -> None: ...
    def stop(self, why: BaseException | str) -> None: ...


class Slot(threading.Thread):
    """Trains the trials that `controller` gives it. A team that has died is started again for the next trial.

    The thread itself is pinned to `cores`: launchers divide the cores of the thread that calls them. It outlives its
    team, because the kernel ends workers together with the thread that has started them.
    """

    def __init__(self, number: int, controller: Gives, site: Site, cores: list[int]) -> None:
        super().__init__(name=f"lockstep-slot-{number}", daemon=True)
        self.number, self.controller, self.site, self.cores = number, controller, site, cores
        self._team: Any = None

    def run(self) -> None:
        try:
            pin(self.cores)
            plan = self.controller.plan
            with LAUNCHERS[plan.launcher].of(plan.placed) as self._team:
                self._serve()
        except BaseException as error:  # it must end the study, not this thread alone
            self.controller.stop(error)
        finally:
            self._team = None
            self.controller.study._storage.remove_session()

    def _serve(self) -> None:
        while not self.controller.stopped:
            self._start()
            call = self.controller.take(self.number)
            if call is None:
                return
            try:
                outcome = self._team.call(run_trial, call, self.site)[0]
            except WorkerFailed as failure:
                self.controller.engine_died(call, failure)
            else:
                self.controller.ended(call, outcome)

    def _start(self) -> None:
        """Start the team unless it is warm. Raises WorkerFailed."""
        for attempt in range(1, _STARTS + 1):
            try:
                self._team.start()
                return
            except WorkerFailed:
                if attempt == _STARTS or self.controller.stopped:
                    raise

    def interrupt(self) -> None:
        """End the trial that is under way, from another thread: its workers are killed."""
        team = self._team
        for worker in list(team.workers) if team is not None else ():
            worker.process.kill()
