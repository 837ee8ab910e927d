"""What stands for the start of a worker behaves as it: its end is seen, signals reach it, nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.zygote import ForkedProcess, Zygotes
from lockstep.engine.launch import team
from lockstep.engine.launch.environment import worker_environment

pytestmark = pytest.mark.linux
Start = Callable[..., ForkedProcess]


@pytest.fixture
def zygotes(monkeypatch: pytest.MonkeyPatch, _zygotes: Zygotes) -> Zygotes:
    """The session's; a code that tests choose counts as that of a worker."""
    monkeypatch.setattr("harness.zygote._TRUE_START", "pass")
    return _zygotes


@pytest.fixture
def start(zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    outputs = []

    def begin(code: str, *arguments: str, handles: tuple[int, ...] = (), **variables: str) -> Any:
        monkeypatch.setattr("harness.zygote._TRUE_START", code)
        outputs.append(tempfile.TemporaryFile())  # noqa: SIM115 - closed below
        environment = worker_environment("tuned", 1) | variables
        made: Any = zygotes.start_python(code, arguments, environment, handles, outputs[-1])
        made.output = outputs[-1]
        return made

    yield begin
    for output in outputs:
        output.close()


def said(process: Any) -> str:
    process.output.seek(0)
    text: str = process.output.read().decode()
    return text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os._exit(4)", 4),
        ("raise ValueError('no such thing')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    ],
)
def test_its_end_is_seen(start: Start, code: str, expected: int) -> None:
    process = start(code)
    assert process.wait(90) == process.returncode == expected
    assert ("no such thing" in said(process)) == ("no such thing" in code)


def test_it_has_its_arguments_variables_folder_and_descriptors(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    code = (
        "import os, sys\n"
        "print(sys.argv[1], os.environ['MINE'], os.getcwd(), 'LOCKSTEP_HOST' in os.environ, __name__, flush=True)\n"
        "os.write(int(sys.argv[2]), b'hello')"
    )
    monkeypatch.setenv("LOCKSTEP_HOST", "")
    monkeypatch.delenv("LOCKSTEP_HOST")
    process = start(code, "first", str(writing), handles=(writing,), MINE="set")
    assert process.wait(90) == 0, said(process)
    assert said(process).split() == ["first", "set", str(tmp_path), "False", "__main__"]
    os.close(writing)
    assert os.read(reading, 100) == b"hello" and os.read(reading, 100) == b"", "nobody else holds the other end"
    os.close(reading)


def test_it_can_be_stopped_continued_and_killed(start: Start) -> None:
    process = start("import time; time.sleep(100)")
    for number, state in ((signal.SIGSTOP, psutil.STATUS_STOPPED), (signal.SIGCONT, psutil.STATUS_SLEEPING)):
        process.send_signal(number)
        end = time.monotonic() + 10
        while psutil.Process(process.pid).status() != state and time.monotonic() < end:
            time.sleep(0.01)
        assert psutil.Process(process.pid).status() == state
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.kill()
    assert process.wait(90) == -signal.SIGKILL
    process.kill()  # and again, when somebody else may have its number


def test_one_that_is_forgotten_goes_on(start: Start) -> None:
    """Else a team that forgets its workers would leave none, and no test could see that."""
    pid = start("import time; time.sleep(100)").pid
    time.sleep(0.3)
    assert psutil.Process(pid).status() == psutil.STATUS_SLEEPING
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_workers_of_other_settings_have_another_zygote(zygotes: Zygotes) -> None:
    one, again, two = (zygotes.socket_of(worker_environment("tuned", threads)) for threads in (1, 1, 2))
    plain = zygotes.socket_of(worker_environment("plain", 1))
    assert one == again and len({one, two, plain}) == 3
    mine = zygotes.socket_of(worker_environment("tuned", 1) | {"LOCKSTEP_HOST": "elsewhere"})
    assert mine == one, "what is read later comes with the worker"


def test_only_the_program_of_a_worker_is_forked(zygotes: Zygotes) -> None:
    """A test that starts another one means a new process."""
    with tempfile.TemporaryFile() as output:
        process = zygotes.start_python("import time", [], dict(os.environ), [], output)
        assert isinstance(process, subprocess.Popen) and process.wait(90) == 0
    assert team._START != "import time"


def test_a_zygote_holds_nothing_that_a_worker_must_load_itself(start: Start) -> None:
    code = (
        "import sys, threading\n"
        "assert threading.active_count() == 1\n"
        "bad = {'tensorflow', 'mpi4py.MPI', 'pyspark', 'ipyparallel', 'matplotlib', 'tiny'} & set(sys.modules)\n"
        "assert not bad, bad\n"
        "import torch\n"
        "torch.set_num_threads(2)\n"
        "print(float((torch.ones(2_000_000) * 2).sum()))"  # in parallel, which hung where a fork followed such work
    )
    process = start(code)
    assert process.wait(60) == 0, said(process)
    assert said(process).split() == ["4000000.0"]
