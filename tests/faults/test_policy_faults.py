"""Delays that never end and workers that die under a server of policies: who can go on does, all others end in time."""

from __future__ import annotations

import pytest

import tiny
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed
from lockstep.engine.training.loop import Site
from together import small_job

pytestmark = [pytest.mark.usefixtures("no_leftovers"), pytest.mark.filterwarnings("ignore:.* workers x")]


def job(launcher: str, policy: str, **fields: object) -> Job:
    shared: dict[str, object] = {"sync": "parameter_server", "workers": 2, "servers": 1, "delays": "gone:worker=1"}
    return small_job(launcher=launcher, policy=policy, **(shared | fields))


@pytest.mark.parametrize("launcher", ["processes", "mpiexec"])
def test_a_worker_that_never_comes(launcher: str) -> None:
    """k-sync goes on without it, and calls it off at the end; waiting for all fails within its time, and names it."""
    with LAUNCHERS[launcher](3) as team:
        traces = team.run(job(launcher, "k_sync"), Site(use_case=tiny.case()))
        assert len(traces[-1].steps) == 12
        with pytest.raises(WorkerFailed, match="has not moved for 2 s") as caught:
            team.run(job(launcher, "wait_for_all"), Site(use_case=tiny.case()), stall_seconds=2)
        assert caught.value.rank == 1


def test_a_rank_that_is_killed_ends_the_team() -> None:
    with LAUNCHERS["processes"](3) as team, pytest.raises(WorkerFailed) as caught:
        team.run(job("processes", "asynchronous", delays="none"), Site(use_case=tiny.faulty_in("compute", "kill")))
    assert caught.value.rank == 1 and "was killed by SIGKILL" in str(caught.value)
