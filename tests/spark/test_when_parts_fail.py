"""What becomes of a team on Spark whose parts go: it ends clearly and in time, and nothing stays.

Most of these failures end the team, and some twenty seconds go by until another one is warm. So they take the session's
warm teams where they can, and are the last of this folder: nobody has use for a warm team afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.data.sources import Arrays, Ids, Images
from lockstep.engine.groups import Group
from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.engine.launch import Team, WorkerFailed, stopped_programs
from lockstep.engine.launch.spark import Spark, SparkDriver
from lockstep.engine.launch.spark.barrier_team import ExecutorLost, SparkTeam
from lockstep.engine.launch.spark.cluster import StandaloneCluster
from lockstep.engine.launch.spark.java import SparkError
from lockstep.engine.launch.spark.settings import MEMORY_VARIABLE
from lockstep.engine.launch.spark.team import SparkDriverTeam
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site
from lockstep.measure.cell import measure_job
from lockstep.measure.teams import Teams
from processes import command, jvms, program
from together import TOLERANCE, alone, small_job
from together import Teams as Warm

pytestmark = [pytest.mark.usefixtures("no_leftovers"), pytest.mark.timeout(600)]  # each may start JVMs, some twice

END_SECONDS = 60.0  # of a failure, on a busy machine: a hang lasts for ever


@pytest.mark.parametrize(
    ("phase", "how", "told"),
    [
        ("update", "kill", "was killed by SIGKILL"),
        ("compute", "stop", "was stopped (SIGSTOP)"),
    ],
)
def test_a_rank_that_fails(teams: Warm, phase: str, how: str, told: str) -> None:
    team = teams.of("spark", 2)
    team.start()
    began = time.monotonic()
    this = small_job(launcher="spark", sync="allreduce", workers=2)
    with pytest.raises(WorkerFailed) as caught:
        team.run(this, Site(use_case=tiny.faulty_in(phase, how)))
    assert time.monotonic() - began < END_SECONDS
    assert caught.value.rank == 1 and told in str(caught.value) and f"phase {phase}" in caught.value.where
    assert team.pids == []


def kill_executor() -> None:
    """The JVM that this process works for."""
    for parent in psutil.Process().parents():
        if "CoarseGrainedExecutorBackend" in command(parent):
            parent.kill()
            time.sleep(60)
    raise AssertionError("no executor above this process")


def lose_executors(group: Group, folder: str, times: int) -> int:
    """Rank 1's executor dies in the first `times` calls."""
    lost = len(os.listdir(folder))
    if group.rank == 1 and lost < times:
        Path(folder, str(lost)).touch()
        kill_executor()
    group.barrier()
    return len(os.listdir(folder))


def test_an_executor_that_is_killed_is_tried_once_more(teams: Warm, tmp_path: Path) -> None:
    team = teams.of("spark", 2)
    with pytest.warns(UserWarning, match="rank . was lost with its executor: the barrier stage is"):
        assert team.call(lose_executors, str(tmp_path), 1) == [1, 1]
        assert "an executor was lost" in team.repeated
        assert team.call(lose_executors, str(tmp_path), 1) == [1, 1] and team.repeated == ""


def test_a_second_loss_is_a_failure_and_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above loses an executor; what follows from losing two is decided here, whoever lost them."""
    calls: list[object] = []

    def lose(team: Team, *call: object, **options: object) -> None:
        calls.append(call)
        raise ExecutorLost(1, "step 3, phase exchange", "was lost with its executor", "")

    monkeypatch.setattr(Team, "call", lose)
    monkeypatch.setattr(SparkTeam, "start", lambda team: None)
    this = Job(experiment="collective", use_case=NO_USE_CASE, launcher="spark", sync="allreduce", workers=2,
               input="none", message_bytes=4096)  # fmt: skip
    with pytest.warns(UserWarning, match="rank 1 was lost with its executor: the barrier stage is"), Teams() as teams:
        row, _, _ = measure_job(this, None, teams)
    assert row["status"] == "failed" and "was lost with its executor" in row["reason"]
    assert len(calls) == 2, "once more, and not again"


@pytest.mark.own_cluster
def test_a_master_that_is_killed_ends_the_team_and_its_own_cluster() -> None:
    before = jvms()
    with Spark(1) as team:
        assert [size for _, size, _ in team.call(tiny.say_rank)] == [1]
        assert len(jvms() - before) == 4, "master, worker, driver, executor"
        assert "the Spark master was killed by SIGKILL" in told_after(team, "deploy.master.Master")
        assert jvms() == before
        team.close()
    team.close()
    assert jvms() == before


def test_a_driver_that_is_killed_ends_the_team(teams: Warm) -> None:
    team = teams.of("spark", 2)
    team.start()
    assert re.search("rank|driver|executor", told_after(team, "SparkSubmit"))
    assert team.pids == [], "all of it ended"


@pytest.mark.parametrize(
    ("jvm", "name"),
    [
        ("CoarseGrainedExecutorBackend", "an executor of Spark"),
        ("SparkSubmit", "Spark's driver"),
        ("deploy.worker.Worker", "Spark's worker"),
        ("deploy.master.Master", "Spark's master"),
    ],
)
def test_a_jvm_that_is_stopped_ends_the_team(jvm: str, name: str, teams: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody noticed for ten minutes."""
    monkeypatch.setattr(stopped_programs, "LOOK_SECONDS", 1.0)
    team = teams.of("spark", 2)
    team.start()
    told = told_after(team, jvm, signal.SIGSTOP)
    assert f"{name} was stopped (SIGSTOP)" in told and team.pids == []


