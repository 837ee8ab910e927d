"""A run that is stopped, killed or fails: a clear end, an executed notebook, and no process left."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from small_notebooks import small_repository

pytestmark = pytest.mark.usefixtures("no_leftovers")

START_SECONDS = 180.0  # for a kernel to reach its cell on a busy machine
END_SECONDS = 60.0  # on a busy machine; a kernel that stays does so for ever

# Two workers: one that takes no interrupt, and one in a session of its own, out of reach of a signal to the group.
STARTS_WORKERS = """\
import os, pathlib, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(300)"
workers = [
    subprocess.Popen([sys.executable, "-c", deaf]),
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True),
]
pathlib.Path("pids.part").write_text(" ".join(str(pid) for pid in [os.getpid(), *(w.pid for w in workers)]))
os.replace("pids.part", "pids")
time.sleep(300)
"""


class Run:
    """A `lockstep run` as its own process in a tiny repository."""

    def __init__(self, root: Path, *arguments: str, folder: str = ".") -> None:
        self.root = root
        self.stderr = root / f"stderr-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "lockstep.commands.cli", "run", "07", *arguments]
        with self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(command, cwd=root / folder, stdout=subprocess.DEVNULL, stderr=stderr)

    def in_its_cell(self) -> list[psutil.Process]:
        """Waits until the notebook has started its workers; the kernel and the workers."""
        wait_until(
            lambda: (self.root / "pids").exists() or self.process.poll() is not None, START_SECONDS, self.message
        )
        assert self.process.poll() is None, self.message()
        return [psutil.Process(int(pid)) for pid in (self.root / "pids").read_text().split()]

    def end(self, seconds: float = START_SECONDS) -> int:
        return self.process.wait(seconds)

    def message(self) -> str:
        return self.stderr.read_text()

    def executed(self) -> dict[str, Any]:
        (path,) = self.root.rglob("executed.ipynb")
        notebook: dict[str, Any] = json.loads(path.read_text())
        return notebook


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*arguments: str, cell: str = STARTS_WORKERS, folder: str = ".") -> Run:
        root = tmp_path / "repository"
        runs.append(Run(root if root.exists() else small_repository(root, cell), *arguments, folder=folder))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.wait()


def wait_until(condition: Callable[[], bool], seconds: float, message: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message()
        time.sleep(0.05)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def errors(notebook: dict[str, Any]) -> str:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return "\n".join(output["evalue"] for output in outputs if output["output_type"] == "error")


@pytest.mark.parametrize(
    ("number", "code", "later"), [(signal.SIGINT, 130, signal.SIGTERM), (signal.SIGTERM, 143, signal.SIGINT)]
)
def test_a_stopped_run_leaves_no_process_and_says_so(
    start: Callable[..., Run], number: signal.Signals, code: int, later: signal.Signals
) -> None:
    run = start()
    processes = run.in_its_cell()
    run.process.send_signal(number)
    time.sleep(0.5)
    run.process.send_signal(later)  # an impatient second one does not break the clean-up
    assert run.end(END_SECONDS) == code, run.message()
    assert gone(processes)
    assert f"stopped by {number.name}" in run.message()
    assert f"stopped by {number.name}" in errors(run.executed())
    assert "never retrieved" not in run.message() and "Traceback" not in run.message()


def test_a_run_stopped_while_its_kernel_starts_leaves_no_process(start: Callable[..., Run]) -> None:
    run = start()
    runner = psutil.Process(run.process.pid)
    wait_until(lambda: bool(runner.children()), START_SECONDS, run.message)
    children = runner.children()
    run.process.send_signal(signal.SIGTERM)
    assert run.end(END_SECONDS) == 143, run.message()
    assert gone(children)


@pytest.mark.parametrize("stopped", [False, True])
def test_the_kernel_of_a_killed_runner_ends_by_itself(start: Callable[..., Run], stopped: bool) -> None:
    """One that was stopped stayed for ever, with its workers."""
    run = start()
    kernel, *workers = run.in_its_cell()
    if stopped:
        kernel.suspend()
    run.process.kill()
    run.end(END_SECONDS)
    try:
        wait_until(lambda: gone([kernel]), END_SECONDS, lambda: "the kernel outlives its runner")
        assert gone([kernel])
    finally:
        for worker in workers:  # not lockstep's own workers, which watch their kernel
            worker.kill()


def test_a_killed_kernel_ends_the_run_with_its_workers(start: Callable[..., Run]) -> None:
    run = start()
    kernel, *workers = run.in_its_cell()
    kernel.kill()
    assert run.end() == 1
    assert gone(workers)
    assert "the kernel died" in run.message() and "executed notebook: results/runs/default" in run.message()
    assert "the kernel died" in errors(run.executed())


def test_an_interrupted_kernel_ends_the_run_and_says_so(start: Callable[..., Run]) -> None:
    """Seen in a soak: a traceback of KeyboardInterrupt."""
    run = start()
    kernel, *workers = run.in_its_cell()
    kernel.send_signal(signal.SIGINT)
    assert run.end() == 1
    assert gone(workers)
    assert "interrupted by SIGINT; rounds written so far are kept" in run.message()
    assert "Traceback" not in run.message()


def test_a_run_over_its_time_is_ended(start: Callable[..., Run]) -> None:
    run = start("--timeout", "10", cell=STARTS_WORKERS)
    processes = run.in_its_cell()
    assert run.end() == 1
    assert gone(processes)
    assert "time-out of 10 s" in run.message() and "--timeout" in run.message()
    assert "time-out of 10 s" in errors(run.executed())


def test_a_failing_cell_is_shown_and_kept(start: Callable[..., Run]) -> None:
    cell = "import sys\nprint('measuring round 3', file=sys.stderr)\nraise ValueError(f'{workers} is odd')"
    run = start("-p", "workers=5", cell=cell)
    assert run.end() == 1
    assert "measuring round 3" in run.message(), "the notebook's progress is shown while it runs"
    assert "ValueError: 5 is odd" in run.message() and "raise ValueError" in run.message()
    assert "results/runs/default/07_small/executed.ipynb" in run.message()
    assert errors(run.executed()) == "5 is odd"


def test_an_error_of_ours_is_its_message_and_nothing_else(start: Callable[..., Run]) -> None:
    run = start(cell="from lockstep.engine.job import Job\nJob.of('processes', workers=0)")
    assert run.end() == 1
    first, *others = run.message()[run.message().index("07_small failed") :].splitlines()
    assert first.startswith("07_small failed in cell [") and "]: workers=0" in first
    assert others == ["the executed notebook: results/runs/default/07_small/executed.ipynb"]
    assert any("engine/options.py" in line for line in traceback_of(run.executed())), "the frames are kept there"


def traceback_of(notebook: dict[str, Any]) -> list[str]:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [line for output in outputs if output["output_type"] == "error" for line in output["traceback"]]


def test_a_run_from_another_folder_reads_the_callers_images(
    start: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.setenv("LOCKSTEP_DATA", "../../photos")
    cell = "import os, pathlib\npathlib.Path('found').write_text(os.environ['LOCKSTEP_DATA'])"
    run = start(cell=cell, folder="notebooks")
    assert run.end() == 0, run.message()
    assert (run.root / "found").read_text() == str((tmp_path / "photos").resolve())
    assert str(tmp_path) not in json.dumps(run.executed())


def test_a_run_gets_its_parameters_folder_and_own_python(start: Callable[..., Run]) -> None:
    cell = (
        "import json, os, pathlib, sys\n"
        "found = [workers, rate, names, measure, results, sys.executable, os.getcwd()]\n"
        "pathlib.Path('found').write_text(json.dumps(found))"
    )
    run = start("--profile", "smoke", "-p", "names=[ddp]", "--out", "mine", cell=cell)
    assert run.end() == 0, run.message()
    found = json.loads((run.root / "found").read_text())
    assert found == [1, 2.0, ["ddp"], True, "mine", sys.executable, str(run.root)]
    assert str(run.root) not in json.dumps(run.executed()), "no machine path in the notebook itself"
    assert [path.name for path in (run.root / "mine" / "07_small").glob("[!.]*")] == ["executed.ipynb"]


def test_what_a_run_leaves_in_its_temporary_folder_goes_with_it(start: Callable[..., Run]) -> None:
    """TensorFlow left ten files in the machine's, a killed kernel its connection file."""
    cell = (
        "import pathlib, tempfile\n"
        "from ipykernel.connect import get_connection_file\n"
        "pathlib.Path('found').write_text(tempfile.mkstemp()[1] + ' ' + get_connection_file())"
    )
    run = start(cell=cell)
    assert run.end() == 0, run.message()
    left, connection = (Path(name) for name in (run.root / "found").read_text().split())
    assert left.parent == connection.parent and left.parent.name.startswith("lockstep-run-")
    assert not left.parent.exists()


def test_a_second_run_into_the_same_folder_is_refused_at_once(start: Callable[..., Run]) -> None:
    first = start(cell="1")
    assert first.end() == 0, first.message()
    kept = first.executed()
    with (first.root / "results" / "runs" / "default" / "07_small" / ".run.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a run does that is still going
        second = start()
        assert second.end() == 2
    assert "in use by another run" in second.message() and "--out" in second.message()
    assert first.executed() == kept
