"""Scripts that are started, sampled and ended; nothing of them stays, however they behave."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.advisor.why.observations import INPUT, OTHERS, THREADS
from lockstep.advisor.why.observe_script import ScriptError, observe_process, observe_script
from lockstep.advisor.why.script import HELPS, LOADS, TRAINS, causes_of_script
from lockstep.engine.cores import usable_cores

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers")]
SPIN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
CROWD = "import subprocess, sys\nall = [subprocess.Popen([sys.executable, '-c', {spin!r}]) for _ in range({count})]\n"
CROWD += "[each.wait() for each in all]"
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(60)"


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of the script alone, which leaves its loader's socket there when SIGTERM ends it; short, as its path must be."""
    with tempfile.TemporaryDirectory(prefix="script-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(text, encoding="utf-8")
    return [sys.executable, str(path)]


def named(*arguments: object) -> list[str]:
    """But for other programs on this machine, which a test can't help."""
    seen = observe_script(*arguments)  # type: ignore[arg-type]
    return [cause.kind for cause in causes_of_script(seen) if cause.kind != OTHERS]


def test_more_busy_processes_than_cores(tmp_path: Path) -> None:
    crowd = CROWD.format(spin=SPIN.format(seconds=30), count=3 * len(usable_cores()))
    assert named(script(tmp_path, crowd), 1.5)[0] == THREADS


@pytest.mark.slow
def test_a_slow_loader_is_named(root: Path, temporary_folder: None) -> None:
    for seconds in (3.0, 10.0, 30.0):  # on a busy machine three are hardly more than the start
        seen = observe_script([sys.executable, str(root / "examples" / "slow_loader.py")], seconds)
        causes = [cause for cause in causes_of_script(seen) if cause.kind != OTHERS]
        if causes:
            break
    assert causes[0].kind == INPUT and "1 process that loads" in causes[0].found
    assert [len(seen.of(role)) for role in (TRAINS, LOADS, HELPS)] == [1, 1, 0]
    assert 0 < seen.start_seconds < seen.seconds and not seen.ended


def test_a_script_that_sleeps(tmp_path: Path) -> None:
    assert named(script(tmp_path, "import time\ntime.sleep(60)"), 1.0) == [INPUT]


def test_a_script_that_computes_with_all_cores_is_healthy(tmp_path: Path) -> None:
    crowd = CROWD.format(spin=SPIN.format(seconds=30), count=len(usable_cores()))
    assert named(script(tmp_path, crowd), 1.5) == []


@pytest.mark.slow
def test_its_output_goes_to_standard_error_and_findings_are_alone(tmp_path: Path) -> None:
    spin = SPIN.format(seconds=1.2)
    words = [sys.executable, "-m", "lockstep.commands.cli", "why", "--seconds", "10", "--json", "--"]
    done = subprocess.run(
        words + script(tmp_path, f"print('from the script')\n{spin}"), capture_output=True, text=True, check=True
    )
    assert "from the script" in done.stderr and "from the script" not in done.stdout
    assert '"ended": true' in done.stdout and "the batch per worker" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os\nos.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("pass", "too soon to see anything"),
    ],
)
def test_a_script_that_ends_badly_or_at_once(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        observe_script(script(tmp_path, text), 10.0)


def test_a_script_that_ignores_sigterm_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.advisor.why.observe_script.GENTLE_SECONDS", 0.3)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    observe_script(script(tmp_path, DEAF), 1.0)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_script_ends_with_us_even_when_we_are_killed(tmp_path: Path) -> None:
    mark = f"marked-{time.monotonic_ns()}"
    words = [sys.executable, "-m", "lockstep.commands.cli", "why", "--", *script(tmp_path, DEAF), mark]
    ours = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert ours.stderr is not None and ours.stderr.readline() == b"deaf\n"
    ours.kill()
    ours.wait()
    ours.stderr.close()
    end = time.monotonic() + 20
    while _running(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _running(mark)


def test_a_running_process_is_only_looked_at(tmp_path: Path) -> None:
    process = subprocess.Popen(script(tmp_path, "import time\ntime.sleep(60)"))
    try:
        seen = observe_process(process.pid, 1.0)
        assert process.poll() is None and not seen.ended and len(seen.processes) == 1
        assert [cause.kind for cause in causes_of_script(seen) if cause.kind != OTHERS] == [INPUT]
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ScriptError, match="can't be looked at"):
        observe_process(process.pid, 1.0)


def _running(mark: str) -> bool:
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline():
                return True
        except psutil.Error:
            continue
    return False
