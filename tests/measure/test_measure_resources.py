import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from lockstep.engine.data.loader import Loader
from lockstep.engine.launch.threads import Threads
from lockstep.engine.sync.background import Background
from lockstep.engine.thread_names import name_training_thread
from lockstep.measure import resources
from lockstep.measure.resources import ProcessTree, ResourceSampler, Sample

MIB = 2**20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PSS is Linux's")

# Children end by themselves if a test is killed.
START = "import os, signal, sys, time; signal.alarm(60)\n"
BURNER = START + "memory = bytearray(b'x') * (64 << 20); print('ready', flush=True)\nwhile True: pass"
# Burns half a second of CPU, says so, and waits to be told to end.
BURNT = START + "while time.process_time() < 0.5: pass\nprint('ready', flush=True); sys.stdin.read()"
GROWER = START + "print('ready', flush=True); sys.stdin.readline(); memory = b'x' * (64 << 20); time.sleep(60)"
# Two processes that touch the same 64 MiB.
SHARERS = START + (
    "import mmap; memory = mmap.mmap(-1, 64 << 20); memory.write(b'x' * (64 << 20))\n"
    "child = os.fork()\n"
    "signal.alarm(60); total = sum(memory[::4096])\n"
    "if child == 0: print('ready', flush=True); time.sleep(60)\n"
    "sys.stdin.read(); os.kill(child, signal.SIGKILL); os.wait()"
)
# A middle process starts one that burns CPU, says its id and leaves it behind.
LEAVER = START + (
    "child = os.fork()\n"
    "if child: sys.stdin.readline(); os._exit(0)\n"
    "signal.alarm(60); print(os.getpid(), flush=True)\n"
    "while True: pass"
)

Starter = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts Python code and waits for its first line; everything is ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        process.first_line = process.stdout.readline().strip()  # type: ignore[attr-defined]
        assert process.first_line  # type: ignore[attr-defined]
        return process

    yield begin
    for process in started:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for each in family:
            each.kill()
        process.kill()
        process.communicate()


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline, "not reached within 30 s"
        time.sleep(0.01)


def _samplers_running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "lockstep-resources"]


def test_samples_a_busy_process(start: Starter) -> None:
    child = start(BURNER)
    with ResourceSampler([child.pid], interval_seconds=0.05) as sampler:
        _until(lambda: len(sampler.samples) >= 4)
    frame = sampler.frame()
    threads = ["threads", "training_threads", "framework_threads"]
    assert list(frame.columns) == ["seconds", "cpu_percent", "pss_bytes", *threads, "io_wait_percent"]
    assert frame[threads[1:]].isna().all(axis=None), "nobody asked for them"
    assert frame["seconds"].is_monotonic_increasing and frame["seconds"].iloc[0] > 0
    assert 64 * MIB <= frame["pss_bytes"].max() <= 200 * MIB
    assert sampler.peak_pss_bytes == frame["pss_bytes"].max()
    assert frame["cpu_percent"].max() > 10
    assert (frame["threads"] == 1).all()
    assert frame["io_wait_percent"].dropna().between(0, 100).all()
    assert _samplers_running() == []


@linux
def test_shared_pages_count_once(start: Starter) -> None:
    child = start(SHARERS)
    with ResourceSampler([child.pid], interval_seconds=0.05) as sampler:
        _until(lambda: len(sampler.samples) >= 1)
    assert sampler.memory_kind == "pss"
    resident = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
    assert len(resident) == 2
    assert sum(each.memory_info().rss for each in resident) >= 128 * MIB
    assert 64 * MIB <= sampler.peak_pss_bytes < 110 * MIB
    assert sampler.samples[-1].threads == 2


