"""A worker that raises, is stopped, killed, or leaves: all end in time, and the message says who, where and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

import tiny
from failing import fail
from lockstep.engine.groups import Group, GroupTimeout
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.measure.probes.exchange import run_exchange

pytestmark = pytest.mark.usefixtures("no_leftovers")


def job(launcher: str, sync: str, **changes: int) -> Job:
    values = {"global_batch_size": 8, "steps": 6, "warmup_steps": 0} | changes
    return Job(use_case="own", strategy="own", launcher=launcher, sync=sync, workers=2, **values)  # type: ignore[arg-type]


def test_where_images_are_read() -> None:
    """In the background: whichever rank loads sample 5 is named."""
    with LAUNCHERS["processes"](2) as team:
        failure = fail(team, job("processes", "shared_memory"), Site(use_case=tiny.faulty_in("input", "raise")))
    assert "a tyre burst" in str(failure) and "phase input" in failure.where and "misbehave" in failure.traceback


def test_a_rank_that_hangs_is_named_with_its_stack() -> None:
    """The others wait for it; the launcher sees that nobody moves."""
    with LAUNCHERS["processes"](2) as team:
        team.start()
        with pytest.raises(WorkerFailed, match="has not moved for 1 s") as caught:
            team.call(tiny.fault_in_phase, "compute", "hang", stall_seconds=1)
        assert caught.value.rank == 1
        assert "misbehave" in caught.value.traceback


def test_a_team_works_again_after_a_failure() -> None:
    with LAUNCHERS["processes"](2) as team:
        fail(team, tiny.fault_in_phase, "compute", "kill")
        assert [(r, n) for r, n, _ in team.call(tiny.say_rank)] == [(0, 2), (1, 2)]


def test_a_worker_that_was_killed_while_memory_was_full_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """VGG16 on Spark in 24 GiB: "was killed by SIGKILL" left the reader to find out by whom."""
    seen = iter([3, 4, 4, 4])  # processes that the kernel has ended: before and after each call
    monkeypatch.setattr("lockstep.engine.launch.team.out_of_memory_kills", lambda: next(seen))
    with LAUNCHERS["processes"](2) as team:
        assert "for the machine's memory was full" in fail(team, tiny.fault_in_phase, "compute", "kill").reason
        assert fail(team, tiny.fault_in_phase, "compute", "kill").reason == "was killed by SIGKILL"


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_worker_that_leaves_before_it_has_read_a_word(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: its socket was reset, and the launcher raised ConnectionResetError that said nothing."""
    program = f"import os, time\nos.write(2, b'no such library')\ntime.sleep({seconds})\nos._exit(7)"
    monkeypatch.setattr("lockstep.engine.launch.team._START", program)
    with LAUNCHERS["processes"](2) as team, pytest.raises(WorkerFailed, match="left with exit code 7") as caught:
        team.start()
    assert "no such library" in caught.value.traceback
    assert team.pids == []


def test_workers_stay_warm_between_calls() -> None:
    with LAUNCHERS["processes"](2) as team:
        first = team.call(tiny.say_rank)
        assert team.call(tiny.say_rank) == first
        assert len({pid for *_, pid in first}) == 2


def test_nothing_is_left_when_the_block_is_left_by_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), LAUNCHERS["processes"](2) as team:
        team.start()
        raise KeyboardInterrupt


def test_what_cannot_be_unpacked_is_an_error_of_the_worker() -> None:
    with LAUNCHERS["threads"](1) as team, pytest.raises(WorkerFailed, match="can't be unpacked here"):
        team.call(tiny.say_rank, Unpackable())


class Unpackable:
    def __reduce__(self) -> tuple[object, tuple[()]]:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("can't be unpacked here")


def test_threads_have_no_torch_group() -> None:
    with LAUNCHERS["threads"](2) as team, pytest.raises(WorkerFailed, match="launcher='processes'"):
        team.run(job("processes", "ddp"), Site(use_case=tiny.case()))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "c.pt")
    one = ThreadGroup.of(1)[0]
    alone = job("threads", "local").with_(workers=1)
    run_job(alone, one, Site(use_case=tiny.case(), checkpoint=path))
    with pytest.raises(checkpoint.CheckpointError, match="seed=0, this run has 1"):
        run_job(alone.with_(seed=1), one, Site(use_case=tiny.case(), checkpoint=path, resume=True))
    (tmp_path / "c.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(checkpoint.CheckpointError, match="can't be read"):
        checkpoint.read(path)
    with pytest.raises(checkpoint.CheckpointError, match="does not exist"):
        checkpoint.read(str(tmp_path / "none.pt"))


def test_a_checkpoint_never_runs_code(tmp_path: Path) -> None:
    torch.save({"job": Unpackable()}, tmp_path / "c.pt")
    with pytest.raises(checkpoint.CheckpointError, match="can't be read"):
        checkpoint.read(str(tmp_path / "c.pt"))


def test_a_message_that_does_not_come_before_its_deadline() -> None:
    first, _ = ThreadGroup.of(2)
    with pytest.raises(GroupTimeout, match=r"from rank 1 within 0\.05 s"):
        first.receive(1, "news", deadline_seconds=0.05)


NOWHERE = Job(use_case="nowhere", sync="shared_memory", workers=2)


def reach_step_nine(group: Group) -> None:
    group.at_step(9)
    group.enter("update")


@pytest.mark.parametrize(
    ("launcher", "job", "function", "message"),
    [
        ("threads", Job.of("processes", workers=3), None, "2 ranks can't run a job of 3 workers"),
        ("processes", Job.of("processes", workers=3), None, "2 ranks can't run a job of 3 workers"),
        ("threads", NOWHERE, run_exchange, "'nowhere'"),
        ("mpiexec", NOWHERE, run_exchange, "'nowhere'"),
    ],
)
def test_a_call_that_fails_at_its_start_is_not_told_with_the_last_calls_step(
    launcher: str, job: Job, function: Callable[..., Trace] | None, message: str
) -> None:
    """A warm team said "step 9, phase start"; a probe still told the last call's step when a run no longer did."""
    with LAUNCHERS[launcher](2) as team:
        team.call(reach_step_nine)
        with pytest.raises(WorkerFailed, match=message) as caught:
            team.run(job, function=function)
    assert caught.value.where == "step 0, phase start"


def test_a_rank_that_has_not_begun_its_call_is_at_no_step_of_the_last_one() -> None:
    with LAUNCHERS["processes"](1) as team:
        team.call(reach_step_nine)
        assert team.board is not None and team.board.where(0) == "step 9, phase update"
        psutil.Process(team.pids[0]).suspend()
        with pytest.raises(WorkerFailed, match="was stopped") as caught:
            team.call(reach_step_nine)
    assert caught.value.where == "step 0, phase update"
