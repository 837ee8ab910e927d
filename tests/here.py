"""A launcher for tests of what is trained and not of who trains it: the ranks are threads of this very process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import Threads
from lockstep.engine.training.loop import Site, Trace, run_job


class Started(Exception):
    """Nothing was wrong: workers would start now."""


def refuse_to_start(team: object) -> None:
    """In place of `Team.start`, where what is refused must be refused before anything starts."""
    raise Started


class Here(Threads):
    """There is no start to wait for, and nothing that a failure could leave behind."""

    def __enter__(self) -> Any:
        return self

    def run(self, job: Job, site: Site) -> list[Trace]:
        with ThreadPoolExecutor(job.ranks) as pool:
            calls = [pool.submit(run_job, job, group, site) for group in ThreadGroup.of(job.ranks)]
            return [call.result(60) for call in calls]
