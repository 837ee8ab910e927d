"""Workers that train a model, measured in turns for so many seconds: real processes, warm, and none stays behind.

    warm-up   A B C        one short visit each, which is discarded; it tells how long a step takes
    round 1   A B C
    round 2   C B A        what drifts while it is measured hits all cells alike
    round 3   A B C
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from lockstep.advisor.calibration import NOTHING, CalibrationCell, CalibrationError
from lockstep.advisor.measuring.inputs import RandomSamples
from lockstep.advisor.measuring.worker_calls import PEAK, train_visit
from lockstep.engine import registry
from lockstep.engine.job import Job
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.engine.launch import Team, WorkerFailed
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import UseCase
from lockstep.measure.contention import Contention
from lockstep.measure.environment import missing
from lockstep.measure.teams import Teams

VISIT_SECONDS = 0.6
"""What a visit's measured steps should take together."""
FEWEST_STEPS, MOST_STEPS = 3, 50
_GRACE_SECONDS = 10.0
"""After the end of the time, until workers that still compute are ended."""
_ON_NO_NETWORK = ("local", "shared_memory")
_OF_LAUNCHERS = ("launcher", "sync")


@dataclass(frozen=True)
class CellAsked:
    """Workers to measure. `sync`: one of `lockstep strategies` or a row of its table, or NOTHING; one worker is always
    `local`. `link_bits_per_second`: of emulated links between hosts. `launcher`: empty: processes, or mpiexec for
    several hosts. `steps`: of a visit; 0: as many as take VISIT_SECONDS."""

    sync: str
    workers: int
    per_worker_batch_size: int
    threads_per_worker: int = 1
    hosts: int = 1
    link_bits_per_second: float = 0.0
    launcher: str = ""
    steps: int = 0

    def job(self, **others: Any) -> Job:
        """The job of this cell; `others` are more of its fields. Raises JobError for what can't be run."""
        fields = {"launcher": self.launcher or ("mpiexec" if self.hosts > 1 else "processes")}
        return Job(
            **fields, **_agreement(self.sync, self.workers), experiment="advise", use_case="own", strategy="own",
            data_source="own", workers=self.workers, hosts=self.hosts, threads_per_worker=self.threads_per_worker,
            cores_per_worker=self.threads_per_worker, link_bits_per_second=self.link_bits_per_second,
            per_worker_batch_size=self.per_worker_batch_size,
            global_batch_size=self.per_worker_batch_size * self.workers, **others,
        )  # fmt: skip

    @property
    def label(self) -> str:
        """For progress and messages."""
        how = "" if self.workers == 1 else f", {self.sync}" if self.sync != NOTHING else ", without an exchange"
        threads = f" x {self.threads_per_worker} threads" if self.threads_per_worker > 1 else ""
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        plural = "s" if self.workers > 1 else ""
        return f"{self.workers} worker{plural}{threads}{hosts}{how}, batch {self.per_worker_batch_size} each"


def _agreement(sync: str, workers: int) -> dict[str, Any]:
    """The fields of a job that say how workers agree: with the options of the sync's own row, where it has one."""
    if workers == 1 or sync == NOTHING:
        return {"sync": "local"}  # of several workers: each by itself, at the same time
    if sync in STRATEGIES:
        options = {name: value for name, value in STRATEGIES[sync].fields.items() if name not in _OF_LAUNCHERS}
        if options.get("shards") == 0:  # as many as there are workers
            options["shards"] = workers
        return {"sync": STRATEGIES[sync].fields["sync"], **options}
    known = registry.syncs_and_peers()
    if sync not in known:
        raise CalibrationError(f"sync {sync!r} does not exist; there are: {', '.join([*known, *STRATEGIES])}")
    return {"sync": sync, **known[sync].usual}


@dataclass
class Visits:
    """What one cell's visits found; of each visit the median step of its slowest worker."""

    asked: CellAsked
    step_seconds: list[float] = field(default_factory=list)
    compute_seconds: list[float] = field(default_factory=list)
    exchange_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)  # of the first worker's process
    visit_seconds: float = 0.0  # that the last visit took, with building the model
    typical_seconds: float = math.nan  # of a step, as far as it is known
    failure: str = ""

    def note(self, traces: Sequence[Trace], discarded: bool) -> None:
        """Add a visit, or only keep how long a step takes."""
        workers = [trace.steps for trace in traces[: self.asked.workers] if trace.steps]
        slowest = max(workers, key=lambda steps: _median(steps, "compute_seconds"))
        count = min(len(steps) for steps in workers)
        step = statistics.median(max(steps[i]["step_seconds"] for steps in workers) for i in range(count))
        self.typical_seconds = step
        if discarded:
            return
        self.step_seconds.append(step)
        self.compute_seconds.append(_median(slowest, "compute_seconds"))
        self.exchange_seconds.append(
            statistics.median(each["exchange_seconds"] + each["wait_seconds"] for each in slowest)
        )
        self.update_seconds.append(_median(slowest, "update_seconds"))
        self.peak_bytes.append(int(traces[0].scores.get(PEAK, 0)))

    @property
    def cell(self) -> CalibrationCell:
        asked = self.asked
        return CalibrationCell(
            "local" if asked.workers == 1 else asked.sync, asked.workers, asked.per_worker_batch_size,
            asked.threads_per_worker, tuple(self.step_seconds), tuple(self.compute_seconds),
            tuple(self.exchange_seconds), tuple(self.update_seconds),
        )  # fmt: skip