NAMED = (
    START
    + """
import threading
from lockstep.engine.thread_names import name_training_thread
ready = threading.Barrier(5)
def inherit():
    ready.wait()
    time.sleep(60)
def work(role):
    name_training_thread(role)
    threading.Thread(target=inherit, daemon=True).start()  # as OpenMP starts its pool
    inherit()
for role in ("rank", "decode"):
    threading.Thread(target=work, args=(role,), daemon=True).start()
ready.wait()
print("ready", flush=True)
sys.stdin.read()
"""
)


@linux
def test_threads_that_train_are_told_from_what_they_start(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread inherits the name of the one that starts it: a rank's OpenMP pool would have counted as ranks."""
    child = start(NAMED)
    with ResourceSampler([child.pid], interval_seconds=60, tell_threads=True) as sampler:
        pass
    (sample,) = sampler.samples
    assert (sample.threads, sample.training_threads, sample.framework_threads) == (5, 2, 3)
    monkeypatch.setattr(resources, "_HAS_NAMES", False)
    with ResourceSampler([child.pid], interval_seconds=60, tell_threads=True) as sampler:
        pass
    (sample,) = sampler.samples
    assert sample.threads == 5 and math.isnan(sample.training_threads) and math.isnan(sample.framework_threads)


@linux
def test_ranks_loaders_and_exchanges_count_as_threads_that_train() -> None:
    """Of two ranks in one process: a thread each, one that decodes, one that exchanges; torch's own do not."""

    def work(group: Any) -> tuple[float, float]:
        data = SimpleNamespace(shape=(3, 8, 8), labels=np.zeros(4, np.int64), load=lambda *given: given[-1].fill(0.0))
        with Loader(data, seed=0) as loader:
            background = Background()
            background.submit(lambda: None)
            background.drain()
            loader.take(0, [0])  # its thread has begun by then
            group.barrier()  # and so have the other rank's
            with ResourceSampler([os.getpid()], interval_seconds=60, tell_threads=True) as sampler:
                pass
            group.barrier()
            background.close()
        return sampler.samples[0].training_threads, sampler.samples[0].framework_threads

    with Threads(2) as team:
        counts = team.call(work)
    assert [training for training, _ in counts] == [6, 6]
    assert all(framework >= 1 for _, framework in counts), "Python's main thread at least"


def test_a_role_that_nobody_would_recognise_is_refused() -> None:
    with pytest.raises(ValueError, match="role='trainer' is not a role of a thread that trains; give one of: rank"):
        name_training_thread("trainer")


def test_rss_stands_in_and_says_so(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_HAS_PSS", False)
    child = start(BURNER)
    with ResourceSampler([child.pid], interval_seconds=0.05) as sampler:
        pass
    assert sampler.memory_kind == "rss"
    assert sampler.peak_pss_bytes >= 64 * MIB


def test_children_are_found_without_proc(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_HAS_CHILDREN", False)
    child = start(SHARERS)
    assert len(ProcessTree([child.pid]).seen) == 2


def test_a_process_that_dies_meanwhile(start: Starter) -> None:
    child, other = start(BURNER), start(BURNER)
    with ResourceSampler([child.pid, other.pid], interval_seconds=0.05) as sampler:
        _until(lambda: len(sampler.samples) >= 2)
        child.kill()
        child.wait()
        before = len(sampler.samples)
        _until(lambda: len(sampler.samples) >= before + 2)
        last = sampler.samples[-1]
        assert 64 * MIB <= last.pss_bytes < 128 * MIB
        other.kill()  # stays a zombie until waited for
        _until(lambda: sampler.samples[-1].pss_bytes == 0)
    assert sampler.peak_pss_bytes >= 128 * MIB
    assert _samplers_running() == []


def test_a_root_inside_another_tree_is_its_own_worker(start: Starter) -> None:
    child = start(SHARERS)
    for roots in ([os.getpid(), child.pid], [child.pid, os.getpid()]):
        seen = ProcessTree(roots).seen
        assert len([pid for pid in seen if seen[pid].root == child.pid]) == 2
        assert seen[child.pid].parent == os.getpid()


def test_a_short_block_has_a_sample(start: Starter) -> None:
    child = start(BURNER)
    with ResourceSampler([child.pid], interval_seconds=60) as sampler:
        pass
    assert len(sampler.samples) == 1
    assert sampler.samples[0].pss_bytes >= 64 * MIB


def test_an_expensive_reading_repeats_the_last(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PSS_BUDGET", 1e-9)
    readings: list[int] = []

    def read(self: ResourceSampler, process: psutil.Process) -> int:
        readings.append(process.pid)
        return 5

    monkeypatch.setattr(ResourceSampler, "_pss", read)
    child = start(BURNER)
    with ResourceSampler([child.pid], interval_seconds=0.02) as sampler:
        _until(lambda: len(sampler.samples) >= 4)
    assert len(readings) == 1
    assert {sample.pss_bytes for sample in sampler.samples} == {5}


def test_a_new_height_is_read_whatever_it_costs(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PSS_BUDGET", 1e-9)
    child = start(GROWER)
    with ResourceSampler([child.pid], interval_seconds=0.02) as sampler:
        _until(lambda: len(sampler.samples) >= 1)
        assert sampler.peak_pss_bytes < 64 * MIB
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        _until(lambda: sampler.peak_pss_bytes >= 64 * MIB)


def test_an_error_in_the_thread_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: ResourceSampler) -> None:
        raise KeyError("inside")

    monkeypatch.setattr(ResourceSampler, "_sample", broken)
    with pytest.raises(RuntimeError, match="not complete") as caught, ResourceSampler([os.getpid()]):
        pass
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ZeroDivisionError), ResourceSampler([os.getpid()]):  # the block's own error goes first
        raise ZeroDivisionError
    assert _samplers_running() == []


def test_wrong_use_is_refused() -> None:
    for interval in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"interval_seconds={interval}"):
            ResourceSampler([], interval_seconds=interval)
    with ResourceSampler([]) as sampler:
        pass
    with pytest.raises(RuntimeError, match="make a new one"), sampler:
        pass
    assert sampler.frame().shape == (1, len(Sample._fields))
    assert ResourceSampler([]).frame().empty


def test_what_was_used_before_does_not_count(start: Starter) -> None:
    child = start(BURNT)
    assert ProcessTree([child.pid]).advance() < 0.25
    assert ProcessTree([child.pid, os.getpid()]).advance() < 0.25


def test_a_child_that_ended_is_counted_once(start: Starter) -> None:
    tree = ProcessTree([os.getpid()])
    child = start(BURNT)
    assert tree.advance() >= 0.45  # alive
    child.communicate("")
    assert tree.advance() < 0.25  # waited for: its half second now stands in ours
    start(BURNT).communicate("")  # started and ended between two looks
    assert tree.advance() >= 0.45


def test_a_root_that_ended_takes_nothing_back(start: Starter) -> None:
    ended, other = start(BURNT), start(BURNER)
    tree = ProcessTree([ended.pid, other.pid])
    ended.communicate("")
    used = psutil.Process(other.pid).cpu_times().user
    _until(lambda: psutil.Process(other.pid).cpu_times().user >= used + 0.2)
    assert tree.advance() >= 0.15
    assert set(tree.seen) == {other.pid}


def test_an_orphan_stays_ours(start: Starter) -> None:
    middle = start(LEAVER)
    orphan = psutil.Process(int(middle.first_line))  # type: ignore[attr-defined]
    try:
        tree = ProcessTree([middle.pid])
        assert set(tree.seen) == {middle.pid, orphan.pid}
        assert middle.stdin is not None
        middle.stdin.write("\n")
        middle.stdin.flush()
        middle.wait()
        tree.advance()
        used = orphan.cpu_times().user
        _until(lambda: orphan.cpu_times().user >= used + 0.2)
        assert tree.advance() >= 0.15
        assert set(tree.seen) == {orphan.pid}
    finally:
        os.kill(orphan.pid, signal.SIGKILL)
