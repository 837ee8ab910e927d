"""The launcher `virtual`: no worker runs, for time itself is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.engine.launch.base import Launcher

if TYPE_CHECKING:
    from lockstep.engine.job import Job


class VirtualTime(Launcher):
    """One process computes what all workers of a job would do, however many there are, as the experiment's probe says.

    It stands apart from the other launchers (`lockstep.engine.registry.SIMULATORS`): nothing that trains runs on it.
    """

    does = "no worker runs: one process computes in virtual time what all of them would do"
    label = "virtual time"
    one_host = True
    simulated = True

    @classmethod
    def of(cls, job: Job) -> Launcher:
        """One rank with one core, whatever the number of simulated workers."""
        return cls(1, environment=job.environment)

    @staticmethod
    def ranks_by_process(workers: int) -> list[list[int]]:
        return [list(range(workers))]
