import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from lockstep.measure import contention
from lockstep.measure.contention import Contention, CpuSeconds, allowed_cores, cpu_seconds_by_core, parse_stat

BURN = "while time.process_time() < 0.6: pass\n"
OWN = "import signal, time; signal.alarm(60)\n" + BURN
# Leaves its own child behind, to init; that says its id, waits for a line, burns CPU and says how much.
STRANGER = (
    "import os, signal, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid(); signal.alarm(60); print(os.getpid(), flush=True); sys.stdin.readline()\n"
    + BURN
    + "print(time.process_time(), flush=True); sys.stdin.readline()"
)


class Stranger:
    """A process that is not in our tree, ready to burn CPU."""

    def __init__(self) -> None:
        self._starter = subprocess.Popen(
            [sys.executable, "-c", STRANGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._starter.stdin is not None and self._starter.stdout is not None
        self._to, self._from = self._starter.stdin, self._starter.stdout
        self.pid = int(self._from.readline())
        self._starter.wait()

    def burn(self) -> float:
        """CPU seconds that it has used."""
        self._to.write("go\n")
        self._to.flush()
        return float(self._from.readline())

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        self._from.close()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    found = Stranger()
    yield found
    found.end()


TICK_SECONDS = 0.01  # the kernel counts CPU time in such steps


def test_a_stranger_is_other(stranger: Stranger) -> None:
    assert os.getpid() not in [parent.pid for parent in psutil.Process(stranger.pid).parents()]
    with Contention() as measured:
        burnt = stranger.burn()
    assert burnt >= 0.6
    assert measured.wall_seconds >= burnt - TICK_SECONDS  # 0.59989 was seen beside 0.60001: two clocks
    assert measured.other_cpu_seconds >= 0.7 * burnt
    assert measured.own_cpu_seconds < 0.3  # we only waited
    assert measured.contended(0.5 * burnt / measured.wall_seconds / measured.usable_cores)


def test_a_worker_that_somebody_else_started_is_ours(stranger: Stranger) -> None:
    with Contention([stranger.pid]) as measured:
        stranger.burn()
    assert measured.own_cpu_seconds >= 0.5


def test_our_own_child_is_not() -> None:
    # Waited for within the block, and so gone when it ends.
    before = cpu_seconds_by_core()
    with Contention() as measured:
        subprocess.run([sys.executable, "-c", OWN], check=True)
    after = cpu_seconds_by_core()
    busy = sum(after[core].busy - before[core].busy for core in after)
    assert measured.own_cpu_seconds >= 0.55
    # The machine may be busy with others: what it did without us is all that may be left.
    assert measured.other_cpu_seconds <= max(0.0, busy - 0.55) + 0.05


def test_our_own_child_still_running_is_not() -> None:
    endless = "import signal; signal.alarm(60)\nprint(1, flush=True)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        used = psutil.Process(child.pid).cpu_times().user
        with Contention() as measured:
            while psutil.Process(child.pid).cpu_times().user < used + 0.4:
                os.sched_yield()
        assert measured.own_cpu_seconds >= 0.35
    finally:
        child.kill()
        child.communicate()


def _seconds(monkeypatch: pytest.MonkeyPatch, start: CpuSeconds, end: CpuSeconds, network: bool = False) -> Contention:
    """A block over which the only core's counts go from `start` to `end`, and we use nothing."""
    counts = iter([{0: start, 7: CpuSeconds(0, 0)}, {0: end, 7: CpuSeconds(100, 100)}])
    monkeypatch.setattr(contention, "cpu_seconds_by_core", lambda: next(counts))
    monkeypatch.setattr(contention, "allowed_cores", lambda pids: {0})
    monkeypatch.setattr(contention.ProcessTree, "advance", lambda self: 1.0)
    with Contention(network=network) as measured:
        pass
    return measured


def test_other_is_busy_without_ours_on_our_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = _seconds(monkeypatch, CpuSeconds(10, 5), CpuSeconds(13.5, 5.25))
    assert (measured.own_cpu_seconds, measured.other_cpu_seconds, measured.steal_seconds) == (1.0, 2.5, 0.25)
    assert measured.usable_cores == 1


def test_packets_of_a_cell_over_links_are_not_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells over emulated links counted as contended by what the kernel did for them, and were measured twice."""
    counts = CpuSeconds(10, 5, 1), CpuSeconds(13.5, 5.25, 3)
    assert _seconds(monkeypatch, *counts, network=True).other_cpu_seconds == 0.5
    assert _seconds(monkeypatch, *counts).other_cpu_seconds == 2.5


def test_interrupts_that_were_billed_to_us_can_hide_as_much_of_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of our second was interrupts: then 1.5 s of the 2.5 s are others', of which 0.5 s are seen."""
    counts = CpuSeconds(10, 5, 1), CpuSeconds(12.5, 5.25, 2)
    assert _seconds(monkeypatch, *counts, network=True).other_cpu_seconds == 0.5
    assert _seconds(monkeypatch, *counts).other_cpu_seconds == 1.5


def test_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = _seconds(monkeypatch, CpuSeconds(10, 5), CpuSeconds(10.5, 4))  # the clocks disagree
    assert (measured.other_cpu_seconds, measured.steal_seconds) == (0.0, 0.0)
    assert not measured.contended()


@pytest.mark.parametrize(
    ("other", "steal", "threshold", "expected"),
    [
        (0.99, 0.0, None, False),  # of 10 s x 2 cores, 5 % is 1 s
        (1.01, 0.0, None, True),
        (0.0, 1.01, None, True),
        (0.6, 0.6, None, True),
        (1.01, 0.0, 0.1, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_contended(other: float, steal: float, threshold: float | None, expected: bool) -> None:
    with Contention() as measured:
        pass
    measured.wall_seconds, measured.usable_cores = 10.0, 2
    measured.other_cpu_seconds, measured.steal_seconds = other, steal
    assert (measured.contended() if threshold is None else measured.contended(threshold)) is expected


def test_no_verdict_before_the_end() -> None:
    with pytest.raises(RuntimeError, match="before"):
        Contention().contended()
    with Contention() as measured, pytest.raises(RuntimeError, match="before"):
        measured.contended()


def test_parse_stat() -> None:
    text = (
        "cpu  11 22 33 44 55 66 77 88 9 10\n"
        "cpu0 100 200 300 4000 5000 10 20 50 90 90\n"
        "cpu12 1 2 3 4 5 6 7 8 0 0\n"
        "intr 1 2 3\n"
    )
    assert parse_stat(text, 100) == {0: CpuSeconds(6.3, 0.5, 0.3), 12: CpuSeconds(0.19, 0.08, 0.13)}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_allowed_cores_are_those_of_every_thread() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os, sys; os.sched_setaffinity(0, [{core}]); print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert allowed_cores([child.pid]) == {core}
        assert allowed_cores([child.pid, os.getpid()]) >= os.sched_getaffinity(os.getpid())
    finally:
        child.kill()
        child.communicate()
    assert allowed_cores([child.pid]) == set()
