"""kill -9 of whoever launched a team leaves none of its workers, not even a stopped one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

PROGRAM = """
import time
from lockstep.launch import LAUNCHERS
with LAUNCHERS[{launcher!r}](2) as team:
    team.start()
    print(*team.pids, flush=True)
    time.sleep(600)
"""
END_SECONDS = 10.0


@pytest.mark.linux
@pytest.mark.parametrize(("launcher", "stopped"), [("processes", False), ("processes", True), ("threads", False)])
def test_workers_die_with_a_killed_launcher(launcher: str, stopped: bool) -> None:
    """The workers are no longer children of this test by then, so they are looked for by id."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(launcher=launcher)], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    workers = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
    try:
        assert len(workers) == (2 if launcher == "processes" else 1)
        assert all(worker.is_running() for worker in workers)
        if stopped:
            os.kill(workers[1].pid, signal.SIGSTOP)
        program.kill()
        program.wait()
        end = time.monotonic() + END_SECONDS
        while any(_alive(worker) for worker in workers) and time.monotonic() < end:
            time.sleep(0.1)
        assert [worker.pid for worker in workers if _alive(worker)] == []
    finally:
        program.kill()
        program.stdout.close()
        for worker in workers:
            if _alive(worker):
                worker.kill()


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
