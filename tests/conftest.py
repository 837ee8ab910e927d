"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import cpu_table
from harness.groups import SPARK, add_groups, group_of
from processes import command

LEFTOVER_SECONDS = 60.0  # a stopped team or run has this long to end, on a busy machine


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of this repository."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    """Small tensors gain nothing from more, and the tests' workers share few cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The user's cache stays as it is; workers and kernels inherit this. Processes of one run share it, as two runs of
    a user do: what one of them has judged, pre-trained or decoded, the other need not."""
    own = tmp_path_factory.getbasetemp()
    cache = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cache"
    cache.mkdir(exist_ok=True)
    os.environ["LOCKSTEP_CACHE"] = str(cache)


@pytest.fixture(scope="session", autouse=True)
def _zygotes() -> Iterator[Any]:
    """Workers are forked from processes that have imported torch, each started when it is first needed."""
    from harness import zygote

    with pytest.MonkeyPatch.context() as patched:
        zygotes = zygote.install(patched)
        yield zygotes
        zygotes.stop()


@pytest.fixture(autouse=True)
def _true_start(request: pytest.FixtureRequest, _zygotes: Any) -> None:
    """Tests marked `true_start` have new Python processes as workers, as users have."""
    _zygotes.wanted = request.node.get_closest_marker("true_start") is None


@pytest.fixture(scope="session", autouse=True)
def _session_cluster() -> Iterator[Any]:
    """One Spark cluster and warm teams on it, started when a test first needs them."""
    from harness import spark_cluster

    with pytest.MonkeyPatch.context() as patched:
        cluster = spark_cluster.install(patched)
        yield cluster
        cluster.stop()


@pytest.fixture(autouse=True)
def _own_cluster(request: pytest.FixtureRequest, _session_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked `own_cluster` have teams with clusters of their own, as users have; most have no need of Spark."""
    from harness.spark_cluster import JVM_VARIABLE

    _session_cluster.own = request.node.get_closest_marker("own_cluster") is not None
    if _session_cluster.own:
        monkeypatch.delenv(JVM_VARIABLE)
    if group_of(request.node) != SPARK:
        _session_cluster.stop()


@pytest.fixture(scope="module")
def teams(_session_cluster: Any) -> Iterator[Any]:
    """A module's warm teams; those of Spark are the session's."""
    from together import Teams

    teams = Teams(_session_cluster.teams)
    yield teams
    teams.close()


@pytest.fixture(scope="session")
def real_images() -> Path:
    """The folder of real images. Only for tests marked `realdata`, which are skipped where there is none."""
    return Path(os.environ["LOCKSTEP_DATA"])


def pytest_addoption(parser: pytest.Parser) -> None:
    cpu_table.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    cpu_table.register(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in the background deaf to Ctrl-C, and so would be every program that a test stops.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks that were asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    add_groups(items)
    items.sort(key=lambda item: group_of(item) == SPARK)  # one after the other, for they share warm teams
    _skip_without_images(items)


def pytest_collection_finish() -> None:
    """The modules and the collected tests stay to the end: the garbage collector need not walk through them again."""
    gc.collect()
    gc.freeze()


def _skip_without_images(items: list[pytest.Item]) -> None:
    named = os.environ.get("LOCKSTEP_DATA")
    reason = "LOCKSTEP_DATA is not set: no real images" if not named else f"LOCKSTEP_DATA={named} is not a folder"
    if named and Path(named).is_dir():
        return
    for item in items:
        if item.get_closest_marker("realdata"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def no_leftovers(_session_cluster: Any, _zygotes: Any) -> Iterator[None]:
    """Fails the test if a process that it started, or a file in shared memory that it made, is still there after.

    A process of a team that is warm for many tests is left as well, once the team has ended.
    """
    before = _started_since(set(), _session_cluster.standing | _zygotes.pids)
    shared = _shared_memory()
    yield
    deadline = time.monotonic() + LEFTOVER_SECONDS
    while (left := _started_since(before, _session_cluster.standing | _zygotes.pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    named = [f"{process.pid}: {command(process)}" for process in left]
    for process in left:
        process.kill()
    assert not named, f"processes left behind: {named}"
    while (files := _unused_memory(shared)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not files, f"shared memory left behind: {files}"


def _started_since(before: set[psutil.Process], standing: set[int]) -> set[psutil.Process]:
    """Processes below this one that are neither of `before` nor the session's own."""
    return {process for process in set(_children()) - before if process.pid not in standing}


def _children() -> list[psutil.Process]:
    # multiprocessing's resource tracker is one per process and stays until that process ends.
    living = [child for child in psutil.Process().children(recursive=True) if child.is_running()]
    return [child for child in living if not _is_zombie(child) and "resource_tracker" not in command(child)]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def _unused_memory(before: set[str]) -> set[str]:
    """New names that no process uses any more: the other half of a parallel run has some of its own."""
    from lockstep.engine.launch.supervisor import _names_in_use

    new = _shared_memory() - before
    return new - _names_in_use() if new else new


def _shared_memory() -> set[str]:
    """Ours: Python's and torch's names; other programs of this machine use the folder too."""
    folder = Path("/dev/shm")
    names = os.listdir(folder) if folder.is_dir() else []
    return {name for name in names if name.startswith(("psm_", "torch_", "lockstep", "sem.mp-"))}
