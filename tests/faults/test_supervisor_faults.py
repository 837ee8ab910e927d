"""What a supervisor leaves that is stopped or killed itself: nothing, and nothing of others is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from failing import END_SECONDS
from lockstep.commands.runner.kernel import ProcessMark
from lockstep.engine.launch import supervisor
from lockstep.engine.launch.supervisor import Supervisor

pytestmark = pytest.mark.linux
SLEEP = {"sleep": ["sleep", "600"]}
SHARED = Path("/dev/shm")
LAUNCHER = """
import time
from lockstep.engine.launch.supervisor import Supervisor
print(Supervisor({"sleep": ["sleep", "600"]}, {}, []).process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def of_mpi() -> Iterator[Path]:
    """A name for a file such as a rank makes that is killed in MPI_Init."""
    path = SHARED / f"mpich_shm_{uuid.uuid4().hex}_0"
    yield path
    path.unlink(missing_ok=True)


def stopped(pid: int) -> psutil.Process:
    """The process, stopped by SIGSTOP, once it has a child, so that it has begun its work."""
    process, end = psutil.Process(pid), time.monotonic() + END_SECONDS
    while not process.children() and time.monotonic() < end:
        time.sleep(0.01)
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED and time.monotonic() < end:
        time.sleep(0.01)
    return process


def test_a_stopped_supervisor_goes_on_when_its_launcher_is_killed() -> None:
    """Seen: it stayed for ever, and all it had started with it."""
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    keeper = stopped(int(launcher.stdout.readline()))
    below = [keeper, *keeper.children()]
    assert len(below) == 2
    launcher.kill()
    launcher.communicate()
    _, alive = psutil.wait_procs(below, END_SECONDS)
    for process in alive:
        process.kill()
    assert alive == []


def test_a_stopped_supervisor_still_cleans_up(monkeypatch: pytest.MonkeyPatch, of_mpi: Path) -> None:
    """Seen: it was killed after ten seconds, and nobody removed what MPI had left."""
    monkeypatch.setattr(supervisor, "_STOP_SECONDS", END_SECONDS)
    team = Supervisor(SLEEP, os.environ, [])
    stopped(team.process.pid)
    of_mpi.touch()
    team.stop()
    team.output.close()
    assert team.process.returncode == 143
    assert not of_mpi.exists()


def test_the_launcher_cleans_up_after_a_supervisor_that_was_killed(of_mpi: Path) -> None:
    team = Supervisor(SLEEP, os.environ, [])
    of_mpi.touch()
    team.process.kill()
    team.process.wait()
    team.stop()
    team.output.close()
    assert not of_mpi.exists()


def test_a_run_cleans_up_after_supervisors_that_it_had_to_kill(of_mpi: Path) -> None:
    """Seen: a kernel that was stopped was killed with all below it, and the shared memory of MPI stayed.

    Seen too: psutil collected the exit status of a killed child, and its Popen said that it had ended with 0.
    """
    mark = ProcessMark()
    keepers = [subprocess.Popen(["sleep", "600"], env=mark.environment()) for _ in range(8)]
    of_mpi.touch()
    mark.kill()
    assert [keeper.wait(END_SECONDS) for keeper in keepers] == [-signal.SIGKILL] * 8
    assert not of_mpi.exists()


def test_what_is_in_use_or_older_or_not_of_mpi_stays(of_mpi: Path) -> None:
    other = SHARED / f"of_another_{uuid.uuid4().hex}"
    try:
        other.touch()
        with of_mpi.open("w"):
            supervisor.remove_library_files(time.time())
            assert of_mpi.exists()
        supervisor.remove_library_files(time.time() + 60)
        assert of_mpi.exists() and other.exists()
        supervisor.remove_library_files(time.time())
        assert not of_mpi.exists() and other.exists()
    finally:
        other.unlink()


def test_hydra_is_told_of_a_topology_so_that_it_writes_none() -> None:
    """Seen: hydra_hwloc_xmlfile_* stayed in /tmp, where its proxy had been killed beside another job."""
    look = "import os, sys; sys.exit(os.environ.get('HWLOC_XMLFILE') != sys.argv[1])"
    for environment, wanted in (({}, ""), ({"HWLOC_XMLFILE": "/of/the/user"}, "/of/the/user")):
        team = Supervisor({"mpiexec": [sys.executable, "-c", look, wanted]}, environment, [])
        assert team.process.wait() == 0
        team.output.close()