def test_a_jvm_that_is_stopped_while_its_cluster_starts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told after 90 s, as a cluster that had not started."""
    monkeypatch.setattr(stopped_programs, "LOOK_SECONDS", 0.5)
    stops = ["bash", "-c", "kill -STOP $$; sleep 100", "org.apache.spark.deploy.master.Master"]
    monkeypatch.setattr(StandaloneCluster, "_commands", lambda cluster, url, port: {"master": stops})
    began, cluster = time.monotonic(), StandaloneCluster(1)
    with pytest.raises(SparkError, match=r"the Spark cluster can't start: Spark's master was stopped \(SIGSTOP\)"):
        cluster.start()
    assert time.monotonic() - began < END_SECONDS and cluster.pids == []


def told_after(team: Team, name: str, how: int = signal.SIGKILL) -> str:
    """How a team that computes fails when a JVM of it is killed or stopped, which it does soon and as a whole."""
    parts = [part for pid in team.pids for part in psutil.Process(pid).children(recursive=True)]
    victim = next(part for part in parts if program(part) == "java" and name in command(part))
    began = time.monotonic()
    victim.send_signal(how)
    try:
        with pytest.raises(WorkerFailed) as failure:
            team.call(time_out)
        assert time.monotonic() - began < END_SECONDS and team.pids == []
        return str(failure.value)
    finally:
        with contextlib.suppress(psutil.Error):
            # One that is stopped stays in the session's cluster, where a team's own would end with it.
            victim.resume() if how == signal.SIGSTOP and "deploy" in name else victim.kill()


def time_out(group: Group) -> None:
    group.enter("compute")
    time.sleep(120)


# --- SparkNet ---


class Fatal(Arrays):
    """Loading sample 5 raises, or kills the executor: once, if `once` names a file."""

    def __init__(self, how: str, once: str = "") -> None:
        whole = tiny.arrays()
        super().__init__(whole.images, whole.labels)
        self.how, self.once = how, once

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        if 5 in np.asarray(ids) and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            if self.how == "raise":
                raise RuntimeError("a tyre burst")
            kill_executor()
        return super().load(ids, epoch, seed, out)


def sparknet(**options: Any) -> Job:
    return small_job(launcher="spark_driver", sync="sparknet", workers=2, executor_data="files", **options)


def wide(parameters: int) -> nn.Module:
    model = tiny.net()
    model.register_parameter("spare", nn.Parameter(torch.zeros(parameters)))
    return model


@pytest.mark.timeout(400)
def test_a_driver_whose_heap_is_full_fails_instead_of_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that fetched VGG16's gradients died of it, and the job they belonged to never ended."""
    monkeypatch.delenv(MEMORY_VARIABLE, raising=False)
    monkeypatch.setattr(SparkDriverTeam, "executor_memory", "2g")
    monkeypatch.setattr(SparkDriverTeam, "driver_memory", "450m")
    case = tiny.case(model=functools.partial(wide, 30_000_000))  # 120 MB come twice, and are unpacked there
    with SparkDriver(2) as team, pytest.raises(WorkerFailed, match="give LOCKSTEP_SPARK_MEMORY a larger value"):
        team.run(sparknet(), Site(use_case=case), stall_seconds=200)


def test_an_executor_that_is_killed_changes_nothing(teams: Warm, tmp_path: Path) -> None:
    """Spark starts another one and runs the lost task there: the parameters are those of one worker."""
    case = tiny.case(train=Fatal("kill", str(tmp_path / "killed")))
    teams.of("spark_driver", 2).run(sparknet(), Site(use_case=case, checkpoint=str(tmp_path / "c")))
    assert (tmp_path / "killed").exists()
    expected = alone(tiny.case(), tmp_path / "alone")
    assert (checkpoint.read(str(tmp_path / "c"))["parameters"] - expected).abs().max() < TOLERANCE


def test_a_python_worker_that_raises_is_quoted(teams: Warm) -> None:
    with pytest.raises(WorkerFailed) as caught:
        teams.of("spark_driver", 2).run(sparknet(), Site(use_case=tiny.case(train=Fatal("raise"))))
    assert "ExecutorFailed: RuntimeError: a tyre burst" in caught.value.reason
    assert "test_when_parts_fail.py" in caught.value.traceback, "the executor's own traceback"
