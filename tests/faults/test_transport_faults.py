"""A rank that fails while others sum over sockets or read its window: all end in time, and it is named."""

from __future__ import annotations

import time

import pytest
import torch

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Team, WorkerFailed
from lockstep.engine.sync.transports import transport_of
from lockstep.engine.training.loop import Site

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers")]
END_SECONDS = 10.0
REASONS = {
    "raise": "raised RuntimeError: a tyre burst",
    "kill": "was killed by SIGKILL",
    "stop": "was stopped (SIGSTOP)",
}
CASES = [("mpiexec", "rma"), ("mpiexec", "sockets"), ("processes", "sockets")]


def sum_for_ever(group: Group, name: str, how: str) -> None:
    """Rank 1 misbehaves in the middle of its third sum, when the others have begun theirs."""
    transport = transport_of(name, group)
    whole = transport.buffer(torch.empty(300_000))
    group.at_step(3)
    group.enter("exchange")
    try:
        for number in range(1_000_000):
            if group.rank == 1 and number == 2:
                time.sleep(0.3)
                tiny.misbehave(how)
            transport.allreduce(whole)
    finally:
        transport.close()


def fail(team: Team, *call: object) -> WorkerFailed:
    team.start()
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as caught:
        team.call(*call) if callable(call[0]) else team.run(*call)  # type: ignore[arg-type]
    assert time.monotonic() - began < END_SECONDS
    assert team.pids == []
    return caught.value


@pytest.mark.parametrize("how", list(REASONS))
@pytest.mark.parametrize(("launcher", "name"), CASES)
def test_while_the_others_exchange(launcher: str, name: str, how: str) -> None:
    with LAUNCHERS[launcher](2) as team:
        failure = fail(team, sum_for_ever, name, how)
        assert (failure.rank, failure.where) == (1, "step 3, phase exchange")
        assert REASONS[how] in str(failure)


@pytest.mark.parametrize(("phase", "how"), [("compute", "raise"), ("update", "raise"), ("update", "kill")])
@pytest.mark.parametrize(("launcher", "name"), CASES[:2])
def test_in_a_step(launcher: str, name: str, phase: str, how: str) -> None:
    """Overlapped: the others' pieces are under way while rank 1 computes."""
    job = Job(
        use_case="own", strategy="own", launcher=launcher, sync="allreduce", transport=name, bucket="layer",
        overlap=True, workers=2, global_batch_size=8, steps=6, warmup_steps=0,
    )  # fmt: skip
    with LAUNCHERS[launcher](2) as team:
        failure = fail(team, job, Site(use_case=tiny.faulty_in(phase, how)))
        assert failure.rank == 1
        assert REASONS[how] in str(failure) and f"phase {phase}" in failure.where
