"""A supervisor that has nothing to do uses no CPU, whatever has ended below it."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

from lockstep.engine.launch.failures import output_tail
from lockstep.engine.launch.supervisor import Supervisor

WAIT_SECONDS = 30.0
ORPHANS = """
import subprocess, sys, time
for _ in range(3):
    # A child that leaves a child of its own behind, as a Spark executor leaves its Python workers.
    subprocess.run([sys.executable, "-S", "-c", "import subprocess, sys;"
                    "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(0.2)'])"], check=True)
print("left behind", flush=True)
time.sleep(600)
"""


@pytest.mark.linux
def test_a_supervisor_reaps_orphans_and_sleeps_on() -> None:
    """The pipe that tells it of signals was never emptied: from its first orphan on it kept a core busy, the one that
    a rank was being measured on; and orphans of a long Spark session stayed zombies until its end."""
    job = Supervisor({"leaver": [sys.executable, "-S", "-c", ORPHANS]}, os.environ, [])
    try:
        program = psutil.Process(job.process.pid)
        end = time.monotonic() + WAIT_SECONDS
        while "left behind" not in output_tail(job.output) and time.monotonic() < end:
            time.sleep(0.05)
        assert "left behind" in output_tail(job.output)
        while len(program.children()) > 1 and time.monotonic() < end:
            time.sleep(0.05)
        assert [child.status() for child in program.children()] == [psutil.STATUS_SLEEPING], "the command alone is left"
        before = program.cpu_times()
        time.sleep(1.0)
        after = program.cpu_times()
        assert after.user + after.system - before.user - before.system < 0.1
        assert not job.ended()
    finally:
        job.stop()


@pytest.mark.linux
def test_the_exit_code_of_a_command_is_found_though_orphans_are_reaped() -> None:
    leaver = ORPHANS.replace("time.sleep(600)", "time.sleep(0.5); sys.exit(7)")
    job = Supervisor({"leaver": [sys.executable, "-S", "-c", leaver]}, os.environ, [])
    try:
        assert job.ended(WAIT_SECONDS)
        assert job.cause_of_end() == "leaver left with 7"
    finally:
        job.stop()
