"""Stopped programs are named, once they have been stopped for a while."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from lockstep.engine.launch import stopped_programs
from lockstep.engine.launch.stopped_programs import StoppedPrograms, is_stopped

pytestmark = pytest.mark.linux


def test_a_stopped_program_is_named_within_15_seconds() -> None:
    """Two looks after it was stopped, at most, and a team asks twice a second. Tests of whole teams look more often."""
    assert 2 * stopped_programs.LOOK_SECONDS < 15


def test_a_stopped_program_is_named_at_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped_programs, "LOOK_SECONDS", 0.0)
    command = [sys.executable, "-c", "import time; time.sleep(60)", "ipyparallel.controller"]
    with subprocess.Popen(command) as program:
        try:
            seen, process = StoppedPrograms(), psutil.Process(program.pid)
            assert seen.look([os.getpid()]) == ""
            process.suspend()
            while not is_stopped(program.pid):
                pass
            assert seen.look([os.getpid()]) == "", "a debugger may stop it briefly"
            assert seen.look([os.getpid()]) == "ipcontroller"
            process.resume()
            assert seen.look([program.pid, 2**22 + 1]) == "", "and roots that have gone are none"
        finally:
            program.kill()


def test_looks_cost_nothing_between_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = StoppedPrograms()
    seen.look([os.getpid()])
    monkeypatch.setattr(psutil, "Process", None)  # whoever looks fails
    assert seen.look([os.getpid()]) == ""
