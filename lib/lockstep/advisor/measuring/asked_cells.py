"""A cell to measure, the job that it stands for, and what its visits found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.advisor.calibration import NOTHING, CalibrationCell, CalibrationError
from lockstep.advisor.measuring.worker_calls import PEAK
from lockstep.advisor.spreads import spread_of
from lockstep.engine import registry
from lockstep.engine.job import Job
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.engine.training.loop import Trace

_OF_LAUNCHERS = ("launcher", "sync")


@dataclass(frozen=True)
class CellAsked:
    """Workers to measure. `sync`: one of `lockstep strategies` or a row of its table, or NOTHING; one worker is always
    `local`. `link_bits_per_second`: of emulated links between hosts. `launcher`: empty: processes, or mpiexec for
    several hosts. `steps`: of a visit; 0: as many as take enough for a measurement."""

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
        fields: dict[str, Any] = {"launcher": self.launcher or ("mpiexec" if self.hosts > 1 else "processes")}
        return Job(
            **fields, **_agreement(self.sync, self.workers), experiment="advise", use_case="own", strategy="own",
            data_source="own", workers=self.workers, hosts=self.hosts, threads_per_worker=self.threads_per_worker,
            cores_per_worker=self.threads_per_worker, link_bits_per_second=self.link_bits_per_second,
            per_worker_batch_size=self.per_worker_batch_size,
            global_batch_size=self.per_worker_batch_size * self.workers, **others,
        )  # fmt: skip

    @property
    def exchange_every(self) -> int:
        """Steps from one exchange to the next; 0: one exchange per visit."""
        return int(_agreement(self.sync, self.workers).get("exchange_every", 1))

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
    """What one cell's visits found; of each visit a typical step of its slowest worker, and how much steps
    differ."""

    asked: CellAsked
    step_seconds: list[float] = field(default_factory=list)
    compute_seconds: list[float] = field(default_factory=list)
    exchange_seconds: list[float] = field(default_factory=list)
    update_seconds: list[float] = field(default_factory=list)
    step_spread: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)  # of the first worker's process
    visit_seconds: float = 0.0  # that the last visit took, with building the model
    typical_seconds: float = math.nan  # of a step, as far as it is known
    failure: str = ""

    def note(self, traces: Sequence[Trace], discarded: bool) -> None:
        """Add a visit, or only keep how long a step takes."""
        workers = [trace.steps for trace in traces[: self.asked.workers] if trace.steps]
        slowest = max(workers, key=lambda steps: self._middle(steps, "compute_seconds"))
        count = min(len(steps) for steps in workers)
        whole = [{"step_seconds": max(steps[place]["step_seconds"] for steps in workers)} for place in range(count)]
        step = self.typical_seconds = self._middle(whole, "step_seconds")
        if discarded:
            return
        self.step_seconds.append(step)
        self.step_spread.append(spread_of([each["step_seconds"] for each in whole]))
        self.compute_seconds.append(self._middle(slowest, "compute_seconds"))
        self.exchange_seconds.append(self._middle(slowest, "exchange_seconds", "wait_seconds"))
        self.update_seconds.append(self._middle(slowest, "update_seconds"))
        self.peak_bytes.append(int(traces[0].scores.get(PEAK, 0)))

    def _middle(self, steps: Sequence[dict[str, float]], *columns: str) -> float:
        """The median over the steps; where not every step exchanges, the mean: the others' median would hide it."""
        values = [sum(step[column] for column in columns) for step in steps]
        return statistics.median(values) if self.asked.exchange_every == 1 else statistics.fmean(values)

    @property
    def cell(self) -> CalibrationCell:
        asked = self.asked
        return CalibrationCell(
            "local" if asked.workers == 1 else asked.sync, asked.workers, asked.per_worker_batch_size,
            asked.threads_per_worker, tuple(self.step_seconds), tuple(self.compute_seconds),
            tuple(self.exchange_seconds), tuple(self.update_seconds), tuple(self.step_spread),
        )  # fmt: skip
