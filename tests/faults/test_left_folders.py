"""What libraries leave in the temporary folder goes with the team; the folders of killed teams go at the next start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.engine.groups import Group
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.launch.environment import worker_environment
from lockstep.engine.launch.spark.cluster import StandaloneCluster

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers")]

HELD = """
import sys
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.launch.spark.cluster import StandaloneCluster

started = StandaloneCluster(1) if sys.argv[1] == "cluster" else LAUNCHERS[sys.argv[1]](2).team
started.start()
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of this process and of those that it starts. Its path is short, for sockets."""
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def compile_something(group: Group) -> str:
    """Leaves what torch's compiler does."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    Path(cache_dir(), "kernel").touch()
    Path(tempfile.gettempdir(), f"of-rank-{group.rank}").touch()
    return cache_dir()


@pytest.mark.true_start
@pytest.mark.parametrize("launcher", ["mpiexec", "engines"])
def test_what_a_library_leaves_goes_with_the_team(
    temporary: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: torchinductor_* stood in the temporary folder after each `lockstep.train` with processes; torch names it to
    all processes that the one which first asks for it starts."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(temporary / "torchinductor_user"))
    with LAUNCHERS[launcher](2) as team:
        places = team.call(compile_something)
        (own,) = temporary.iterdir()
        assert own.name.startswith("lockstep-team-") and own.stat().st_mode & 0o077 == 0
        assert {Path(place).parent for place in places} == {own}
        assert {"of-rank-0", "of-rank-1"} <= {path.name for path in own.iterdir()}
    assert list(temporary.iterdir()) == []


def test_a_readers_own_cache_of_compiled_code_stays_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.path.join(tempfile.gettempdir(), "my-kernels")  # bug: all of the temporary folder was taken for torch's
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", own)
    assert worker_environment("tuned", 1)["TORCHINDUCTOR_CACHE_DIR"] == own


@pytest.mark.parametrize("what", ["mpiexec", pytest.param("cluster", marks=pytest.mark.slow)])
def test_folders_of_killed_teams_go_at_the_next_start(temporary: Path, what: str) -> None:
    """Seen: they stayed for ever where the launcher and its supervisor were killed together."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", HELD, what]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None and launcher.stdout.readline() == b"started\n"
        below = psutil.Process(launcher.pid).children(recursive=True)
        for process in (psutil.Process(launcher.pid), *below):
            process.suspend()  # none has the time to clean up
        launcher.kill()
        for process in below:
            process.kill()
    psutil.wait_procs(below, 10)
    (left,) = temporary.iterdir()
    assert left.name.startswith("lockstep-")
    other = temporary / "lockstep-team-other"
    other.mkdir()
    with StandaloneCluster(1) if what == "cluster" else LAUNCHERS[what](2) as team:
        if what != "cluster":
            team.start()
        assert not left.exists() and other.exists() == (what == "cluster")
    assert [path.name for path in temporary.iterdir()] == ([other.name] if what == "cluster" else [])
