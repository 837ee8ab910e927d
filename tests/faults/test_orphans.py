"""kill -9 of whoever launched a team leaves none of its workers, not even a stopped one, and no emulated host."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from multiprocessing.connection import Connection

import psutil
import pytest

from harness.spark_cluster import JVM_VARIABLE, quick_java
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.launch.mpi.emulated import why_not
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from processes import command

END_SECONDS = 60.0  # on a busy machine: a hang lasts for ever


def launch(launcher: str, folder: str, told: Connection, java: str) -> None:
    """A program that has a team, and waits. `emulated`: two hosts with a link; `java`: options of all JVMs."""
    tempfile.tempdir = folder
    os.environ[JVM_VARIABLE] = java
    made = Mpiexec(2, hosts=2, link_bits_per_second=1e9) if launcher == "emulated" else LAUNCHERS[launcher](2)
    with made as team:
        team.start()
        told.send(team.pids)
        time.sleep(600)


@pytest.mark.linux
@pytest.mark.parametrize(
    ("launcher", "stopped"),
    [
        *[("processes", False), ("processes", True), ("threads", False)],
        *[("mpiexec", True), ("engines", True), ("emulated", False), ("emulated", True)],
        *[("spark", True), ("spark_driver", False)],
    ],
)
def test_workers_die_with_a_killed_launcher(launcher: str, stopped: bool) -> None:
    """The workers are no longer children of the program by then, so they are looked for by id."""
    if "spark" in launcher:
        quick_java()
    if launcher == "emulated" and why_not():
        pytest.skip(why_not())
    folder = tempfile.mkdtemp(prefix="orphans-")
    context = multiprocessing.get_context("forkserver")  # it has loaded torch already
    context.set_forkserver_preload(["torch", "lockstep.engine.launch.team"])
    here, there = context.Pipe()
    network = interfaces()
    program = context.Process(target=launch, args=(launcher, folder, there, os.environ[JVM_VARIABLE]))
    program.start()
    there.close()
    workers = [psutil.Process(pid) for pid in here.recv()]
    try:
        assert len(workers) == (1 if launcher == "threads" else 2)  # of Spark: the supervisors of driver and cluster
        assert all(worker.is_running() for worker in workers)
        workers += psutil.Process(program.pid).children(recursive=True)  # and mpiexec, ipcontroller, their supervisor
        if stopped:
            os.kill(_a_rank(launcher, workers), signal.SIGSTOP)
        program.kill()
        program.join()
        end = time.monotonic() + END_SECONDS
        while any(_alive(worker) for worker in workers) and time.monotonic() < end:
            time.sleep(0.1)
        assert [worker.pid for worker in workers if _alive(worker)] == []
        assert os.listdir(folder) == []
        assert interfaces() == network
        os.rmdir(folder)
    finally:
        program.kill()
        here.close()
        for worker in workers:
            if _alive(worker):
                worker.kill()


def interfaces() -> tuple[list[str], str]:
    """This machine's own network interfaces, and the names of network namespaces."""
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout if not why_not() else ""
    return sorted(psutil.net_if_addrs()), spaces


def _a_rank(launcher: str, workers: list[psutil.Process]) -> int:
    """Of Spark's team `workers` are supervisors, and ranks far below them."""
    if launcher != "spark":
        return workers[1].pid
    return next(each.pid for each in workers if "lockstep.engine.launch.spark.rank_process" in command(each))


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
