"""Ctrl-C in the first moments of the command, while it is still being imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import os, signal, sys


class Interrupted:
    def find_spec(self, name, *_):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupted())
before = set(sys.modules)
from lockstep.commands.cli import main  # as the script that pip writes
assert set(sys.modules) - before <= {{"lockstep", "lockstep.commands", "lockstep.commands.cli", "__future__"}}
sys.argv[:] = ["lockstep", "--version"]
main()
"""


@pytest.mark.parametrize("module", ["lockstep.commands.application", "typer", "lockstep.records.places"])
def test_ctrl_c_while_the_command_is_imported_shows_no_traceback(module: str) -> None:
    """Seen: within 0.1 s of its start, a traceback through whatever was being imported."""
    done = subprocess.run([sys.executable, "-c", START.format(module=module)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by SIGINT\n")