def _median(steps: Sequence[dict[str, float]], column: str) -> float:
    return statistics.median(step[column] for step in steps)


class CellMeter(AbstractContextManager["CellMeter"]):
    """Warm teams that visit cells until `seconds` have passed; all of them end with the block.

    `others_share`: of the cores' time that other processes took during all visits.
    """

    def __init__(
        self, case: UseCase, seconds: float, *, precision: str = "float32", device: str = "cpu", seed: int = 0
    ) -> None:
        if not seconds > 0:
            raise CalibrationError(f"{seconds:g} seconds hold nothing; give more than 0")
        self.case, self.ends = case, time.monotonic() + seconds
        self._common = {"precision": precision, "device": device, "seed": seed}
        self._teams = Teams()
        self._hosting: list[CellAsked] = []  # cells whose teams others may borrow
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

    def visit(self, visits: Visits, discarded: bool = False) -> bool:
        """Train so many steps of a cell, and note them. Returns whether it did: not if the time is over, or if the
        workers failed, which `visits.failure` then says."""
        asked = visits.asked
        steps = self._steps(visits, discarded)
        began = time.monotonic()
        try:
            job = asked.job(steps=steps, warmup_steps=1, **self._common)
            if lacking := missing(job):
                visits.failure = lacking
                return False
            traces = self.run(asked, job, self._site(job), train_visit)
        except WorkerFailed as failure:
            visits.failure = "the time was over" if self.late else str(failure)
            return False
        visits.visit_seconds = time.monotonic() - began
        visits.note(traces, discarded)
        return True

    def _steps(self, visits: Visits, discarded: bool) -> int:
        if discarded:
            return 1
        if visits.asked.steps:
            return visits.asked.steps
        wanted = VISIT_SECONDS / visits.typical_seconds if visits.typical_seconds > 0 else FEWEST_STEPS
        return int(min(max(math.ceil(wanted), FEWEST_STEPS), MOST_STEPS))

    def _site(self, job: Job) -> Site:
        """Random samples are as many as the steps need, so that every step has a whole batch."""
        case, data = self.case, self.case.train
        if isinstance(data, RandomSamples):
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
        self._cpu += contention.wall_seconds * contention.usable_cores
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


def measure_cells(
    case: UseCase,
    cells: Sequence[CellAsked],
    rounds: int,
    budget_seconds: float,
    on_round: Callable[[int, Sequence[CalibrationCell]], None] | None = None,
    *,
    precision: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    failures: dict[CellAsked, str] | None = None,
) -> list[CalibrationCell]:
    """Measure these cells in turns, `rounds` times or until `budget_seconds` have passed; a result for each, in order.

    A cell that was not reached, or whose workers failed, has no rounds (its tuples are empty); `failures` then gets the
    reason. `on_round(number, cells so far)` is called after each round. Raises CalibrationError or JobError, before
    anything starts, for a cell that can't be.
    """
    for each in cells:
        each.job()
    with CellMeter(case, budget_seconds, precision=precision, device=device, seed=seed) as meter:
        meter.host(cells)
        found = [Visits(each) for each in cells]
        measure_in_turns(meter, found, rounds, on_round)
    if failures is not None:
        failures.update({each.asked: each.failure for each in found if each.failure})
    return [each.cell for each in found]


def measure_in_turns(
    meter: CellMeter,
    found: Sequence[Visits],
    rounds: int,
    on_round: Callable[[int, Sequence[CalibrationCell]], None] | None = None,
) -> None:
    """Visit all cells, first for a warm-up that is discarded, then round after round in turned order."""
    for number in range(rounds + 1):
        for visits in reversed(found) if number and number % 2 == 0 else found:
            if visits.failure:
                continue
            if number and meter.left < visits.visit_seconds:
                return
            if not number and meter.left <= 0:
                visits.failure = "the time was over"
                continue
            meter.visit(visits, discarded=number == 0)
        if number and on_round is not None:
            on_round(number, [each.cell for each in found])
