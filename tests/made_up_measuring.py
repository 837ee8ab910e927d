"""Grids that are measured without workers: a clock that only visits advance, and made-up speeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.job import Job
from lockstep.engine.usecases import Source
from lockstep.measure import grid
from lockstep.measure.teams import Teams
from lockstep.records import CONTENDED, make_row

NOISE = (0.01, -0.01, 0.02, -0.02, 0.0, 0.015, -0.005)
SPEED = {"sequential": 10.0, "threads": 15.0, "processes": 19.0}


class Clock:
    """A machine whose visits take `visit_seconds` each, with no time passing outside of them."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Recorder:
    """Stands in for measure_job: notes what was measured, takes its time, and stops at `stop_at` calls."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.measured: list[tuple[int, str, str]] = []
        self.disturbed: set[str] = set()
        self.failing: set[str] = set()
        self.stop_at = 10**9
        self.visit_seconds = 2.0
        self.seconds: dict[str, float] = {}  # of a strategy's visits, where they take another time
        self.trace_slowdown = 1.0
        self.sampled = True

    def __call__(
        self, job: Job, source: Source, teams: Teams, traced: bool = False, probes: object = None
    ) -> tuple[dict[str, Any], dict[str, pd.DataFrame], bool]:
        if len(self.measured) == self.stop_at:
            raise KeyboardInterrupt
        self.measured.append((job.round, job.strategy, job.variant))
        self.clock.now += 0.1 * job.steps if traced and job.steps > 10 else self._seconds(job)
        if job.strategy in self.failing:
            return make_row(job, {}, status="failed", reason="bad"), {}, False
        noise = 1 + NOISE[len(self.measured) % len(NOISE)]
        speed = SPEED.get(job.strategy, 12.0) * noise / (self.trace_slowdown if traced else 1.0)
        note = CONTENDED if job.strategy in self.disturbed else ""
        row = make_row(job, {"images_per_second": speed, "step_seconds": 0.1}, reason=note)
        tables = {"steps": pd.DataFrame({"step": [0, 1], "seconds": [0.09, 0.11]})}
        if traced and self.sampled:
            tables["resources"] = pd.DataFrame({"round": job.round, "strategy": job.strategy, "seconds": [0.0, 0.2]})
        return row, tables, job.strategy in self.disturbed

    def _seconds(self, job: Job) -> float:
        return self.seconds.get(job.strategy, self.visit_seconds)


class WarmTeams(Teams):
    """Teams of which none is started or ended."""

    def team(self, job: Job) -> Any:
        super().team(job)
        return type("Team", (), {"close": lambda self: None})()


JOBS = [Job.of("sequential"), Job.of("threads", workers=1), Job.of("sequential", variant="b")]


def run(
    photos: Path,
    jobs: list[Job] = JOBS,
    traced: Callable[[Job], bool] = lambda job: False,
    rounds: int = 0,
    minutes: float = 0.0,
    comparisons: Any = None,
    **parameters: object,
) -> Path:
    where: dict[str, Any] = {"notebook": "02", "results": photos.parent / "out", "data_dir": str(photos)}
    given: dict[str, Any] = {"rounds": rounds, "minutes": minutes, "comparisons": comparisons}
    return grid.run_grid(jobs, parameters=parameters, traced=traced, **given, **where)
