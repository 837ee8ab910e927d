"""Workers as users have them: new Python processes, started the way that each launcher starts them.

Other tests fork theirs from a process that has loaded torch (tests/harness), which would hide an import that is missing
in a new process, or an environment that comes too late.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest
import torch

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.launch.environment import PROFILES
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site
from together import TOLERANCE, alone, small_job

OWN = tuple(name for name in LAUNCHERS if not LAUNCHERS[name].owns_loop and name != "spark")  # tests/spark has these


def place(group: Group) -> tuple[int, list[str], dict[str, str | None], int]:
    """Process, command line, the variables of the profile as C libraries see them, and torch's threads."""
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_char_p
    seen = {name: value.decode() if (value := library.getenv(name.encode())) else None for name in PROFILES["tuned"]}
    words = Path("/proc/self/cmdline").read_text().split("\0")
    del group
    return os.getpid(), words, seen, torch.get_num_threads()


@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.true_start
@pytest.mark.parametrize("launcher", OWN)
def test_new_processes_train_as_forked_ones_do(launcher: str, tmp_path: Path) -> None:
    case = tiny.case()
    with LAUNCHERS[launcher](2) as team:
        this = small_job(launcher=launcher, sync="shared_memory", workers=2)
        team.run(this, Site(use_case=case, checkpoint=str(tmp_path / "together")))
        places = team.call(place)
    got = checkpoint.read(str(tmp_path / "together"))["parameters"]
    assert (got - alone(case, tmp_path / "alone")).abs().max() < TOLERANCE
    for _, words, seen, threads in places:
        assert words[:2] == [sys.executable, "-c"] and "zygote" not in " ".join(words)
        assert (seen, threads) == (dict(PROFILES["tuned"]), 1)


@pytest.mark.linux
@pytest.mark.parametrize("launcher", OWN)
def test_forked_processes_are_where_new_ones_would_be(launcher: str) -> None:
    """Their environment, their threads, and a process for each worker: else the suite would test something else."""
    with LAUNCHERS[launcher](2) as team:
        places = team.call(place)
        pids = [pid for pid, *_ in places]
        assert sorted(set(pids)) == sorted(team.pids) and os.getpid() not in pids
    for _, words, seen, threads in places:
        assert "zygote_process" in words[1]
        assert (seen, threads) == (dict(PROFILES["tuned"]), 1)
