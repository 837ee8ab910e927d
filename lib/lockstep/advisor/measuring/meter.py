"""Warm teams that train cells for so many seconds, watched: who else uses the machine, and is the time over?"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.asked_cells import CellAsked, Visits
from lockstep.advisor.measuring.worker_calls import train_visit
from lockstep.engine.data.drawn import DrawnSamples
from lockstep.engine.groups.memory import release_memory
from lockstep.engine.job import Job
from lockstep.engine.launch import Team, WorkerFailed
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import UseCase
from lockstep.measure.contention import Contention
from lockstep.measure.environment import missing
from lockstep.measure.teams import Teams

VISIT_SECONDS = 0.6
"""What a visit's measured steps should take together."""
MOST_STEPS = 200
_WARM_UP_SECONDS, _MOST_WARM_UPS = 0.1, 5
_GRACE_SECONDS = 5.0
"""After the end of the time, until workers that still compute are ended."""
_ON_NO_NETWORK = ("local", "shared_memory")


class CellMeter(AbstractContextManager["CellMeter"]):
    """Warm teams that visit cells until `seconds` have passed; all of them end with the block.

    `others_share`: of the cores' time that other processes took during all visits.
    """

    def __init__(
        self, case: UseCase, seconds: float, *, precision: str = "float32", device: str = "cpu", seed: int = 0
    ) -> None:
        if not seconds > 0:
            raise CalibrationError(f"{seconds:g} seconds hold nothing; give more than 0")
        release_memory()  # of a model that this process has tried
        self.case, self.ends = case, time.monotonic() + seconds
        self._common = {"precision": precision, "device": device, "seed": seed}
        self._teams = Teams()
        self._hosting: list[CellAsked] = []  # cells whose teams others may borrow
        self._warm: set[int] = set()
        self._sample_seconds = math.inf  # of a step, for each sample of a worker's batch; the least seen
        self._others = self._cpu = 0.0
        self.late = False  # workers had to be ended

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._teams.__exit__(kind, error, at)

    @property
    def left(self) -> float:
        """Seconds until the end; may be negative."""
        return self.ends - time.monotonic()

    @property
    def others_share(self) -> float:
        return self._others / self._cpu if self._cpu else 0.0

    def host(self, cells: Sequence[CellAsked]) -> None:
        """One worker may train on the first rank of these cells' teams: no process starts for it alone."""
        self._hosting += [cell for cell in cells if cell.hosts == 1 and cell.launcher in ("", "processes")]

    def team(self, asked: CellAsked) -> Team:
        """The warm team of a cell, or one of more workers if it is alone. Raises JobError."""
        chosen = asked
        if asked.workers == 1 and asked.hosts == 1 and asked.launcher in ("", "processes"):
            alike = [each for each in self._hosting if each.threads_per_worker == asked.threads_per_worker]
            chosen = min([each for each in alike if each.workers > 1] or [asked], key=lambda each: each.workers)
        with warnings.catch_warnings(action="ignore"):  # that workers share cores is meant
            return self._teams.team(chosen.job(**self._common))

    def visit(self, visits: Visits) -> bool:
        """Train so many steps of a cell, and note them; before, if its team is new, a few that are discarded. Returns
        whether it did: not if its workers failed, which `visits.failure` then says."""
        try:
            team = self.team(visits.asked)
            if id(team) not in self._warm and not self._train(visits, 1, discarded=True):
                return False
            self._warm.add(id(team))
            steps = steps_of(self.typical_seconds(visits), visits.asked.steps)
            every = max(1, visits.asked.exchange_every)  # as many exchanges as belong to so many steps
            return self._train(visits, -(-steps // every) * every)
        except WorkerFailed as failure:
            visits.failure = "the time was over" if self.late else str(failure)
            return False

    def _train(self, visits: Visits, steps: int, discarded: bool = False) -> bool:
        typical = self.typical_seconds(visits)
        warm_up = 1 if math.isnan(typical) else max(1, min(int(_WARM_UP_SECONDS / typical), _MOST_WARM_UPS))
        job = visits.asked.job(steps=steps, warmup_steps=warm_up, **self._common)
        if lacking := missing(job):
            visits.failure = lacking
            return False
        began = time.monotonic()
        visits.note(self.run(visits.asked, job, self._site(job), train_visit), discarded)
        visits.visit_seconds = time.monotonic() - began
        each = visits.typical_seconds / visits.asked.per_worker_batch_size
        self._sample_seconds = min(each, self._sample_seconds)
        return True

    def typical_seconds(self, visits: Visits) -> float:
        """Of a step of a cell: as measured, or as its samples took elsewhere; NaN before anything was measured."""
        if visits.typical_seconds > 0:
            return visits.typical_seconds
        seconds = visits.asked.per_worker_batch_size * self._sample_seconds
        return seconds if math.isfinite(seconds) else math.nan

    def expected_seconds(self, visits: Visits) -> float:
        """Of the next visit: as the last one, or what its steps should take and a second for building the model."""
        if visits.visit_seconds:
            return visits.visit_seconds
        typical = self.typical_seconds(visits)
        return 0.0 if math.isnan(typical) else 1.0 + typical * (1 + steps_of(typical, visits.asked.steps))

    def _site(self, job: Job) -> Site:
        """Random samples are as many as the steps need, so that every step has a whole batch."""
        case, data = self.case, self.case.train
        if isinstance(data, DrawnSamples):
            case = replace(case, train=data.lasting(job.global_batch_size * (job.steps + job.warmup_steps)))
        return Site(use_case=case)

    def run(self, asked: CellAsked, job: Job, site: Site, function: Callable[..., Trace]) -> list[Trace]:
        """`function` on the team of a cell, watched: by whom else the machine is used, and until the time is over.

        Raises WorkerFailed, also for workers that had to be ended some seconds after the end.
        """
        team = self.team(asked)
        with _Ending(team, max(self.left, 0.0) + _GRACE_SECONDS) as ending:
            try:
                team.start()
                with Contention(network=job.sync not in _ON_NO_NETWORK) as contention:
                    traces = team.run(job, site, function)
            except WorkerFailed:
                self.late = self.late or ending.over
                raise
        self._others += contention.other_cpu_seconds + contention.steal_seconds
        self._cpu += contention.cores_seconds
        return traces


class _Ending(AbstractContextManager["_Ending"]):
    """Kills a team's workers after so many seconds, unless the block has ended by then."""

    def __init__(self, team: Team, seconds: float) -> None:
        self.over = False
        self._team = team
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Ending:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.over = True
        for pid in self._team.pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def steps_of(typical_seconds: float, asked: int = 0) -> int:
    """How many steps of so many seconds a visit has: as many as were `asked` for, or some VISIT_SECONDS of them."""
    if asked:
        return asked
    if math.isnan(typical_seconds):
        return 2
    fewest = 3 if typical_seconds < 0.25 else 2 if typical_seconds < 1 else 1
    return int(min(max(math.ceil(VISIT_SECONDS / typical_seconds), fewest), MOST_STEPS))
