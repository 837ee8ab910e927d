"""The supervisor of a job sleeps while nothing happens, also after processes that it has adopted have ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep.engine.launch.supervisor import Supervisor

# It starts a child that starts a grandchild and ends; the grandchild, an orphan by then, ends a little later.
ADOPTS = """\
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.3)
        os._exit(0)
    os.wait()
time.sleep(1.0)
open(sys.argv[1], "w").close()
time.sleep(100)
"""


@pytest.mark.linux
@pytest.mark.usefixtures("no_leftovers")
def test_it_sleeps_after_an_orphan_has_ended_and_leaves_no_zombie(tmp_path: Path) -> None:
    """Seen: once an executor of Spark was lost, the supervisor took all of a core for as long as the cluster ran."""
    done = tmp_path / "done"
    supervisor = Supervisor({"mpiexec": [sys.executable, "-c", ADOPTS, str(done)]}, dict(os.environ), [])
    process = psutil.Process(supervisor.process.pid)
    end = time.monotonic() + 60
    while not done.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert done.exists()
    before = sum(process.cpu_times()[:2])
    time.sleep(1.0)
    assert sum(process.cpu_times()[:2]) - before < 0.2
    assert [child.status() for child in process.children()] == [psutil.STATUS_SLEEPING]
    assert not supervisor.ended()
    supervisor.stop()
    supervisor.output.close()
